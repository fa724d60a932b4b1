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
    coordinator_reading,
    is_disowned,
)
from txnwatch.state.model.findings import SpanCandidate, TransactionCandidate
from txnwatch.state.model.ports import (
    ActiveProducer,
    ListedTransaction,
    PartitionReading,
    TransactionListing,
)
from txnwatch.state.model.transaction import (
    DescribedTransaction,
    NotDescribed,
    TransactionDescription,
    UnknownTransactionalId,
)
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import ErrorCode, Problem
from txnwatch.state.model.verdicts import Reason, Verdict


def a_candidate(*records: object) -> SpanCandidate:
    run = BucketRun()
    run.batch(seen(0, 10, data=5), *records)  # type: ignore[arg-type]
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


def test_a_better_reason_from_the_log_stays() -> None:
    candidate = a_candidate(transaction(1, S.COMPLETE_COMMIT, PAYMENTS))
    found = assess_span(candidate, OPEN, described(S.COMPLETE_COMMIT), OPEN)
    assert found.reason is Reason.NOT_A_PARTICIPANT, "its last transaction held other partitions"


WHOLE = TransactionListing(())
SHORT = TransactionListing((), (Problem("broker 2 did not answer"),))
DENIED = TransactionListing((), (Problem("no DESCRIBE", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),))
AWAY = TransactionListing((), (Problem("__transaction_state-3: has no leader"),))
LISTED = TransactionListing((ListedTransaction(NAME, PRODUCER, S.EMPTY, 1),))
TWICE = TransactionListing(tuple(ListedTransaction(NAME, PRODUCER, S.EMPTY, broker) for broker in (1, 2)))
SILENT = Problem("coordinator 2: timed out")
UNHEARD = TransactionListing((), (SILENT,), (SILENT,))
KNOWN = a_candidate(transaction(1, S.COMPLETE_COMMIT, ORDERS))
COMPLETE = DescribedTransaction(NAME, 1, S.COMPLETE_COMMIT, PRODUCER, 0, TIMEOUT_MS)
UNKNOWN_ID = UnknownTransactionalId(NAME, 1)
CODE = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
HIDDEN = NotDescribed(NAME, Problem(CODE.name, CODE))
SECOND = "restored-1"
BOTH = TransactionListing(
    (ListedTransaction(NAME, PRODUCER, S.COMPLETE_COMMIT, 1), ListedTransaction(SECOND, PRODUCER, S.ONGOING, 2))
)
ONLY_SECOND = TransactionListing(BOTH.transactions[1:])
SECOND_HOLDS = DescribedTransaction(SECOND, 2, S.ONGOING, PRODUCER, 0, TIMEOUT_MS, START_MS, frozenset({ORDERS}))
SECOND_IS_ELSEWHERE = msgspec.structs.replace(SECOND_HOLDS, partitions=frozenset({PAYMENTS}))
SHARED = a_candidate(transaction(1, S.COMPLETE_COMMIT, ORDERS, also_used_by=SECOND))
TWO_IDS = CoordinatorReading(
    problem=Problem(f"transactional ids {NAME!r}, {SECOND!r} have the same producer id {PRODUCER}")
)

COORDINATORS = {
    "two ids have the producer id, the second one holds the span": (
        CANDIDATE,
        {NAME: COMPLETE, SECOND: SECOND_HOLDS},
        BOTH,
        CoordinatorReading(SECOND_HOLDS),
    ),
    "two ids, the other one cannot be described, and one holds the span": (
        KNOWN,
        {NAME: HIDDEN, SECOND: SECOND_HOLDS},
        ONLY_SECOND,
        CoordinatorReading(SECOND_HOLDS),
    ),
    "two ids, none holds the span": (CANDIDATE, {NAME: COMPLETE, SECOND: SECOND_IS_ELSEWHERE}, BOTH, TWO_IDS),
    "the log names one id, another one is listed and holds the span": (
        KNOWN,
        {NAME: COMPLETE, SECOND: SECOND_HOLDS},
        ONLY_SECOND,
        CoordinatorReading(SECOND_HOLDS),
    ),
    "the log names one id, another one is listed": (
        KNOWN,
        {NAME: UNKNOWN_ID, SECOND: SECOND_IS_ELSEWHERE},
        ONLY_SECOND,
        TWO_IDS,
    ),
    "the log names two ids, and none is known any more": (
        SHARED,
        {NAME: UNKNOWN_ID, SECOND: UnknownTransactionalId(SECOND, 2)},
        WHOLE,
        TWO_IDS,
    ),
    "two ids, none holds the span, one cannot be described": (
        KNOWN,
        {NAME: HIDDEN, SECOND: SECOND_IS_ELSEWHERE},
        ONLY_SECOND,
        CoordinatorReading(problem=Problem(f"transactional id {NAME!r}: {CODE.name}", CODE)),
    ),
    "two ids, the one that holds the span is described by an unheard broker's rival": (
        CANDIDATE,
        {NAME: COMPLETE, SECOND: SECOND_HOLDS},
        TransactionListing(BOTH.transactions, (SILENT,), (SILENT,)),
        CoordinatorReading(problem=SILENT),
    ),
    "no id, every broker answered": (CANDIDATE, {}, WHOLE, NOBODY),
    "no id, but not every broker answered": (CANDIDATE, {}, SHORT, CoordinatorReading(problem=SHORT.problems[0])),
    "listed and described": (CANDIDATE, {NAME: COMPLETE}, LISTED, CoordinatorReading(COMPLETE)),
    "listed and described, but a second id may be in the missing part of the listing": (
        CANDIDATE,
        {NAME: COMPLETE},
        TransactionListing(LISTED.transactions, SHORT.problems),
        CoordinatorReading(problem=SHORT.problems[0]),
    ),
    "known from the log and described, some ids are hidden": (
        KNOWN,
        {NAME: COMPLETE},
        DENIED,
        CoordinatorReading(COMPLETE, unlisted=Problem("no DESCRIBE")),
    ),
    "the same, but the log that was read may not name a second id": (
        msgspec.structs.replace(KNOWN, is_log_read=False),
        {NAME: COMPLETE},
        DENIED,
        CoordinatorReading(problem=Problem("no DESCRIBE")),
    ),
    "known from the log and described, another part of the log was read and has no leader now": (
        KNOWN,
        {NAME: COMPLETE},
        AWAY,
        CoordinatorReading(COMPLETE, unlisted=AWAY.problems[0]),
    ),
    "the same, but that part was never read: a second id may stand there": (
        msgspec.structs.replace(KNOWN, is_log_read=False),
        {NAME: COMPLETE},
        AWAY,
        CoordinatorReading(problem=AWAY.problems[0]),
    ),
    "the same, and the log names nobody: the id may have begun there a moment before": (
        CANDIDATE,
        {},
        AWAY,
        CoordinatorReading(problem=AWAY.problems[0]),
    ),
    "the same, and an id is listed that the log does not name: the log proves nothing about this producer id": (
        CANDIDATE,
        {NAME: COMPLETE},
        TransactionListing(LISTED.transactions, AWAY.problems),
        CoordinatorReading(problem=AWAY.problems[0]),
    ),
    "the same, and the log names two ids": (
        SHARED,
        {NAME: COMPLETE, SECOND: UnknownTransactionalId(SECOND, 2)},
        AWAY,
        TWO_IDS,
    ),
    "the same, and some ids are hidden": (
        KNOWN,
        {NAME: COMPLETE},
        TransactionListing((), (*DENIED.problems, *AWAY.problems)),
        CoordinatorReading(COMPLETE, unlisted=Problem("no DESCRIBE; __transaction_state-3: has no leader")),
    ),
    "the same, and its own part is the one without a leader": (
        KNOWN,
        {NAME: NotDescribed(NAME, Problem("COORDINATOR_NOT_AVAILABLE"))},
        AWAY,
        CoordinatorReading(problem=Problem(f"transactional id {NAME!r}: COORDINATOR_NOT_AVAILABLE")),
    ),
    "the log that was read may not name a second id, but the listing is whole": (
        msgspec.structs.replace(KNOWN, is_log_read=False),
        {NAME: COMPLETE},
        LISTED,
        CoordinatorReading(COMPLETE),
    ),
    "two brokers answer as its coordinators": (
        KNOWN,
        {NAME: COMPLETE},
        TWICE,
        CoordinatorReading(problem=Problem(f"brokers 1, 2 all answer as coordinators of {NAME}")),
    ),
    "a broker did not answer, it may be the coordinator now": (
        KNOWN,
        {NAME: COMPLETE},
        UNHEARD,
        CoordinatorReading(problem=UNHEARD.problems[0]),
    ),
    "known from the log, gone at its coordinator": (KNOWN, {NAME: UNKNOWN_ID}, WHOLE, NOBODY),
    "known from the log, gone at its coordinator, another part of the log has no leader": (
        KNOWN,
        {NAME: UNKNOWN_ID},
        AWAY,
        CoordinatorReading(unlisted=AWAY.problems[0]),
    ),
    "known from the log, gone, but not every broker answered": (
        KNOWN,
        {NAME: UNKNOWN_ID},
        UNHEARD,
        CoordinatorReading(problem=UNHEARD.problems[0]),
    ),
    "gone at one broker, and another one lists it": (
        KNOWN,
        {NAME: UNKNOWN_ID},
        TransactionListing((ListedTransaction(NAME, PRODUCER, S.ONGOING, 2),)),
        CoordinatorReading(problem=Problem(f"brokers 1, 2 all answer as coordinators of {NAME}")),
    ),
    "hidden by a missing right": (
        KNOWN,
        {NAME: HIDDEN},
        WHOLE,
        CoordinatorReading(problem=Problem(f"transactional id {NAME!r}: {CODE.name}", CODE)),
    ),
    "listed, not described": (
        CANDIDATE,
        {},
        LISTED,
        CoordinatorReading(problem=Problem(f"transactional id {NAME!r}: it was not described")),
    ),
}


@pytest.mark.parametrize(
    ("candidate", "descriptions", "listing", "expected"), COORDINATORS.values(), ids=COORDINATORS.keys()
)
def test_the_answers_of_all_coordinators_together(
    candidate: SpanCandidate,
    descriptions: dict[str, TransactionDescription],
    listing: TransactionListing,
    expected: CoordinatorReading,
) -> None:
    assert coordinator_reading(candidate, descriptions, listing) == expected


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
    "stuck, an abort of nothing with the same start": (
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
