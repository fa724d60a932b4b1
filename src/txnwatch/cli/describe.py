"""`txnwatch describe`: one transactional id, from its coordinator and from the coordinator's log.

DescribeTransactions has neither the last update of the id (KIP-994 proposed it) nor the duration of a finished
transaction; the log has both. The last-update field of a Complete* record is the time at which the markers were
*begun*, so both come from the record's timestamp, which the broker sets at the append.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from txnwatch.cli.one_shot import add_connection_flags, add_output_flags, ask, kafka_text
from txnwatch.cli.output import CommandAnswer, NotChecked, Time
from txnwatch.state.model.transaction import (
    DescribedTransaction,
)
from txnwatch.state.model.values import (
    BrokerId,
    DurationMs,
    Problem,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
)
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.coordinator_log import LogRecord
from txnwatch.streaming.search.described_id import described_with_log
from txnwatch.streaming.source.lister import hidden_of


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
