"""What a process has found outlives it: a known outcome, and what makes an outcome unknown for good."""

from __future__ import annotations

from dataclasses import replace

from msgspec.structs import replace as replaced

from txnwatch.sinks.incidents.evidence_file import decode_evidence, encode_evidence
from txnwatch.state.detection.view import begun
from txnwatch.state.evidence.confirmation import Answer, SpanConfirmation
from txnwatch.state.evidence.outcome import Outcome, unknown
from txnwatch.state.evidence.proven_hang import StoredEvidence, StoredFindings
from txnwatch.state.incidents.own_findings import OwnFindings, key_of
from txnwatch.state.incidents.wanted import Keep
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.incident import ExpectedOutcome, OutcomeDoubt
from txnwatch.state.model.ports import ActiveProducer, SpanHistory
from txnwatch.state.model.transaction import CoordinatorView, EpochUse, Span, Witness
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TopicPartition
from txnwatch.state.model.verdicts import Verdict

PARTITION = TopicPartition("orders", 3)
ABORTED = CoordinatorView(
    "checkout",
    3,
    9,
    S.COMPLETE_ABORT,
    2,
    60_000,
    0,
    0,
    0,
    frozenset({PARTITION}),
    data_epoch=2,
    epoch_use=EpochUse.FIRST,
    coordinator_epoch=0,
)
UNUSED = begun(replaced(ABORTED, state=S.EMPTY, start_ms=None, data_epoch=None, participants=frozenset()))
BEGUN = replaced(ABORTED, state=S.ONGOING, log_offset=12, start_ms=50)
CANDIDATE = SpanCandidate(Verdict.HANGING, 7, PARTITION, Span("Zm9v", 99, 2, 2, 120, 0, 0, 7), ABORTED, 7, 8, 0, 0)
LED = replaced(CANDIDATE, log_epoch=0)
FOUND = SpanConfirmation(
    Answer.CONFIRMED,
    producer=ActiveProducer(7, 2, 20, 0, None, 99),
    is_unchanged=True,
    is_settled=True,
    log_epoch=0,
    history=SpanHistory(2, None, is_first=True),
)
COMMITTED = StoredEvidence(
    key_of(LED), FOUND.producer.data, ExpectedOutcome.COMMIT, Witness(replaced(ABORTED, state=S.COMPLETE_COMMIT), 0)
)


def restarted(findings: OwnFindings) -> OwnFindings:
    """The next process, from what this one has left in its file."""
    (kept,) = findings.keep(9)
    assert isinstance(kept, Keep)
    lines = [encode_evidence(one) for one in kept.findings.evidence]
    return OwnFindings(StoredFindings(tuple(map(decode_evidence, lines))))


def confirmed(findings: OwnFindings, candidate: SpanCandidate = LED, found: SpanConfirmation = FOUND) -> Outcome:
    return findings.confirmed(candidate, found, 5, 8).known


def test_a_contradiction_outlives_its_process() -> None:
    findings = OwnFindings(StoredFindings((COMMITTED,)))
    assert confirmed(OwnFindings()) == Outcome(ExpectedOutcome.ABORT), "one read alone leads to an outcome"
    for _ in range(3):
        assert confirmed(findings) == unknown(OutcomeDoubt.CONTRADICTION)
        findings = restarted(findings)
    appended = replace(FOUND, producer=FOUND.producer._replace(last_sequence=21))
    assert confirmed(findings, found=appended) == Outcome(ExpectedOutcome.ABORT), "of other data it says nothing"


def test_that_a_transaction_has_begun_under_the_epoch_outlives_its_process() -> None:
    findings, unused = OwnFindings(), replaced(LED, view=UNUSED)
    assert confirmed(findings, unused) == Outcome(ExpectedOutcome.NONE)
    list(findings.keep(5))
    findings.repeated(replaced(LED, view=BEGUN))
    assert confirmed(restarted(findings), unused) == unknown(OutcomeDoubt.BEGUN_SINCE)


def test_a_doubt_that_a_later_read_can_end_is_not_kept() -> None:
    findings = OwnFindings()
    assert confirmed(findings, found=replace(FOUND, is_settled=False)) != Outcome(ExpectedOutcome.ABORT)
    assert confirmed(restarted(findings)) == Outcome(ExpectedOutcome.ABORT)
