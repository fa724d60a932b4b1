"""Questions that the port TransactionAdmin does not have: filtered listings, one broker's producers, one id in full.

Each broker's error is kept beside the others' answers. What a broker is too old for is said with the release that
brought it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka.protocol.admin import ListTransactionsRequest

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.ports import ActiveProducer, ListedTransaction, TransactionDescription
from txnwatch.streaming.admin import requests as messages
from txnwatch.streaming.admin.list_transactions import Listing, list_everywhere
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.connection import Connection

DURATION_SINCE, PATTERN_SINCE = 1, 2  # versions of ListTransactions
_ANY_DURATION = -1


@dataclass(frozen=True, slots=True)
class Filters:
    """What a listing is narrowed to; empty for no filter. `longer_than_ms` below 0 is none.

    Brokers before 3.8 do not know the duration, brokers before 4.1 not the pattern: what they answer with is more.
    """

    states: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    longer_than_ms: int = _ANY_DURATION
    pattern: str | None = None


def list_filtered(cluster: Cluster, filters: Filters) -> Listing:
    """Every broker's transactions; brokers that are too old for a filter list more."""
    return list_everywhere(cluster, list_request(filters))


def list_request(filters: Filters) -> Callable[[Connection], Any]:
    """One broker's ListTransactions; what it is too old for is left out."""

    def build(connection: Connection) -> Any:
        version = connection.require_version(ListTransactionsRequest)
        more: dict[str, Any] = {}
        if filters.longer_than_ms >= 0 and version >= DURATION_SINCE:
            more["duration_filter"] = filters.longer_than_ms
        if filters.pattern is not None and version >= PATTERN_SINCE:
            more["transactional_id_pattern"] = filters.pattern
        return ListTransactionsRequest(
            version=version, state_filters=list(filters.states), producer_id_filters=list(filters.producer_ids), **more
        )

    return build


def producers_at(cluster: Cluster, node: int, partition: TopicPartition) -> Sequence[ActiveProducer] | str:
    """One partition's producers as one broker has them, leader or follower, or what went wrong."""
    request = messages.describe_producers_request([partition])
    (answer,) = cluster.ask({node: request}, cluster.timeout_s).values()
    if isinstance(answer, BrokerError):
        return str(answer)
    return messages.described(answer).get(partition, "the answer did not have it")


def names_of(cluster: Cluster, producer_ids: Iterable[int]) -> tuple[dict[int, ListedTransaction], dict[str, str]]:
    """The transactional id of each producer id, as far as the brokers tell; and what was not listed, with the why."""
    found = list_filtered(cluster, Filters(producer_ids=tuple(producer_ids)))
    return {row.producer_id: row for row in found.rows}, found.problems


def describe_at(
    cluster: Cluster, ids: Mapping[int, list[str]]
) -> tuple[dict[str, TransactionDescription], dict[int, str]]:
    """Ids described by the brokers that listed them, one request a broker; and why a broker did not answer."""
    requests = {node: messages.describe_transactions_request(names) for node, names in ids.items()}
    described: dict[str, TransactionDescription] = {}
    problems: dict[int, str] = {}
    for node, answer in cluster.ask(requests, cluster.timeout_s).items():
        if isinstance(answer, BrokerError):
            problems[node] = str(answer)
        else:
            described.update(messages.descriptions(answer, node))
    return described, problems
