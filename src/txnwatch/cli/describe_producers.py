"""`txnwatch describe-producers`: the producers of a partition, their open transactions and transactional ids."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from txnwatch.cli.one_shot import add_connection_flags, add_output_flags, add_partition_flags, ask, id32
from txnwatch.cli.output import CommandAnswer, Name, NotChecked, Time
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.ports import ActiveProducer, ListedTransaction
from txnwatch.state.model.values import (
    BrokerId,
    CoordinatorEpoch,
    Offset,
    Problem,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from txnwatch.streaming.admin.transaction_requests import Filters, list_filtered, producers_at
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.hidden_topics import why_not_shown


@dataclass(frozen=True, slots=True)
class ProducerRow:
    """One producer of the partition. `transactional_id` is None if it is idempotent, or no coordinator knows the id."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    latest_coordinator_epoch: CoordinatorEpoch | None
    last_sequence: int | None
    last_timestamp_ms: Time | None
    current_transaction_start_offset: Offset | None
    transactional_id: Name | None
    transaction_state: str | None


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse's private type
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "describe-producers",
        help="describe the producers of a partition, with their transactional ids",
        description="Describes the producers of a partition, as its leader (or --broker-id) shows them.",
    )
    add_connection_flags(parser)
    add_partition_flags(parser, is_required=True)
    parser.add_argument("--broker-id", type=id32, metavar="ID", help="ask this replica instead of the leader")
    add_output_flags(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Describes the producers; exit code 1 if the partition's leader (or --broker-id) gives no answer."""
    partition = TopicPartition(parsed.topic, parsed.partition)
    return ask(parsed, lambda cluster: _answer(cluster, partition, parsed.broker_id))


def _answer(cluster: Cluster, partition: TopicPartition, broker: BrokerId | None) -> CommandAnswer:
    info = cluster.known.info(partition)
    if info is None:
        raise BrokerError(f"{partition}: {why_not_shown(cluster, partition.topic)}")
    node = info.leader if broker is None else broker
    if node is None:
        raise BrokerError(f"{partition}: no leader; use --broker-id to ask a replica")
    producers = producers_at(cluster, node, partition)
    if isinstance(producers, Problem):
        raise BrokerError(f"{partition} at broker {node}: {producers}")
    names, problems = _names_of(cluster, [row.producer_id for row in producers]) if producers else ({}, {})
    return CommandAnswer(
        command="describe-producers",
        cluster_id=cluster.known.cluster_id,
        row_type=ProducerRow,
        rows=_rows(producers, names),
        not_checked=tuple(NotChecked(f"transactional ids of {what}", str(why)) for what, why in problems.items()),
    )


def _names_of(
    cluster: Cluster, producer_ids: Iterable[ProducerId]
) -> tuple[dict[ProducerId, ListedTransaction], dict[str, Problem]]:
    """The transactional id of each producer id that the brokers list; and what they did not list, with the reason."""
    listing = list_filtered(cluster, Filters(producer_ids=tuple(producer_ids)))
    return {row.producer_id: row for row in listing.rows}, listing.problems


def _rows(producers: Sequence[ActiveProducer], names: dict[ProducerId, ListedTransaction]) -> list[ProducerRow]:
    rows: list[ProducerRow] = []
    for row in sorted(producers, key=lambda row: row.producer_id):
        owner = names.get(row.producer_id)
        rows.append(
            ProducerRow(
                producer_id=row.producer_id,
                producer_epoch=row.producer_epoch,
                latest_coordinator_epoch=row.coordinator_epoch,
                last_sequence=row.last_sequence,
                last_timestamp_ms=row.last_timestamp_ms,
                current_transaction_start_offset=row.txn_start_offset,
                transactional_id=owner.transactional_id if owner is not None else None,
                transaction_state=str(owner.state) if owner is not None else None,
            )
        )
    return rows
