"""`txnwatch describe`: transactional ids, from their coordinators and from the coordinators' log.

DescribeTransactions has neither the last update of the id (KIP-994 proposed it) nor the duration of a finished
transaction; the log has both. The last-update field of a Complete* record is the time at which the markers were
*begun*, so both come from the record's timestamp, which the broker sets at the append.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from txnwatch.cli.one_shot import add_connection_flags, add_output_flags, ask, kafka_text
from txnwatch.cli.output import CommandAnswer, Name, NotChecked, Time
from txnwatch.state.model.errors import BrokerError, ConfigError
from txnwatch.state.model.transaction import DescribedTransaction
from txnwatch.state.model.values import (
    BrokerId,
    DurationMs,
    Problem,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
)
from txnwatch.state.text import cut
from txnwatch.streaming.admin.transactions import DescribedWithLog, described_with_log
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.coordinator_log import LogRecord
from txnwatch.streaming.log.hidden_participants import hidden_of


@dataclass(frozen=True, slots=True)
class DescribedRow:
    """One transactional id. The duration is that of its open transaction, else of its last one."""

    coordinator_id: BrokerId
    transactional_id: Name
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
        help="describe transactional ids, with their last updates and durations",
        description="Describes transactional ids, as their coordinators and the coordinators' log show them.",
    )
    add_connection_flags(parser)
    parser.add_argument("ids", nargs="*", type=kafka_text, metavar="ID", help="an id to describe; several are possible")
    parser.add_argument(
        "--transactional-id",
        action="append",
        type=kafka_text,
        default=[],
        metavar="ID",
        help="the same as ID, also for an id that begins with -; may be given several times",
    )
    add_output_flags(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Describes the ids; exit code 1 if a coordinator does not know one.

    Raises:
        ConfigError: no id is given.
    """
    ids = tuple(dict.fromkeys((*parsed.ids, *parsed.transactional_id)))
    if not ids:
        raise ConfigError("describe: expected at least one transactional id, found none")
    return ask(parsed, lambda cluster: _answer(cluster, ids))


def _answer(cluster: Cluster, ids: Sequence[str]) -> CommandAnswer:
    answers: list[DescribedWithLog] = []
    missing: dict[str, Problem | str] = {}
    for transactional_id in ids:
        try:
            described = described_with_log(cluster, transactional_id)
        except BrokerError as exc:
            known_prefix = f"transactional id {cut(transactional_id)}: "
            missing[f"transactional id {transactional_id}"] = str(exc).removeprefix(known_prefix)
            continue
        answers.append(described)
        if described.problem is not None:
            what = f"last update of {transactional_id} and duration of its last transaction"
            missing[what] = described.problem
    hidden = hidden_of(cluster, [answer.described for answer in answers])
    now_ms = wall_clock_ms()
    return CommandAnswer(
        command="describe",
        cluster_id=cluster.known.cluster_id,
        row_type=DescribedRow,
        rows=[row_of(answer.described, answer.last, now_ms) for answer in answers],
        not_checked=tuple(NotChecked(what, str(why)) for what, why in (missing | hidden).items()),
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
