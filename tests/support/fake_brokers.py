"""Two brokers as far as coordinators go: who leads which part of their log, and what each answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.ports import UNKNOWN_PARTITION, TransactionListing
from txnwatch.state.model.transaction import TransactionDescription
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC as LOG
from txnwatch.state.model.values import Problem, coordinator_partition
from txnwatch.streaming.admin.transaction_requests import (
    BrokerListings,
    Filters,
    list_filtered,
    one_id_for_each_partition,
)
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.metadata import Metadata, PartitionInfo, TopicInfo

NOT_FOUND, NOT_COORDINATOR, LOADING, DENIED = 105, 16, 14, 53
NAMES = one_id_for_each_partition(2)  # an id of each partition of the log
LEADERS = (PartitionInfo(1, 0), PartitionInfo(2, 0))


class Speaker:
    """A connection's version, and nothing else."""

    endpoint = "one"

    def require_version(self, *_: object, **limits: int) -> int:
        return limits.get("highest", 0)


@dataclass
class FakeBrokers:
    """As much of a Cluster as a listing takes: two brokers, each leading one partition of the coordinators' log.

    Attributes:
        leaders: of the log's partitions; None for a log that is not shown.
        by_name: the error when the log is asked for by its name.
        listing, describing: a broker's error code, or why it does not answer.
        states: of the one id that each broker lists.
        on_list, on_describe: happens while the brokers list, or describe.
        found: the answer for an id's coordinator, where that is not the broker that leads its partition.
    """

    leaders: list[PartitionInfo] | None = field(default_factory=lambda: list(LEADERS))
    by_name: Problem | None = UNKNOWN_PARTITION
    listing: dict[int, int | str] = field(default_factory=dict)
    describing: dict[int, int | str] = field(default_factory=dict)
    states: dict[int, str] = field(default_factory=lambda: {1: "Ongoing", 2: "Ongoing"})
    on_list: Callable[[], None] = lambda: None
    on_describe: Callable[[], None] = lambda: None
    found: dict[str, int] = field(default_factory=dict)
    timeout_s: float = 1.0

    @property
    def known(self) -> Metadata:
        topics = {}
        if self.leaders is not None:
            topics[LOG] = TopicInfo(LOG, "id", dict(enumerate(self.leaders)))
        return Metadata("cluster", {1: "one", 2: "two"}, topics)  # type: ignore[dict-item]

    def refresh(self) -> Metadata:
        return self.known

    def any_connection(self) -> Any:
        return Speaker()

    def named(self, names: list[str]) -> dict[str, TopicInfo]:
        return {name: TopicInfo(name, "", {}, self.by_name) for name in names}

    def ask(self, requests: dict[int, Any], _: float) -> dict[int, Any]:
        return {node: self._answer(node, build(Speaker())) for node, build in requests.items()}

    def _answer(self, node: int, request: Any) -> Any:
        is_listing = "ListTransactions" in type(request).__name__
        error = (self.listing if is_listing else self.describing).get(node, 0)
        if isinstance(error, str):
            return BrokerError(error)
        if not is_listing:
            self.on_describe()
            rows = [
                SimpleNamespace(transactional_id=name, error_code=error or NOT_FOUND)
                for name in request.transactional_ids
            ]
            return SimpleNamespace(transaction_states=rows)
        self.on_list()
        name, wanted = NAMES[node - 1], request.producer_id_filters or [node]
        row = SimpleNamespace(transactional_id=name, producer_id=node, transaction_state=self.states.get(node))
        rows = [row] if not error and node in self.states and node in wanted else []
        return SimpleNamespace(error_code=error, unknown_state_filters=[], transaction_states=rows)

    def call(self, _: object, request: Any) -> Any:
        """FindCoordinator, of many ids."""
        numbers = {name: coordinator_partition(name, 2) for name in request.coordinator_keys}
        nodes = {
            name: self.found.get(name, (self.leaders or LEADERS)[number].leader) for name, number in numbers.items()
        }
        rows = [SimpleNamespace(key=name, node_id=node, error_code=0) for name, node in nodes.items()]
        return SimpleNamespace(coordinators=rows)

    def list(self, filters: Filters = Filters()) -> BrokerListings:  # noqa: B008 - a value that nobody changes
        return list_filtered(self, filters)  # type: ignore[arg-type]

    def describe(self, *names: str) -> dict[str, TransactionDescription]:
        return ClusterAdmin(self).describe_transactions(names)  # type: ignore[arg-type]

    def prove(self) -> TransactionListing:
        return ClusterAdmin(self).list_transactions([1, 2])  # type: ignore[arg-type]
