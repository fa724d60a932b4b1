"""Open data that hangs, for each reason, outcome and owner; and each verdict about a live transaction."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace as changed

from txnwatch.state.detection.view import begun
from txnwatch.state.evidence.confirmation import Answer, SpanConfirmation, TransactionConfirmation
from txnwatch.state.model.findings import SpanCandidate, TransactionCandidate
from txnwatch.state.model.incident import ExpectedOutcome as O
from txnwatch.state.model.ports import ActiveProducer, PartitionReading, SpanHistory
from txnwatch.state.model.transaction import CoordinatorView, DescribedTransaction, EpochUse, Span
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import CoordinatorEpoch, TopicPartition
from txnwatch.state.model.verdicts import Reason, Verdict

NOW_MS: Final = 1_700_000_000_000
ORDERS: Final = TopicPartition("orders", 3)
NAME: Final = "checkout-1"
PRODUCER: Final = 4711
EPOCH: Final = 2
_SPAN = Span("Zm9v", 99, EPOCH, EPOCH, 120, NOW_MS, NOW_MS, 7)
_EMPTY = CoordinatorView(NAME, 0, 9, S.EMPTY, EPOCH, 60_000, None, 0, 0, coordinator_epoch=0)
_ENDED = CoordinatorView(
    *(NAME, 0, 9, S.COMPLETE_ABORT, EPOCH, 60_000, 1, 0, 0, frozenset({ORDERS})),
    data_epoch=EPOCH,
    epoch_use=EpochUse.FIRST,
    coordinator_epoch=0,
)
_VIEWS: Final = {
    O.ABORT: _ENDED,
    O.COMMIT: changed(_ENDED, state=S.COMPLETE_COMMIT),
    O.NONE: begun(_EMPTY),
    O.UNKNOWN: None,
}
# By what the id of the producer has now: a fence comes first while it may begin a transaction under the same epoch.
OWNERS: Final = {
    "the id has the epoch": DescribedTransaction(NAME, 1, S.COMPLETE_ABORT, PRODUCER, EPOCH, 60_000),
    "the id has a higher epoch": DescribedTransaction(NAME, 1, S.COMPLETE_ABORT, PRODUCER, EPOCH + 1, 60_000),
    "no id is known": None,
}


def a_hang(reason: Reason, outcome: O, owner: DescribedTransaction | None) -> tuple[SpanCandidate, SpanConfirmation]:
    """A hang as a search finds it. What the log shows leads to the outcome."""
    view = _VIEWS[outcome]
    candidate = SpanCandidate(
        *(Verdict.HANGING, PRODUCER, ORDERS, _SPAN, view, 7, 8, NOW_MS, NOW_MS), log_epoch=0, is_log_read=True
    )
    row = ActiveProducer(PRODUCER, EPOCH, 20, 0, None, 99)
    reading = PartitionReading(
        *(ORDERS, None, "Zm9v", 1, 0, 130, 130), last_stable_offset=99, high_watermark=130, producers=(row,)
    )
    return candidate, SpanConfirmation(
        Answer.CONFIRMED,
        reason=reason,
        reading=reading,
        producer=row,
        description=owner,
        is_unchanged=True,
        is_settled=True,
        log_epoch=CoordinatorEpoch(0),
        history=SpanHistory(EPOCH, None, is_first=True),
    )


_LIVE: Final = {
    Verdict.STUCK_PREPARE: S.PREPARE_COMMIT,
    Verdict.LATE: S.ONGOING,
    Verdict.LONG_RUNNING: S.ONGOING,
}


def a_live_one(verdict: Verdict) -> tuple[TransactionCandidate, TransactionConfirmation]:
    """A live transaction with a verdict, as a search finds it."""
    state, start_ms = _LIVE[verdict], NOW_MS - 900_000
    view = CoordinatorView(
        *(NAME, 3, 9, state, EPOCH, 600_000, start_ms, start_ms, start_ms, frozenset({ORDERS})), coordinator_epoch=0
    )
    described = DescribedTransaction(NAME, 1, state, PRODUCER, EPOCH, 600_000, start_ms, frozenset({ORDERS}))
    candidate = TransactionCandidate(verdict, PRODUCER, view, 1_000, 8, NOW_MS, 900_000)
    return candidate, TransactionConfirmation(Answer.CONFIRMED, description=described)
