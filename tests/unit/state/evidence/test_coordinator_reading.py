"""The answers of all coordinators about one producer id: whose it is, or why that is not known."""

from __future__ import annotations

import msgspec
import pytest

from support.facts import NAME, ORDERS, PAYMENTS, PRODUCER, START_MS, TIMEOUT_MS, BucketRun, seen, transaction
from txnwatch.state.evidence.confirmation import CoordinatorReading, coordinator_reading
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.ports import ListedTransaction, TransactionListing
from txnwatch.state.model.transaction import (
    DescribedTransaction,
    NotDescribed,
    TransactionDescription,
    UnknownTransactionalId,
)
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import ErrorCode, Problem


def a_candidate(*records: object) -> SpanCandidate:
    run = BucketRun()
    run.batch(seen(0, 10, data=5), *records)  # type: ignore[arg-type]
    (candidate,) = run.batch()
    assert isinstance(candidate, SpanCandidate)
    return candidate


CANDIDATE = a_candidate()
NOBODY = CoordinatorReading()
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
        msgspec.structs.replace(CANDIDATE, is_log_read=False),
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
    "the same, and its coordinator lists an id that was idle when reading began": (
        CANDIDATE,
        {NAME: COMPLETE},
        TransactionListing(LISTED.transactions, AWAY.problems),
        CoordinatorReading(COMPLETE, unlisted=AWAY.problems[0]),
    ),
    "the same, and the log was never read": (
        msgspec.structs.replace(CANDIDATE, is_log_read=False),
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
