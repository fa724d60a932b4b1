"""Queries beyond the port TransactionAdmin: filtered listings, one broker's producers.

Each broker's error is returned beside the other brokers' results. If a broker is too old for a request, its error names
the Kafka release that is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kafka.protocol.admin import ListTransactionsRequest

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.ids import BrokerId, ProducerId, TopicPartition
from txnwatch.state.model.ports import ActiveProducer, ListedTransaction
from txnwatch.state.model.problem import Problem
from txnwatch.state.model.quantities import DurationMs
from txnwatch.streaming.admin import requests as messages
from txnwatch.streaming.admin.list_transactions import BrokerListings, list_everywhere
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.connection import Connection
from txnwatch.streaming.client.fan_out import ask_for_each

DURATION_SINCE, PATTERN_SINCE = 1, 2  # versions of ListTransactions


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of a listing; empty or None means no filter.

    Brokers before 3.8 do not know the duration filter, and brokers before 4.1 not the pattern: they list more.
    """

    states: tuple[str, ...] = ()
    producer_ids: tuple[ProducerId, ...] = ()
    longer_than_ms: DurationMs | None = None
    pattern: str | None = None


def list_filtered(cluster: Cluster, filters: Filters) -> BrokerListings:
    """Every broker's transactions; a broker that is too old for a filter lists more."""
    return list_everywhere(cluster, list_request(filters))


def list_request(filters: Filters) -> Callable[[Connection], Any]:
    """ListTransactions for one broker, without the filters that it is too old for."""

    def build(connection: Connection) -> Any:
        version = connection.require_version(ListTransactionsRequest)
        more: dict[str, Any] = {}
        if filters.longer_than_ms is not None and version >= DURATION_SINCE:
            more["duration_filter"] = filters.longer_than_ms
        if filters.pattern is not None and version >= PATTERN_SINCE:
            more["transactional_id_pattern"] = filters.pattern
        return ListTransactionsRequest(
            version=version, state_filters=list(filters.states), producer_id_filters=list(filters.producer_ids), **more
        )

    return build


def producers_at(cluster: Cluster, node: BrokerId, partition: TopicPartition) -> Sequence[ActiveProducer] | Problem:
    """One partition's producers as one broker, leader or follower, describes them; or the problem."""
    found = ask_for_each(cluster, {node: [partition]}, messages.describe_producers_request, messages.described)
    answer = found[partition]
    return Problem.from_error(answer) if isinstance(answer, BrokerError) else answer


def names_of(
    cluster: Cluster, producer_ids: Iterable[ProducerId]
) -> tuple[dict[ProducerId, ListedTransaction], dict[str, Problem]]:
    """The transactional id of each producer id that the brokers list; and what they did not list, with the reason."""
    found = list_filtered(cluster, Filters(producer_ids=tuple(producer_ids)))
    return {row.producer_id: row for row in found.rows}, found.problems
