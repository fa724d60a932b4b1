"""What a fence of a transactional id ends, and which step is next. Pure: no I/O, no clock.

A fence is an InitProducerId for the id, as its application sends it when it starts: the id gets a higher producer
epoch, so whoever holds the epoch of before cannot write any more, and an open transaction is aborted. Then no
transaction can begin under the epoch of data that hangs, and the marker of an abort cannot end one
(`Refusal.EPOCH_MAY_BE_REUSED`).

Law: it fences only the epoch that the operator has seen. If the id has a newer one before InitProducerId is sent, its
application has started again, and nothing is sent. InitProducerId names the epoch that is fenced, so a coordinator
refuses it if the id has another one (KIP-360). For an open transaction it has no such check: TransactionCoordinator
aborts it whatever epoch is named. So the id is described again right before.

InitProducerId for an id that its coordinator does not know would create it. So this is refused, too.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Final, NamedTuple

from txnwatch.state.model.incident import Action, ActionResult, Decision, IncidentEvent, Initiator
from txnwatch.state.model.ports import PartitionReading
from txnwatch.state.model.transaction import (
    DescribedTransaction,
    NotDescribed,
    ProducerIdentity,
    TransactionDescription,
    TransactionState,
    UnknownTransactionalId,
    epoch_text,
)
from txnwatch.state.model.values import (
    TRANSACTION_STATE_TOPIC,
    BrokerId,
    DurationMs,
    ErrorCode,
    Problem,
    ProducerEpoch,
    ProducerId,
    SpanStart,
    TimestampMs,
    TopicPartition,
)
from txnwatch.state.model.verdicts import TWO_PHASE_TIMEOUT_MS
from txnwatch.state.text import quoted


class FenceStep(StrEnum):
    """What follows from a description of the id."""

    SEND = "send"  # InitProducerId
    WAIT = "wait"  # describe it again
    DONE = "done"  # the epoch of before is fenced, and no transaction of it is open
    REFUSE = "refuse"  # the id has changed: not what the operator has agreed to


class FenceNext(NamedTuple):
    """A step, and why."""

    step: FenceStep
    why: str


def identity_of(described: DescribedTransaction) -> ProducerIdentity | None:
    """The producer id and epoch of an id; None before its first InitProducerId is complete."""
    return (
        None if described.producer_epoch is None else ProducerIdentity(described.producer_id, described.producer_epoch)
    )


def may_begin_again(owner: DescribedTransaction, data: ProducerIdentity) -> bool:
    """Whether the next transaction of an id may begin under the producer id and epoch of some data."""
    return not is_fenced(owner, data.producer_id, data.producer_epoch)


def log_named(log: TopicPartition | None) -> str:
    """The partition of the coordinators' log that has an id, as text; `log` is None if no broker shows the log."""
    return str(log) if log is not None else f"its partition of {TRANSACTION_STATE_TOPIC}"


def last_door(log: TopicPartition | None, broker: BrokerId | None) -> str:
    """What ends a transaction if its coordinator, `broker`, does not end it; `log` is the partition of its log."""
    coordinator = f"broker {broker}" if broker is not None else "its coordinator"
    return (
        f"restart {coordinator} (not if it has the last in-sync replica of a partition, which txnwatch doctor names), "
        f"or move the leader of {log_named(log)} to another broker"
    )


def why_not(described: TransactionDescription) -> str | None:
    """Why an id cannot be fenced at all; None if it can be."""
    match described:
        case NotDescribed(_, problem):
            return str(problem)
        case UnknownTransactionalId(name, coordinator):
            return (
                f"broker {coordinator}, its coordinator, does not know {quoted(name)}: it never existed, or it "
                "expired. Nobody can write under it, so there is nothing to fence"
            )
    return None if identity_of(described) is not None else f"{quoted(described.transactional_id)} has no epoch yet"


def is_fenced(described: DescribedTransaction, producer_id: ProducerId | None, epoch: ProducerEpoch | None) -> bool:
    """Whether a client with this producer id and epoch can write nothing more; None stands for any."""
    if producer_id is not None and described.producer_id != producer_id:
        return True
    return epoch is not None and described.producer_epoch is not None and described.producer_epoch > epoch


def consequence(described: DescribedTransaction) -> str:
    """What a fence does to the id and to its application, in one line."""
    if described.state is TransactionState.ONGOING:
        ends = f"its open transaction is aborted, on {_partitions(described)}: consumers do not get its data"
    elif described.is_ending:
        ends = f"its transaction is in {described.state}: its end is decided, and the fence waits for it"
    else:
        ends = "it has no open transaction"
    return f"{ends}; the application that has {epoch_text(described.producer_epoch)} is fenced, and must start again"


def is_as_named(described: DescribedTransaction, epoch: ProducerEpoch | None) -> bool:
    """Whether an id has the epoch that was named; a lower one is another client than the one that was meant."""
    return epoch is None or described.producer_epoch == epoch


def next_step(before: DescribedTransaction, now: TransactionDescription, *, is_sent: bool) -> FenceNext:
    """The next step of a fence.

    Args:
        before: what the operator has seen and agreed to fence.
        now: the latest description of the id.
        is_sent: whether InitProducerId was sent.
    """
    if isinstance(now, NotDescribed):
        return FenceNext(FenceStep.WAIT, str(now.problem))
    if isinstance(now, UnknownTransactionalId):
        return FenceNext(FenceStep.REFUSE, "its coordinator does not know the id any more")
    if now.is_ending:
        return FenceNext(
            FenceStep.WAIT, f"its coordinator has not written all markers of its transaction ({now.state})"
        )
    is_open = now.state is TransactionState.ONGOING
    if not is_sent and is_open and (before.state, before.start_ms) != (now.state, now.start_ms):
        return FenceNext(FenceStep.REFUSE, "a transaction has begun since it was shown: its application is at work")
    return _by_identity(identity_of(before), identity_of(now), now.state, is_sent=is_sent)


def _by_identity(
    before: ProducerIdentity | None, has: ProducerIdentity | None, state: TransactionState, *, is_sent: bool
) -> FenceNext:
    if has == before:
        return FenceNext(FenceStep.WAIT, f"it still has {has} ({state})") if is_sent else FenceNext(FenceStep.SEND, "")
    if is_sent:
        return FenceNext(FenceStep.DONE, f"it has {has} now")
    why = f"expected {before}, found {has or 'no epoch'}: its application has started again"
    return FenceNext(FenceStep.REFUSE, why)


def is_over(reading: PartitionReading, data: SpanStart) -> bool:
    """Whether the open data for which an id is fenced has ended: then a fence would only hurt its application."""
    producer = reading.open_transaction(data.producer_id)
    return producer is None or producer.start_offset != data.start_offset


def is_about(incident: IncidentEvent, cluster_id: str, transactional_id: str, before: ProducerIdentity) -> bool:
    """Whether the fence of this identity of an id belongs to an open incident."""
    written_by = incident.producer_id, incident.producer_epoch
    is_of_id = (incident.cluster_id, incident.transactional_id) == (cluster_id, transactional_id)
    return is_of_id and incident.is_open and written_by == tuple(before)


def fencing(by: str, at_ms: TimestampMs, before: ProducerIdentity) -> Action:
    """The `action` of the events, with no result yet."""
    detail = f"InitProducerId for {before}"
    return Action(decision=Decision.FENCE, by=by, at_ms=at_ms, detail=detail, initiator=Initiator.OPERATOR)


def fenced(begun: Action, ended: FenceNext) -> Action:
    """The same with its result: VERIFIED only if a read afterwards has shown the effect."""
    results = {FenceStep.DONE: ActionResult.VERIFIED, FenceStep.REFUSE: ActionResult.FAILED}
    return replace(begun, result=results.get(ended.step, ActionResult.UNKNOWN), detail=ended.why)


def expected_in(now: DescribedTransaction) -> ProducerIdentity | None:
    """The identity that InitProducerId names; None while a transaction is open: then the coordinator compares none."""
    return None if now.state is TransactionState.ONGOING else identity_of(now)


# The timeout that InitProducerId names. A coordinator refuses one above its `transaction.max.timeout.ms`, and then it
# fences nothing: each two-phase id has such a timeout, and each id of before the maximum was lowered.

_MAXIMUM: Final = "transaction.max.timeout.ms"
_OF_CLIENTS_MS: Final = DurationMs(60_000)  # the default of Kafka's clients, which brokers have to accept
_DEFAULT_MAXIMUM_MS: Final = DurationMs(900_000)
SHOW_MAXIMUM: Final = f"grant DESCRIBE_CONFIGS on the cluster, so that {_MAXIMUM} is known"


def timeouts_to_name(described: DescribedTransaction, longest: DurationMs | Problem) -> tuple[DurationMs, ...]:
    """The timeouts to send, each next one only if the coordinator refuses the one before it as too long.

    `longest` is the maximum of the coordinator, or why it is not known.
    """
    if not isinstance(longest, Problem):
        return (min(described.timeout_ms, longest),)
    return (described.timeout_ms,) if described.timeout_ms <= _OF_CLIENTS_MS else (described.timeout_ms, _OF_CLIENTS_MS)


def timeout_means(described: DescribedTransaction, longest: DurationMs | Problem) -> str | None:
    """What the timeout that is sent means for the id and for its application; None if it is the id's own."""
    if isinstance(longest, Problem):
        limit, why = _DEFAULT_MAXIMUM_MS, f", and broker {described.coordinator} does not show {_MAXIMUM} ({longest})"
        sends = f"if it is refused as too long, InitProducerId names {_OF_CLIENTS_MS} ms"
    else:
        limit, why = longest, ""
        sends = f"InitProducerId names {longest} ms, the maximum of broker {described.coordinator} ({_MAXIMUM})"
    if described.timeout_ms <= limit:
        return None
    keeps = (
        "The id keeps its own: an open transaction is aborted as it is"
        if described.state is TransactionState.ONGOING
        else "The id has the smaller one until its application starts again and names its own"
    )
    return f"{_has(described)}{why}: {sends}. {keeps}.{_own_start(described)}"


def _has(described: DescribedTransaction) -> str:
    is_two_phase = described.timeout_ms == TWO_PHASE_TIMEOUT_MS
    return "A two-phase id has no timeout" if is_two_phase else f"The id has a timeout of {described.timeout_ms} ms"


def _own_start(described: DescribedTransaction) -> str:
    """A two-phase application names no timeout when it starts."""
    if described.timeout_ms == TWO_PHASE_TIMEOUT_MS:
        return ""
    return (
        " The next start of its application is refused too (INVALID_TRANSACTION_TIMEOUT) while it asks for more than "
        "the maximum: lower its transaction.timeout.ms, or raise the maximum"
    )


def is_too_long(problem: Problem | None) -> bool:
    """Whether a coordinator has refused the timeout."""
    return problem is not None and problem.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def _partitions(described: DescribedTransaction) -> str:
    count = len(described.partitions)
    return f"{count} partition{'' if count == 1 else 's'}"
