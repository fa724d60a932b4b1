"""The outcome of evidence that is found more than once: it never becomes better known by a contradiction."""

from __future__ import annotations

import pytest

from txnwatch.state.abort.case import ProvenHang, StoredEvidence
from txnwatch.state.abort.proven_outcome import combined
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.incident_payload import ExpectedOutcome as O
from txnwatch.state.model.ports import ActiveProducer
from txnwatch.state.model.transaction import CoordinatorView, Span, TransactionState
from txnwatch.state.model.verdicts import Reason, Verdict

SPAN = Span("Zm9v", 99, 2, 2, 120, 0, 0, 7)
NOW = SpanCandidate(Verdict.HANGING, Reason.ALREADY_COMPLETED, 7, TopicPartition("orders", 3), SPAN, None, 7, 8, 0, 0)
THEN = CoordinatorView("checkout", 3, 9, TransactionState.COMPLETE_ABORT, 2, 60_000, 0, 0, 0)
ROW = ActiveProducer(7, 2, 20, 0, None, 99)
KEY = ("Zm9v", TopicPartition("orders", 3), 7)

CASES: dict[str, tuple[O, O, O, bool]] = {
    "the same": (O.ABORT, O.ABORT, O.ABORT, False),
    "known before": (O.UNKNOWN, O.COMMIT, O.COMMIT, True),
    "known now": (O.ABORT, O.UNKNOWN, O.ABORT, False),
    "a contradiction": (O.ABORT, O.COMMIT, O.UNKNOWN, False),
}


@pytest.mark.parametrize(("now", "then", "outcome", "is_witness_earlier"), CASES.values(), ids=CASES.keys())
def test_evidence_of_the_same_data(now: O, then: O, outcome: O, is_witness_earlier: bool) -> None:  # noqa: FBT001
    earlier = ProvenHang(NOW, ROW, then, THEN, 1)
    for before in (earlier, StoredEvidence(KEY, earlier.data, then, THEN)):
        found = combined(ProvenHang(NOW, ROW, now, None, 5), before)
        assert found.outcome == outcome
        assert (found.witness == THEN) is is_witness_earlier


def test_evidence_of_other_data_does_not_count() -> None:
    new = ProvenHang(NOW, ROW, O.UNKNOWN, None, 5)
    for row in (ROW._replace(last_sequence=21), ROW._replace(txn_start_offset=98), ROW._replace(producer_epoch=3)):
        assert combined(new, ProvenHang(NOW, row, O.ABORT, THEN, 1)) == new
    assert combined(new, None) == new
