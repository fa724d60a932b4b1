"""The outcome of evidence that is found more than once: it never becomes better known by a contradiction."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as replaced

from txnwatch.state.detection.view import begun
from txnwatch.state.evidence.confirmation import Answer, SpanConfirmation
from txnwatch.state.evidence.outcome import Doubt, Outcome, unknown
from txnwatch.state.evidence.proven_hang import (
    ProvenHang,
    StoredEvidence,
    agreed,
    combined,
    is_same_data,
    proven,
    seen_again,
    unconfirmed,
    with_history,
)
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.incident import ExpectedOutcome as O
from txnwatch.state.model.incident import OutcomeDoubt as D
from txnwatch.state.model.ports import ActiveProducer, SpanHistory
from txnwatch.state.model.transaction import CoordinatorView, EpochUse, LossProof, Span, Witness
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TopicPartition
from txnwatch.state.model.verdicts import Verdict

SPAN = Span("Zm9v", 99, 2, 2, 120, 0, 0, 7)
NOW = SpanCandidate(Verdict.HANGING, 7, TopicPartition("orders", 3), SPAN, None, 7, 8, 0, 0)
VIEW = CoordinatorView("checkout", 3, 9, S.COMPLETE_ABORT, 2, 60_000, 0, 0, 0, data_epoch=2)
THEN = Witness(VIEW, log_epoch=0)
ROW = ActiveProducer(7, 2, 20, 0, None, 99)
KEY = ("Zm9v", TopicPartition("orders", 3), 7)
OTHER_DATA: dict[str, dict[str, int | None]] = {
    "data was appended": {"last_sequence": 21},
    "data was appended with the sequence of before": {"last_timestamp_ms": 1},
    "the timestamp is gone": {"last_timestamp_ms": None},
    "another start": {"txn_start_offset": 98},
    "another epoch": {"producer_epoch": 3},
}

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
    for changes in OTHER_DATA.values():
        assert combined(new, ProvenHang(NOW, ROW._replace(**changes), O.ABORT, THEN, 1)) == new
    assert combined(new, None) == new


WHY = "its partition's log was not read"
FRESH = SpanConfirmation(Answer.CONFIRMED, producer=ROW, is_unchanged=True, is_settled=True, history=SpanHistory())
EVIDENCE = ProvenHang(NOW, ROW, O.ABORT, THEN, 5)

READS: dict[str, tuple[ProvenHang | None, SpanConfirmation, bool]] = {
    "the same data": (EVIDENCE, FRESH, True),
    "never found": (None, FRESH, False),
    "refuted": (EVIDENCE, replace(FRESH, answer=Answer.REFUTED), False),
    "no answer": (EVIDENCE, replace(FRESH, answer=Answer.UNKNOWN), False),
    "no row": (EVIDENCE, replace(FRESH, producer=None), False),
    "another coordinator's marker": (EVIDENCE, replace(FRESH, producer=ROW._replace(coordinator_epoch=1)), True),
    **{
        what: (EVIDENCE, replace(FRESH, producer=ROW._replace(**changes)), False)
        for what, changes in OTHER_DATA.items()
    },
}


@pytest.mark.parametrize(("evidence", "fresh", "expected"), READS.values(), ids=READS.keys())
def test_an_outcome_counts_only_for_the_data_that_was_confirmed(
    evidence: ProvenHang | None, fresh: SpanConfirmation, *, expected: bool
) -> None:
    assert is_same_data(evidence, fresh) is expected


AGREED: dict[str, tuple[Outcome, Outcome, Outcome]] = {
    "the same": (Outcome(O.ABORT), Outcome(O.ABORT), Outcome(O.ABORT)),
    "two reads have led to two outcomes": (Outcome(O.COMMIT), unknown(D.CONTRADICTION), unknown(D.CONTRADICTION)),
    "known before, and not read now": (unknown(D.NOT_READ, WHY), Outcome(O.ABORT), Outcome(O.ABORT)),
    "known before, and being read now": (
        unknown(D.NOT_READ, WHY, is_being_read=True),
        Outcome(O.ABORT),
        Outcome(O.ABORT, is_being_read=True),
    ),
    "the doubt of the last read": (unknown(D.NOT_READ, WHY), unknown(D.ID_EXPIRED), unknown(D.NOT_READ, WHY)),
}


@pytest.mark.parametrize(("found", "of_all", "expected"), AGREED.values(), ids=AGREED.keys())
def test_the_outcome_of_all_reads_counts(found: Outcome, of_all: Outcome, expected: Outcome) -> None:
    assert agreed(found, replace(EVIDENCE, outcome=of_all.outcome, doubt=of_all.doubt)) == expected


@pytest.mark.parametrize(
    ("answer", "doubt", "is_awaited"),
    [
        (Answer.UNKNOWN, D.NOT_READ, True),
        (Answer.REFUTED, D.DATA_MIXED, False),
        (Answer.CONFIRMED, D.DATA_MIXED, False),
    ],
)
def test_only_a_missing_answer_is_awaited(answer: Answer, doubt: D, *, is_awaited: bool) -> None:
    outcome = unconfirmed(replace(FRESH, answer=answer, why=WHY))
    assert outcome == unknown(doubt, WHY)
    assert outcome.is_awaited is is_awaited


SINCE: dict[str, tuple[ProvenHang | None, int]] = {
    "confirmed for the first time": (None, 9),
    "confirmed before": (EVIDENCE, 5),
    "appended to since": (replace(EVIDENCE, row=ROW._replace(last_sequence=19)), 5),
    "another transaction": (replace(EVIDENCE, row=ROW._replace(txn_start_offset=98)), 9),
}


@pytest.mark.parametrize(("before", "since_ms"), SINCE.values(), ids=SINCE.keys())
def test_the_waiting_time_counts_from_the_first_confirmation_of_the_span(
    before: ProvenHang | None, since_ms: int
) -> None:
    assert proven(NOW, FRESH, before, None, 9).since_ms == since_ms


def test_stored_evidence_gives_its_outcome_and_not_its_waiting_time() -> None:
    stored = StoredEvidence(KEY, EVIDENCE.data, O.ABORT, THEN)
    found = proven(NOW, replace(FRESH, is_settled=False), None, stored, 9)
    assert (found.outcome, found.witness, found.since_ms) == (O.ABORT, THEN, 9)
    other = replace(FRESH, is_settled=False, producer=ROW._replace(last_sequence=21))
    assert proven(NOW, other, None, stored, 9).outcome == O.UNKNOWN
    later = replace(FRESH, is_settled=False, producer=ROW._replace(last_timestamp_ms=1))
    assert proven(NOW, later, None, stored, 9).outcome == O.UNKNOWN
    assert proven(replaced(NOW, view=VIEW, log_epoch=0), FRESH, None, stored, 9).outcome == O.ABORT


# The epoch of the data is 2. The record from which the outcome was derived, and the record of a later barrier.
INIT = begun(replaced(VIEW, state=S.EMPTY, start_ms=None, data_epoch=None))
FENCED = replaced(INIT, log_offset=12, producer_epoch=3)
OWN = replaced(VIEW, state=S.ONGOING, log_offset=12, start_ms=50)
OWN_END = replaced(OWN, state=S.COMPLETE_COMMIT, log_offset=14)
NEXT = replaced(OWN, producer_epoch=3, data_epoch=3)
ENDED_BEFORE = replaced(VIEW, start_ms=40)  # its marker is below the data
BEGUN: dict[str, tuple[CoordinatorView, CoordinatorView | None, bool]] = {
    "the same record": (INIT, INIT, False),
    "no record": (INIT, None, False),
    "the epoch was handed out, and fenced": (INIT, FENCED, False),
    "the same after a transaction of an earlier epoch": (
        replaced(INIT, data_epoch=1),
        replaced(FENCED, data_epoch=1),
        False,
    ),
    "begun under it": (INIT, OWN, True),
    "begun under it, and ended": (INIT, OWN_END, True),
    "begun under it, and its end has raised the epoch": (INIT, replaced(OWN_END, producer_epoch=3), True),
    "begun under it, and its beginning was not read": (INIT, replaced(OWN_END, data_epoch=None), True),
    "begun under it, ended, and fenced": (INIT, replaced(FENCED, data_epoch=2), True),
    "begun under the next epoch": (INIT, NEXT, False),
    "begun under the next epoch, and its beginning was not read": (INIT, replaced(NEXT, data_epoch=None), False),
    "the next one under an epoch with a marker": (ENDED_BEFORE, OWN, True),
    "the same, and its beginning was not read": (ENDED_BEFORE, replaced(OWN_END, data_epoch=None), True),
    "an epoch with a marker, and fenced": (ENDED_BEFORE, replaced(FENCED, data_epoch=2), False),
    "an epoch with a marker, and the next epoch was used": (ENDED_BEFORE, NEXT, False),
    "its id expired": (ENDED_BEFORE, replaced(ENDED_BEFORE, state=S.DEAD), False),
    "its end is read again": (ENDED_BEFORE, replaced(ENDED_BEFORE, reading=1), False),
}


@pytest.mark.parametrize("partition", [NOW.partition, TopicPartition("payments", 0)])
@pytest.mark.parametrize(("before", "now", "has_begun"), BEGUN.values(), ids=BEGUN.keys())
def test_that_nobody_owned_the_data_counts_until_a_transaction_has_begun_under_its_epoch(
    before: CoordinatorView, now: CoordinatorView | None, partition: TopicPartition, *, has_begun: bool
) -> None:
    """Whatever its partitions are."""
    later = replaced(NOW, view=replaced(now, participants=frozenset({partition})) if now is not None else None)
    evidence = ProvenHang(NOW, ROW, O.NONE, Witness(before, log_epoch=0), 5)
    found = seen_again(evidence, later)
    assert found.candidate == later
    assert found.known == (unknown(D.BEGUN_SINCE) if has_begun else Outcome(O.NONE))
    again = combined(ProvenHang(later, ROW, O.UNKNOWN, later.witness, 9, Doubt(D.NOT_READ)), evidence)
    assert again.known == found.known


@pytest.mark.parametrize("outcome", [O.COMMIT, O.ABORT])
def test_an_outcome_with_an_owner_stays_when_the_next_transaction_begins(outcome: O) -> None:
    evidence = ProvenHang(NOW, ROW, outcome, Witness(VIEW, log_epoch=0), 5)
    assert seen_again(evidence, replaced(NOW, view=OWN)).known == Outcome(outcome)


def test_evidence_that_no_transaction_owned_the_data_ends_for_good() -> None:
    """A later record that would give no doubt does not bring it back."""
    evidence = ProvenHang(NOW, ROW, O.NONE, Witness(INIT, log_epoch=0), 5)
    ended = seen_again(evidence, replaced(NOW, view=OWN))
    assert seen_again(ended, replaced(NOW, view=INIT)).known == unknown(D.BEGUN_SINCE)


def test_evidence_of_a_process_that_has_ended_meets_the_same_rule() -> None:
    stored = StoredEvidence(KEY, EVIDENCE.data, O.NONE, Witness(INIT, log_epoch=0))
    for now, known in ((FENCED, Outcome(O.NONE)), (OWN, unknown(D.BEGUN_SINCE))):
        candidate = replaced(NOW, view=now, log_epoch=0)
        assert proven(candidate, replace(FRESH, is_settled=False), None, stored, 9).known == known


NOBODYS = SpanHistory(2, None, is_first=True)
REREADS: dict[str, tuple[SpanHistory, CoordinatorView, Outcome]] = {
    "the same": (NOBODYS, INIT, Outcome(O.NONE)),
    "its beginning is gone": (
        SpanHistory(),
        INIT,
        unknown(D.DATA_MIXED, "its first batch is not in the log of the partition"),
    ),
    "the record of now leads to nothing": (NOBODYS, replaced(INIT, state=S.DEAD), Outcome(O.NONE)),
    "the record of now leads to another": (
        NOBODYS,
        replaced(VIEW, participants=frozenset({NOW.partition}), epoch_use=EpochUse.FIRST, coordinator_epoch=0),
        unknown(D.CONTRADICTION),
    ),
}


@pytest.mark.parametrize(("history", "now", "expected"), REREADS.values(), ids=REREADS.keys())
def test_an_outcome_stays_only_if_the_log_leads_to_it_again(
    history: SpanHistory, now: CoordinatorView, expected: Outcome
) -> None:
    witness = Witness(replaced(INIT, coordinator_epoch=0), log_epoch=0)
    candidate = replaced(NOW, view=replaced(now, coordinator_epoch=0), log_epoch=0)
    assert with_history(ProvenHang(candidate, ROW, O.NONE, witness, 5), ROW, history).known == expected


# Where leader epochs do not show a restart: the read of one batch, and what a later candidate shows.
UNUSED = begun(replaced(VIEW, state=S.EMPTY, start_ms=None, coordinator_epoch=0, reign=4))
LISTED = replaced(NOW, view=UNUSED, log_epoch=0, is_begun_under_it=True, proof=LossProof.CONNECTION)
FOUND = replace(FRESH, log_epoch=0, history=SpanHistory(2, None, is_first=True))


@pytest.mark.parametrize(
    ("later", "found", "expected"),
    [
        ({"second_barrier": 10}, FOUND, O.NONE),
        ({"second_barrier": 9}, FOUND, D.LISTING_AWAITED),
        ({"second_barrier": 10, "view": replaced(UNUSED, reign=9)}, FOUND, D.LISTING_AWAITED),
        ({"second_barrier": 10, "proof": LossProof.NOTHING}, FOUND, D.LEADER_NOT_WATCHED),
        ({"second_barrier": 10}, replace(FOUND, producer=ROW._replace(last_sequence=21)), D.LISTING_AWAITED),
        ({"second_barrier": 10}, replace(FOUND, is_settled=False), D.ID_EXPIRED),
    ],
    ids=[
        "a later barrier, the same connection",
        "listed before the read",
        "another connection",
        "no connection was watched",
        "other data",
        "the coordinator has moved on",
    ],
)
def test_an_outcome_counts_once_a_later_barrier_shows_the_same_reign(
    later: dict[str, object], found: SpanConfirmation, expected: str
) -> None:
    first = proven(LISTED, FOUND, None, None, 5, batch=9)
    assert first.doubt is not None
    assert (first.outcome, first.doubt.kind, first.known.is_awaited) == (O.UNKNOWN, D.LISTING_AWAITED, True)
    known = proven(replaced(LISTED, **later), found, seen_again(first, LISTED), None, 7, batch=10).known
    assert (known.doubt.kind if known.doubt is not None else known.outcome) == expected
