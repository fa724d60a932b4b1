"""`txnwatch describe`: one transactional id, from its coordinator and from the coordinator's log.

DescribeTransactions has neither the last update of the id (KIP-994 proposed it) nor the duration of a finished
transaction; the log has both. The last-update field of a Complete* record is the time at which the markers were
*begun*, so both come from the record's timestamp, which the broker sets at the append.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from txnwatch.cli.one_shot import add_connection_flags, add_output_flags, ask, kafka_text
from txnwatch.cli.output import CommandAnswer, NotChecked, Time
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.transaction import (
    DescribedTransaction,
    NotDescribed,
    TransactionDescription,
    UnknownTransactionalId,
)
from txnwatch.state.model.values import (
    TRANSACTION_STATE_TOPIC,
    BrokerId,
    DurationMs,
    Problem,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
)
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.coordinator_log import LogRecord, read_records
from txnwatch.streaming.source.lister import hidden_of

_TRIES = 3


@dataclass(frozen=True, slots=True)
class DescribedRow:
    """One transactional id. The duration is that of its open transaction, else of its last one."""

    coordinator_id: BrokerId
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch | None
    transaction_state: str
    transaction_timeout_ms: DurationMs
    current_transaction_start_time_ms: Time | None
    transaction_duration_ms: DurationMs | None
    topic_partitions: tuple[str, ...]
    last_update_time_ms: Time | None


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse's private type
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "describe",
        help="describe one transactional id, with its last update and its duration",
        description="Describes a transactional id, as its coordinator and the coordinators' log show it.",
    )
    add_connection_flags(parser)
    parser.add_argument("--transactional-id", type=kafka_text, required=True, metavar="ID", help="the id to describe")
    add_output_flags(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Describes the id; exit code 1 if its coordinator does not know it."""
    return ask(parsed, lambda cluster: _answer(cluster, parsed.transactional_id))


def _answer(cluster: Cluster, transactional_id: str) -> CommandAnswer:
    found = described_with_log(cluster, transactional_id)
    missing = hidden_of(cluster, [found.described])
    if found.problem is not None:
        missing["last update and duration of the last transaction"] = Problem(found.problem)
    return CommandAnswer(
        command="describe",
        cluster_id=cluster.known.cluster_id,
        row_type=DescribedRow,
        rows=[row_of(found.described, found.last, wall_clock_ms())],
        not_checked=tuple(NotChecked(what, str(why)) for what, why in missing.items()),
    )


class DescribedWithLog(NamedTuple):
    """A transactional id at its coordinator and in the log.

    Attributes:
        records: the records that the log still has, oldest first.
        problem: why the last record could not be read; None if it could.
    """

    described: DescribedTransaction
    records: Sequence[LogRecord]
    problem: str | None

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
    return DescribedWithLog(described, found, problem)


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


def row_of(described: DescribedTransaction, last: LogRecord | None, now_ms: TimestampMs) -> DescribedRow:
    """The row from the answer of the coordinator and the record of the log."""
    is_same = last is not None and last.value is not None and last.value.state is described.state
    updated_ms = last.timestamp_ms if last is not None and is_same else None
    start_ms, end_ms = described.start_ms, now_ms if described.is_live else updated_ms
    duration_ms = end_ms - start_ms if start_ms is not None and end_ms is not None else None
    return DescribedRow(
        coordinator_id=described.coordinator,
        transactional_id=described.transactional_id,
        producer_id=described.producer_id,
        producer_epoch=described.producer_epoch,
        transaction_state=str(described.state),
        transaction_timeout_ms=described.timeout_ms,
        current_transaction_start_time_ms=start_ms,
        transaction_duration_ms=duration_ms,
        topic_partitions=tuple(str(partition) for partition in sorted(described.partitions)),
        last_update_time_ms=updated_ms,
    )
