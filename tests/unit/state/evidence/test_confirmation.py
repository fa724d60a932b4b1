"""The fresh read: what confirms a candidate, what refutes it, and what leaves it unknown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from support.facts import NAME, ORDERS, OTHER, PAYMENTS, PRODUCER, START_MS, TIMEOUT_MS, BucketRun, seen, transaction
from txnwatch.state.evidence.confirmation import (
    Answer,
    CoordinatorReading,
    assess_overdue,
    assess_span,
    assess_transaction,
    is_disowned,
)
from txnwatch.state.model.facts import TransactionSeen
from txnwatch.state.model.findings import SpanCandidate, TransactionCandidate
from txnwatch.state.model.ports import (
    ActiveProducer,
    PartitionReading,
)
from txnwatch.state.model.transaction import (
    DescribedTransaction,
    EpochUse,
    NotDescribed,
    TransactionDescription,
    UnknownTransactionalId,
)
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import ErrorCode, Problem
from txnwatch.state.model.verdicts import Reason, Verdict


def a_candidate(*records: object, epoch: int = 0) -> SpanCandidate:
    """Data of an epoch, with what the coordinators' log shows."""
    run = BucketRun()
    for record in records:
        run.batch(record)  # type: ignore[arg-type]
    run.batch(seen(0, 10, data=5, epoch=epoch))
    (candidate,) = run.batch()
    assert isinstance(candidate, SpanCandidate)
    return candidate


CANDIDATE = a_candidate()
OPEN = PartitionReading(
    ORDERS, None, "orders-id", 1, 3, 10, 10, 5, 10, 0, (ActiveProducer(PRODUCER, 0, 1, START_MS, None, 5),)
)
CLOSED = replace(OPEN, producers=(ActiveProducer(PRODUCER, 0, 1, START_MS, 0, None),))
ANOTHER = replace(OPEN, producers=(ActiveProducer(PRODUCER, 0, 1, START_MS, 0, 8),))
BROKEN = PartitionReading(ORDERS, Problem("NOT_LEADER_OR_FOLLOWER"))
NOBODY = CoordinatorReading()


def described(state: S, *partitions: object, producer_id: int = PRODUCER) -> CoordinatorReading:
    return CoordinatorReading(
        DescribedTransaction(NAME, 1, state, producer_id, 0, TIMEOUT_MS, START_MS, frozenset(partitions))  # type: ignore[arg-type]
    )


SPANS = {
    "open, unowned, still open": (OPEN, NOBODY, OPEN, Answer.CONFIRMED),
    "closed before": (CLOSED, NOBODY, CLOSED, Answer.REFUTED),
    "closed in between": (OPEN, NOBODY, CLOSED, Answer.REFUTED),
    "another span in between": (OPEN, NOBODY, ANOTHER, Answer.REFUTED),
    "held by its live transaction": (OPEN, described(S.ONGOING, ORDERS), OPEN, Answer.REFUTED),
    "its marker is outstanding": (OPEN, described(S.PREPARE_COMMIT, ORDERS), OPEN, Answer.REFUTED),
    "held by the id's next producer id": (
        OPEN,
        described(S.ONGOING, ORDERS, producer_id=OTHER),
        OPEN,
        Answer.CONFIRMED,
    ),
    "live elsewhere": (OPEN, described(S.ONGOING, PAYMENTS), OPEN, Answer.CONFIRMED),
    "complete": (OPEN, described(S.COMPLETE_COMMIT), OPEN, Answer.CONFIRMED),
    "partition not read before": (BROKEN, NOBODY, OPEN, Answer.UNKNOWN),
    "partition not read after": (OPEN, NOBODY, BROKEN, Answer.UNKNOWN),
    "leader changed in between": (OPEN, NOBODY, replace(OPEN, leader_epoch=4), Answer.UNKNOWN),
    "coordinator not read": (OPEN, CoordinatorReading(problem="NOT_COORDINATOR"), OPEN, Answer.UNKNOWN),
    "closed, whatever the coordinator": (OPEN, CoordinatorReading(problem="away"), CLOSED, Answer.REFUTED),
    "topic re-created": (replace(OPEN, topic_id="new"), NOBODY, replace(OPEN, topic_id="new"), Answer.REFUTED),
}


@pytest.mark.parametrize(("before", "coordinator", "after", "answer"), SPANS.values(), ids=SPANS.keys())
def test_spans(
    before: PartitionReading, coordinator: CoordinatorReading, after: PartitionReading, answer: Answer
) -> None:
    found = assess_span(CANDIDATE, before, coordinator, after)
    assert found.answer is answer
    assert bool(found.why) is (answer is not Answer.CONFIRMED), "an answer other than yes has a reason"


REASONS = {
    "nobody": (NOBODY, Reason.NO_TRANSACTIONAL_ID),
    "not started": (described(S.EMPTY), Reason.NOT_STARTED),
    "completed": (described(S.COMPLETE_ABORT), Reason.ALREADY_COMPLETED),
    "live elsewhere": (described(S.PREPARE_ABORT, PAYMENTS), Reason.NOT_A_PARTICIPANT),
    "moved on": (described(S.ONGOING, ORDERS, producer_id=OTHER), Reason.PRODUCER_ID_SUPERSEDED),
}


@pytest.mark.parametrize(("coordinator", "reason"), REASONS.values(), ids=REASONS.keys())
def test_the_fresh_read_names_the_reason(coordinator: CoordinatorReading, reason: Reason) -> None:
    assert assess_span(CANDIDATE, OPEN, coordinator, OPEN).reason is reason


FIRST = {"epoch_use": EpochUse.FIRST, "data_epoch": 0}
BEGUN = transaction(1, S.ONGOING, ORDERS, **FIRST)
ENDED = [BEGUN, transaction(3, S.COMPLETE_COMMIT, **FIRST)]
ONLY_ITS_END = [transaction(3, S.COMPLETE_COMMIT)]  # of which nothing is known once the id is initialised again
# What the log has before a fence, the epoch of the data, and the reason.
BY_THE_LOG: dict[str, tuple[list[TransactionSeen], int, Reason]] = {
    "never begun": ([transaction(1, S.EMPTY)], 0, Reason.NOT_STARTED),
    "the epoch of the transaction": (ENDED, 0, Reason.ALREADY_COMPLETED),
    "the epoch to which its end has raised it": (
        [BEGUN, transaction(3, S.COMPLETE_COMMIT, producer_epoch=1, **FIRST)],
        1,
        Reason.ALREADY_COMPLETED,
    ),
    "the same, and nobody knows whose the epoch was": (
        [transaction(3, S.COMPLETE_COMMIT, ORDERS, producer_epoch=1, epoch_use=EpochUse.SHARED, data_epoch=0)],
        1,
        Reason.ALREADY_COMPLETED,
    ),
    "only its end is left in the log": (ONLY_ITS_END, 0, Reason.ALREADY_COMPLETED),
    "the transaction did not have the partition": (
        [transaction(1, S.ONGOING, PAYMENTS, **FIRST), transaction(3, S.COMPLETE_COMMIT, **FIRST)],
        0,
        Reason.NOT_A_PARTICIPANT,
    ),
    "the epoch of an InitProducerId after it": (
        [*ENDED, transaction(4, S.EMPTY, producer_epoch=1)],
        1,
        Reason.NOT_STARTED,
    ),
}


@pytest.mark.parametrize(("records", "epoch", "reason"), BY_THE_LOG.values(), ids=BY_THE_LOG.keys())
def test_a_fence_does_not_change_the_reason(records: list[TransactionSeen], epoch: int, reason: Reason) -> None:
    """Whether the log shows it already, or only the coordinator."""
    fenced = transaction(9, S.EMPTY, producer_epoch=epoch + 1)
    before, after = a_candidate(*records, epoch=epoch), a_candidate(*records, fenced, epoch=epoch)
    now = described(records[-1].view.state)
    assert assess_span(before, OPEN, now, OPEN).reason is reason
    assert assess_span(before, OPEN, described(S.EMPTY), OPEN).reason is reason
    if records != ONLY_ITS_END:
        assert assess_span(after, OPEN, described(S.EMPTY), OPEN).reason is reason


def test_a_live_transaction_of_the_log_that_its_coordinator_does_not_have_is_no_reason() -> None:
    candidate = msgspec.structs.replace(CANDIDATE, view=BEGUN.view)
    assert assess_span(candidate, OPEN, described(S.EMPTY), OPEN).reason is Reason.NOT_STARTED


UNKNOWN_ID = UnknownTransactionalId(NAME, 1)
LATE = TransactionCandidate(Verdict.LATE, PRODUCER, transaction(1, S.ONGOING, ORDERS).view, 1, 1, START_MS, 75_001)
STUCK = msgspec.structs.replace(LATE, verdict=Verdict.STUCK_PREPARE, view=transaction(1, S.PREPARE_COMMIT, ORDERS).view)
STILL_ONGOING = DescribedTransaction(NAME, 1, S.ONGOING, PRODUCER, 0, TIMEOUT_MS, START_MS)
STILL_PREPARED = msgspec.structs.replace(STILL_ONGOING, state=S.PREPARE_COMMIT)

TRANSACTIONS = {
    "late and still ongoing": (LATE, STILL_ONGOING, Answer.CONFIRMED),
    "late, aborting now": (LATE, msgspec.structs.replace(STILL_ONGOING, state=S.PREPARE_ABORT), Answer.REFUTED),
    "late, the next transaction already": (
        LATE,
        msgspec.structs.replace(STILL_ONGOING, start_ms=START_MS + 1),
        Answer.REFUTED,
    ),
    "late, another producer id": (LATE, msgspec.structs.replace(STILL_ONGOING, producer_id=OTHER), Answer.REFUTED),
    "late, unknown to its coordinator": (LATE, UNKNOWN_ID, Answer.REFUTED),
    "late, not readable": (LATE, NotDescribed(NAME, Problem("NOT_COORDINATOR")), Answer.UNKNOWN),
    "late, fenced meanwhile and Ongoing still": (
        LATE,
        msgspec.structs.replace(STILL_ONGOING, producer_epoch=1),
        Answer.CONFIRMED,
    ),
    "stuck and still preparing": (STUCK, STILL_PREPARED, Answer.CONFIRMED),
    "stuck, another outcome": (STUCK, msgspec.structs.replace(STILL_PREPARED, state=S.PREPARE_ABORT), Answer.REFUTED),
    "stuck, another Prepare* of the same transaction": (
        STUCK,
        msgspec.structs.replace(STILL_PREPARED, producer_epoch=1),
        Answer.REFUTED,
    ),
    "stuck, complete now": (STUCK, msgspec.structs.replace(STILL_ONGOING, state=S.COMPLETE_COMMIT), Answer.REFUTED),
}


@pytest.mark.parametrize(("candidate", "fresh", "answer"), TRANSACTIONS.values(), ids=TRANSACTIONS.keys())
def test_transactions(candidate: TransactionCandidate, fresh: TransactionDescription, answer: Answer) -> None:
    assert assess_transaction(candidate, fresh).answer is answer


@pytest.mark.parametrize(
    ("changes", "is_settled"),
    [({}, True), ({"start_ms": START_MS + 1}, False), ({"state": S.COMPLETE_COMMIT}, False)],
    ids=["the same", "the next one, with the same epoch and end", "another end"],
)
def test_a_known_outcome_belongs_to_the_same_transaction(changes: dict[str, Any], *, is_settled: bool) -> None:
    candidate = a_candidate(transaction(1, S.COMPLETE_ABORT, ORDERS))
    now = DescribedTransaction(NAME, 1, S.COMPLETE_ABORT, PRODUCER, 0, TIMEOUT_MS, START_MS)
    found = assess_span(candidate, OPEN, CoordinatorReading(msgspec.structs.replace(now, **changes)), OPEN)
    assert found.is_settled is is_settled


@pytest.mark.parametrize(
    ("start_ms", "is_settled"),
    [(None, True), (START_MS - 1, True), (START_MS, False), (START_MS + 1, False)],
    ids=["none", "that of the transaction before", "of the same millisecond", "of a later transaction"],
)
def test_after_an_initproducerid_the_start_of_the_transaction_before_changes_nothing(
    start_ms: int | None, *, is_settled: bool
) -> None:
    """Up to Kafka 4.0.0 a coordinator describes that start until the next transaction begins."""
    candidate = a_candidate(transaction(1, S.EMPTY, start_ms=None))
    assert candidate.view is not None
    assert (candidate.view.start_ms, candidate.view.last_update_ms) == (None, START_MS)
    now = DescribedTransaction(NAME, 1, S.EMPTY, PRODUCER, 0, TIMEOUT_MS, start_ms)
    assert assess_span(candidate, OPEN, CoordinatorReading(now), OPEN).is_settled is is_settled


DISOWNED = {
    "no answer": (NotDescribed(NAME, Problem("NOT_COORDINATOR")), False),
    "the id is gone": (UnknownTransactionalId(NAME, 1), True),
    "idle": (described(S.COMPLETE_ABORT).description, True),
    "live, holds the partition": (described(S.ONGOING, ORDERS).description, False),
    "writes its marker": (described(S.PREPARE_COMMIT, ORDERS).description, False),
    "live, on another partition": (described(S.ONGOING, PAYMENTS).description, True),
    "live, of another producer": (described(S.ONGOING, ORDERS, producer_id=OTHER).description, True),
}


@pytest.mark.parametrize(("description", "expected"), DISOWNED.values(), ids=DISOWNED.keys())
def test_a_coordinator_disowns_a_span_only_by_an_answer(description: TransactionDescription, *, expected: bool) -> None:
    assert is_disowned(description, CANDIDATE) is expected


UNSUPPORTED = Problem("broker is too old", ErrorCode.UNSUPPORTED_VERSION)


def by_offset(stable: int | None, **changes: Any) -> PartitionReading:
    """The leader cannot describe its producers; CANDIDATE begins at 5."""
    return replace(OPEN, problem=UNSUPPORTED, producers=(), last_stable_offset=stable, **changes)


OVERDUE = {
    "open": (OPEN, Answer.CONFIRMED),
    "over": (CLOSED, Answer.REFUTED),
    "over, another one is open": (ANOTHER, Answer.REFUTED),
    "not read": (BROKEN, Answer.UNKNOWN),
    "the oldest open one": (by_offset(5), Answer.CONFIRMED),
    "above an older open one": (by_offset(4), Answer.UNKNOWN),
    "over by the last stable offset": (by_offset(6), Answer.REFUTED),
    "no last stable offset": (by_offset(None), Answer.UNKNOWN),
    "not below the high watermark": (by_offset(5, high_watermark=5), Answer.UNKNOWN),
    "another topic": (by_offset(5, topic_id="another"), Answer.REFUTED),
}


@pytest.mark.parametrize(("reading", "answer"), OVERDUE.values(), ids=OVERDUE.keys())
def test_a_span_that_is_open_for_too_long(reading: PartitionReading, answer: Answer) -> None:
    assert assess_overdue(CANDIDATE, reading).answer is answer


WHY_BY_OFFSET = {
    "the oldest open one is older": (4, 10, "an older transaction is open below it"),
    "nothing is open, the span begins at the high watermark": (5, 5, "it begins at or above the high watermark"),
    "nothing is open, the span begins above it": (4, 4, "it begins at or above the high watermark"),
    "the high watermark has risen between the listings": (5, 4, "it begins at or above the high watermark"),
}


@pytest.mark.parametrize(("stable", "high_watermark", "why"), WHY_BY_OFFSET.values(), ids=WHY_BY_OFFSET.keys())
def test_the_reason_why_a_last_stable_offset_proves_nothing(stable: int, high_watermark: int, why: str) -> None:
    found = assess_overdue(CANDIDATE, by_offset(stable, high_watermark=high_watermark))
    assert (found.answer, found.why) == (Answer.UNKNOWN, f"{ORDERS}: {why}, and {UNSUPPORTED}")


def test_a_span_confirmed_by_offset_has_what_its_log_shows() -> None:
    found = assess_overdue(CANDIDATE, by_offset(5))
    span = CANDIDATE.span
    assert found.producer == ActiveProducer(PRODUCER, span.epoch, None, span.last_timestamp_ms, None, 5)
    assert found.reading is not None
    assert found.reading.problem is None, "the offsets of this reading can be used"
