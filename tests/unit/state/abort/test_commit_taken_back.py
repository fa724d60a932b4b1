"""A commit is completed by hand only if it is the last decision: another one may follow it if its append has failed.

The bytes of the coordinators' log are read as a watch and a command read them, in one range and in two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from support.batches import a_batch, a_record
from support.facts import NAME, ORDERS, PRODUCER
from support.transaction_log import a_key, a_value
from txnwatch.state.abort.rules import AbortPolicy, AbortSpec, Case, Refused, Usage, decide_abort
from txnwatch.state.detection.view import after_record
from txnwatch.state.evidence.confirmation import Answer, SpanConfirmation
from txnwatch.state.evidence.proven_hang import proven
from txnwatch.state.model.facts import CompletionTimes, TransactionSeen
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.incident import OutcomeDoubt, Refusal
from txnwatch.state.model.ports import ActiveProducer, SpanHistory
from txnwatch.state.model.transaction import CoordinatorView, DescribedTransaction, ProducerState, Span
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import log_numbered
from txnwatch.state.model.verdicts import Verdict
from txnwatch.streaming.log.transaction_fold import TransactionFold
from txnwatch.streaming.wire.internal_topics import TransactionLogValue

START_MS, OF_PARTITION = 1_000, ((ORDERS.topic, (ORDERS.partition,)),)
BY_HAND = AbortPolicy(after_ms=0, budget_per_hour=None, breaker_incidents=None, commit=True)
Log = list[tuple[S, int]]  # state and producer epoch of each record; the transaction begins with epoch 0
BEGUN: Log = [(S.EMPTY, 0), (S.ONGOING, 0)]
TAKEN_BACK: dict[str, Log] = {
    "its client aborts": [(S.PREPARE_COMMIT, 0), (S.PREPARE_ABORT, 0)],
    "its coordinator aborts": [(S.PREPARE_COMMIT, 0), (S.PREPARE_ABORT, 1)],
    "a client that raises the epoch aborts": [(S.PREPARE_COMMIT, 1), (S.PREPARE_ABORT, 1)],
    "it goes on, and its coordinator aborts": [(S.PREPARE_COMMIT, 0), (S.ONGOING, 0), (S.PREPARE_ABORT, 1)],
    "both appends of the commit fail": [(S.PREPARE_COMMIT, 0), (S.PREPARE_COMMIT, 0), (S.PREPARE_ABORT, 1)],
}
COMMITTED: dict[str, Log] = {
    "at once": [(S.PREPARE_COMMIT, 0)],
    "after an abort that was taken back": [(S.PREPARE_ABORT, 1), (S.PREPARE_COMMIT, 0)],
}


def entry(offset: int, state: S, epoch: int) -> bytes:
    held = OF_PARTITION if state.is_live else None if state is S.EMPTY else ()
    start_ms = None if state is S.EMPTY else START_MS
    value = a_value(TransactionLogValue(1, PRODUCER, epoch, 60_000, state, held, START_MS, start_ms, PRODUCER))
    record = a_record(key=a_key(NAME), value=value)
    return a_batch(offset, records=[record], producer_id=-1, transactional=False)


def view_after(log: Log, cut: int) -> CoordinatorView:
    """The view after two readings of a log."""
    known = ProducerState(PRODUCER)
    for number, (begin, end) in enumerate(((0, cut), (cut, len(log))), 1):
        fold = TransactionFold(log_numbered(0), begin, end)
        fold.feed(b"".join(entry(at, *log[at]) for at in range(begin, end)))
        for fact in fold.facts():
            if isinstance(fact, CompletionTimes):
                continue
            assert isinstance(fact, TransactionSeen)
            known = after_record(known, fact.view, number, fact.decided, is_consecutive=True).producer
    assert known.view is not None
    return known.view


def case(log: Log, cut: int) -> Case:
    """The abort by hand with `--result commit` of data of the transaction, whose marker is missing."""
    view = view_after(log, cut)
    span = Span("orders-id", 50, 0, 0, 55, START_MS, START_MS, 1)
    candidate = SpanCandidate(
        Verdict.HANGING,
        PRODUCER,
        ORDERS,
        span,
        view,
        first_barrier=7,
        second_barrier=8,
        data_listed_ms=START_MS,
        coordinator_listed_ms=START_MS,
        log_epoch=view.coordinator_epoch,
    )
    found = SpanConfirmation(
        Answer.CONFIRMED,
        producer=ActiveProducer(PRODUCER, 0, 20, START_MS, None, 50),
        is_unchanged=True,
        is_settled=True,
        log_epoch=view.coordinator_epoch,
        history=SpanHistory(0, None, is_first=True),
    )
    description = DescribedTransaction(NAME, 1, S.EMPTY, PRODUCER, 5, 60_000)  # the epoch of the data is free
    evidence = proven(candidate, found, None, None, START_MS)
    return Case(evidence, replace(found, description=description), BY_HAND, Usage(), START_MS)


def decisions(decided: Log, complete: S) -> Iterator[AbortSpec | Refused]:
    """What is decided about a log that ends with Complete*, however its reading is divided."""
    log = [*BEGUN, *decided, (complete, decided[-1][1])]
    for cut in range(1, len(log)):
        yield decide_abort(case(log, cut))


@pytest.mark.parametrize("decided", COMMITTED.values(), ids=COMMITTED.keys())
def test_a_commit_that_is_the_last_decision_is_completed(decided: Log) -> None:
    for decision in decisions(decided, S.COMPLETE_COMMIT):
        assert isinstance(decision, AbortSpec)
        assert decision.marker.commit


@pytest.mark.parametrize("decided", TAKEN_BACK.values(), ids=TAKEN_BACK.keys())
def test_a_commit_that_was_taken_back_is_not_completed(decided: Log) -> None:
    for decision in decisions(decided, S.COMPLETE_ABORT):
        assert isinstance(decision, Refused)
        assert decision.refusal in {Refusal.COMMIT_NOT_PROVEN, Refusal.OUTCOME_UNKNOWN}


@pytest.mark.parametrize("decided", [*COMMITTED.values(), *TAKEN_BACK.values()])
def test_while_another_decision_may_follow_nothing_is_completed(decided: Log) -> None:
    log = BEGUN + decided
    for cut in range(1, len(log)):
        asked = case(log, cut)
        assert asked.proven.doubt is not None
        assert asked.proven.doubt.kind is OutcomeDoubt.TRANSACTION_LIVE
        refused = decide_abort(asked)
        assert isinstance(refused, Refused)
        assert refused.refusal is Refusal.OUTCOME_UNKNOWN
