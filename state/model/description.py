"""The answer to DescribeTransactions about one transactional id: three cases, each with the fields that it has."""

from __future__ import annotations

from dataclasses import dataclass

from txnwatch.state.model.ids import BrokerId, ProducerEpoch, ProducerId, TopicPartition
from txnwatch.state.model.problem import Problem
from txnwatch.state.model.quantities import DurationMs, TimestampMs
from txnwatch.state.model.record import ModelValue
from txnwatch.state.model.transaction import CoordinatorView, TransactionState


class DescribedTransaction(ModelValue, frozen=True, tag="described"):
    """A transactional id as its coordinator describes it.

    Attributes:
        producer_epoch: None before the first InitProducerId of the id is complete; a live transaction has one.
        start_ms: when the transaction began, by the coordinator's clock; None if none has begun since InitProducerId.
        partitions: the participants; in Prepare*, those whose marker is still missing.
        coordinator: the broker that answered.
    """

    transactional_id: str
    coordinator: BrokerId
    state: TransactionState
    producer_id: ProducerId
    producer_epoch: ProducerEpoch | None
    timeout_ms: DurationMs
    start_ms: TimestampMs | None = None
    partitions: frozenset[TopicPartition] = frozenset()

    @property
    def is_live(self) -> bool:
        """Whether the coordinator still has to write markers; this is also true while it fences a transaction."""
        return self.state.is_live or self.state is TransactionState.PREPARE_EPOCH_FENCE


@dataclass(frozen=True, slots=True)
class UnknownTransactionalId:
    """A transactional id that its coordinator does not know: it never existed, or it expired."""

    transactional_id: str
    coordinator: BrokerId


@dataclass(frozen=True, slots=True)
class NotDescribed:
    """A transactional id that could not be described, and why."""

    transactional_id: str
    problem: Problem


TransactionDescription = DescribedTransaction | UnknownTransactionalId | NotDescribed
# What the rules about the age of a transaction take: a record of the log, or the answer of the coordinator.
TransactionView = CoordinatorView | DescribedTransaction


def epoch_text(epoch: ProducerEpoch | None) -> str:
    """The producer epoch of an id, for people."""
    return "no epoch yet" if epoch is None else f"epoch {epoch}"


def is_live(description: TransactionDescription | None) -> bool:
    """Whether a coordinator is known to have a live transaction of the id."""
    return isinstance(description, DescribedTransaction) and description.is_live
