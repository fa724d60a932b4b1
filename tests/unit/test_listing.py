"""A listing is whole or says what of it is missing, by name: whatever a broker or a partition of the log does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from txnwatch.state.errors import BrokerError
from txnwatch.state.ids import TRANSACTION_STATE_TOPIC as LOG
from txnwatch.state.ports import TransactionListing
from txnwatch.streaming.admin import ClusterAdmin
from txnwatch.streaming.admin_messages import one_id_for_each_partition
from txnwatch.streaming.listing import Listing, in_words
from txnwatch.streaming.metadata import NO_LEADER, Metadata, PartitionInfo, TopicInfo
from txnwatch.streaming.queries import Filters, list_filtered

NOT_FOUND, NOT_COORDINATOR, LOADING, DENIED = 105, 16, 14, 53
NAMES = one_id_for_each_partition(2)  # an id of each partition of the log


class Speaker:
    """A connection's version, and nothing else."""

    def require_version(self, *_: object, **__: object) -> int:
        return 0


@dataclass
class Brokers:
    """As much of a Cluster as a listing takes: two brokers, each leading one partition of the coordinators' log.

    Attributes:
        leaders: of the log's partitions; None for a log that is not shown.
        by_name: the error when the log is asked for by its name.
        listing, describing: a broker's error code, or why it does not answer.
        states: of the one id that each broker lists.
        on_list: happens while the brokers list.
    """

    leaders: list[PartitionInfo] | None = field(default_factory=lambda: [PartitionInfo(1, 0), PartitionInfo(2, 0)])
    by_name: str | None = "UNKNOWN_TOPIC_OR_PARTITION"
    listing: dict[int, int | str] = field(default_factory=dict)
    describing: dict[int, int | str] = field(default_factory=dict)
    states: dict[int, str] = field(default_factory=lambda: {1: "Ongoing", 2: "Ongoing"})
    on_list: Callable[[], None] = lambda: None
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
        return SimpleNamespace(endpoint="one")

    def metadata_from(self, _: object, names: list[str]) -> Metadata:
        return Metadata("cluster", {}, {name: TopicInfo(name, "", {}, self.by_name) for name in names})

    def ask(self, requests: dict[int, Any], _: float) -> dict[int, Any]:
        return {node: self._answer(node, build(Speaker())) for node, build in requests.items()}

    def _answer(self, node: int, request: Any) -> Any:
        is_listing = "ListTransactions" in type(request).__name__
        error = (self.listing if is_listing else self.describing).get(node, 0)
        if isinstance(error, str):
            return BrokerError(error)
        if not is_listing:
            rows = [
                SimpleNamespace(transactional_id=name, error_code=error or NOT_FOUND)
                for name in request.transactional_ids
            ]
            return SimpleNamespace(transaction_states=rows)
        self.on_list()
        row = SimpleNamespace(transactional_id=NAMES[node - 1], producer_id=node, transaction_state=self.states[node])
        rows = [] if error else [row]
        return SimpleNamespace(error_code=error, unknown_state_filters=[], transaction_states=rows)

    def list(self) -> Listing:
        return list_filtered(self, Filters())  # type: ignore[arg-type]

    def prove(self) -> TransactionListing:
        return ClusterAdmin(self).list_transactions([1, 2])  # type: ignore[arg-type]


def listed(found: Listing) -> list[int]:
    return [row.producer_id for row in found.rows]


def test_a_whole_listing_has_no_problems() -> None:
    found = Brokers().list()
    assert (listed(found), found.problems) == ([1, 2], {})


def test_before_the_first_id_there_is_no_log_and_nothing_is_missing() -> None:
    assert Brokers(leaders=None).list().problems == {}


NO_LEADER_WHY = "has no leader: its ids cannot be listed"
TOO_OLD = "broker 2 is too old: it does not answer ListTransactions (Kafka 3.0 or later)"
LOSSES: dict[str, tuple[Brokers, list[int], dict[str, str]]] = {
    "nobody leads a partition": (
        Brokers(leaders=[PartitionInfo(NO_LEADER, 1), PartitionInfo(2, 0)], listing={1: "away"}),
        [2],
        {f"{LOG}-0": NO_LEADER_WHY, "coordinator 1": "away"},
    ),
    "nobody leads it, and who has lost it does not know": (
        Brokers(leaders=[PartitionInfo(NO_LEADER, 1), PartitionInfo(2, 0)]),
        [2],
        {f"{LOG}-0": NO_LEADER_WHY},
    ),
    "a broker loads": (
        Brokers(listing={2: LOADING}, describing={2: LOADING}),
        [1],
        {f"{LOG}-1": "broker 2: COORDINATOR_LOAD_IN_PROGRESS", "coordinator 2": "COORDINATOR_LOAD_IN_PROGRESS"},
    ),
    "it has not begun to load, and lists without an error": (
        Brokers(describing={2: NOT_COORDINATOR}),
        [1, 2],
        {f"{LOG}-1": "broker 2: NOT_COORDINATOR"},
    ),
    "ids are hidden": (
        Brokers(describing={1: DENIED, 2: DENIED}),
        [1, 2],
        {
            f"{LOG}-0": "broker 1: TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
            f"{LOG}-1": "broker 2: TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        },
    ),
    "the log itself is hidden": (
        Brokers(leaders=None, by_name="TOPIC_AUTHORIZATION_FAILED"),
        [1, 2],
        {LOG: "TOPIC_AUTHORIZATION_FAILED: which ids there are cannot be told"},
    ),
    "a broker does not answer": (
        Brokers(listing={2: "timed out"}, describing={2: "timed out"}),
        [1],
        {"coordinator 2": "timed out"},
    ),
    "a broker is too old to list, and so to describe": (
        Brokers(listing={2: TOO_OLD}, describing={2: "too old to describe"}),
        [1],
        {"coordinator 2": TOO_OLD},
    ),
}


@pytest.mark.parametrize(("brokers", "rows", "problems"), LOSSES.values(), ids=LOSSES.keys())
def test_what_is_missing_is_named(brokers: Brokers, rows: list[int], problems: dict[str, str]) -> None:
    found = brokers.list()
    assert (listed(found), found.problems) == (rows, problems)
    assert brokers.prove().problems == in_words(problems)


def test_a_coordinator_that_moves_meanwhile_is_told() -> None:
    brokers = Brokers()
    brokers.on_list = lambda: brokers.__setattr__("leaders", [PartitionInfo(2, 1), PartitionInfo(2, 0)])
    moved = "its coordinator moved to another broker while the brokers were asked"
    assert brokers.list().problems == {f"{LOG}-0": moved}


def test_a_leader_that_is_lost_meanwhile_is_told_and_its_ids_do_not_count() -> None:
    brokers = Brokers()
    brokers.on_list = lambda: brokers.__setattr__("leaders", [PartitionInfo(NO_LEADER, 1), PartitionInfo(2, 0)])
    found = brokers.list()
    assert (listed(found), found.problems) == ([2], {f"{LOG}-0": NO_LEADER_WHY})


def test_a_proof_does_not_rest_on_rows_of_a_log_that_is_hidden() -> None:
    brokers = Brokers(leaders=None, by_name="TOPIC_AUTHORIZATION_FAILED")
    assert brokers.prove().transactions == ()


def test_a_state_of_a_newer_broker_does_not_end_the_listing_of_all() -> None:
    found = Brokers(states={1: "Ongoing", 2: "Frozen"}).list()
    assert listed(found) == [1]
    assert list(found.problems) == ["coordinator 2"]
    assert "upgrade txnwatch" in found.problems["coordinator 2"]


def test_a_reason_is_told_once_however_many_partitions_have_it() -> None:
    problems = {f"{LOG}-{number}": "no leader" for number in range(50)} | {"coordinator 3": "away"}
    assert in_words(problems) == (f"{LOG}-0, {LOG}-1, {LOG}-2 and 47 more: no leader", "coordinator 3: away")
