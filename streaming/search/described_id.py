"""One transactional id: what its coordinator answers, and the records that the coordinators' log has of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.transaction import (
    DescribedTransaction,
    NotDescribed,
    TransactionDescription,
    UnknownTransactionalId,
)
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.coordinator_log import LogRecord, log_of, read_records

_TRIES = 3


class DescribedWithLog(NamedTuple):
    """A transactional id at its coordinator and in the log.

    Attributes:
        records: the records that the log still has, oldest first.
        problem: why the last record could not be read; None if it could.
        log: the partition of the log that has the id, by its hash; None if no broker shows the log.
    """

    described: DescribedTransaction
    records: Sequence[LogRecord]
    problem: str | None
    log: TopicPartition | None

    @property
    def last(self) -> LogRecord | None:
        """The last record."""
        return self.records[-1] if self.records else None


def described_with_log(cluster: Cluster, transactional_id: str) -> DescribedWithLog:
    """The id at its coordinator, and its records in the log.

    Raises:
        BrokerError: the coordinator did not answer, or does not know the id.
    """
    admin = ClusterAdmin(cluster)
    described = _known(admin.describe_transactions([transactional_id])[transactional_id])
    found: list[LogRecord] = []
    problem: str | None = None
    for _ in range(_TRIES):
        found, problem = read_records(cluster, transactional_id)
        if problem is None and not found:
            problem = f"{TRANSACTION_STATE_TOPIC} has no record of this id"
        again = admin.describe_transactions([transactional_id])[transactional_id]
        if again == described or isinstance(again, NotDescribed):
            break
        described = _known(again)  # its state changed while the log was read
    return DescribedWithLog(described, found, problem, log_of(cluster, transactional_id))


def _known(described: TransactionDescription) -> DescribedTransaction:
    match described:
        case NotDescribed(transactional_id, problem):
            raise BrokerError(f"transactional id {transactional_id}: {problem}")
        case UnknownTransactionalId(transactional_id, coordinator):
            raise BrokerError(
                f"transactional id {transactional_id}: its coordinator, broker {coordinator}, does not know it: it "
                "never existed, or it expired (transactional.id.expiration.ms)"
            )
    return described
