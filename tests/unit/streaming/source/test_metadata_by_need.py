"""Metadata of all topics is asked for seldom; what is needed sooner is asked for by name."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest

from txnwatch.state.model.facts import CensusTaken
from txnwatch.state.model.ports import ActiveProducer, ListedOffset
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, Problem, TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.metadata import Metadata, PartitionInfo, TopicInfo
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.source import census_schedule as census_module
from txnwatch.streaming.source import lister as lister_module
from txnwatch.streaming.source.census_schedule import Asked, Census, take_census
from txnwatch.streaming.source.lister import Lister
from txnwatch.streaming.source.offsets import SourceOffset
from txnwatch.streaming.source.options import SourceOptions, parse_options

BROKER = Endpoint("a", 1)
OPTIONS = parse_options({"kafka.bootstrap.servers": "a:1", "subscribePattern": ".*"})
BY_CENSUS = parse_options({"kafka.bootstrap.servers": "a:1", "subscribe": "none", "censusPattern": "orders|other"})
NOTHING_YET = SourceOffset("", 0, 0, 0, {})
ORDERS, OTHER = TopicPartition("orders", 0), TopicPartition("other", 0)


class Counting(Cluster):
    """Remembers what was asked; None is all topics."""

    def __init__(self, partitions: dict[str, int], brokers: int = 1) -> None:
        endpoints = [Endpoint("a", number) for number in range(1, brokers + 1)]
        super().__init__(endpoints[:1], OPTIONS.security)
        self.partitions = partitions
        self.brokers = dict(enumerate(endpoints, start=1))
        self.asked: list[list[str] | None] = []
        self.who: list[Endpoint] = []
        self.away: set[TopicPartition] = set()
        self.recreated_logs: set[str] = set()

    def metadata_from(self, endpoint: Endpoint, topics: Iterable[str] | None = None) -> Metadata:
        names = None if topics is None else list(topics)
        self.asked.append(names)
        self.who.append(endpoint)
        found = {
            name: TopicInfo(
                name,
                self.id_of(name, names),
                {number: PartitionInfo(1, 0) for number in range(self.partitions.get(name, 0))},
            )
            for name in (self.partitions if names is None else names)
        }
        return Metadata("cluster", self.brokers, found)

    def id_of(self, name: str, asked: list[str] | None) -> str:
        """Whoever has asked for all topics has done so before one was made anew."""
        return f"new-id-of-{name}" if name in self.recreated_logs and asked is not None else f"id-of-{name}"

    def list_offsets(self, partitions: Iterable[TopicPartition], **_: Any) -> dict[TopicPartition, ListedOffset]:
        return {
            one: Problem("NOT_LEADER_OR_FOLLOWER") if one in self.away else ListedOffset(10, 0, 1) for one in partitions
        }


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(lister_module, "time", found)
    return found


@pytest.mark.parametrize(("partitions", "pause_s"), [(10, 5.0), (10_000, 5.0), (50_000, 25.0), (500_000, 30.0)])
def test_the_more_partitions_the_longer_until_all_of_it_is_asked_for_again(
    clock: Clock, partitions: int, pause_s: float
) -> None:
    cluster = Counting({"orders": partitions - 1, TRANSACTION_STATE_TOPIC: 1})
    lister = Lister(OPTIONS, cluster, now_ms=lambda: 0)
    lister.look_around(NOTHING_YET, set())
    for later_s, count in ((pause_s - 0.1, 1), (pause_s + 0.1, 2)):
        clock.now_s = 1_000.0 + later_s
        lister.look_around(NOTHING_YET, set())
        assert cluster.asked == [None] * count


def test_a_request_is_looked_after_as_soon_as_on_a_small_cluster(clock: Clock) -> None:
    cluster = Counting({"orders": 50_000, TRANSACTION_STATE_TOPIC: 1})
    lister = Lister(OPTIONS, cluster, now_ms=lambda: 0)
    lister.look_around(NOTHING_YET, set())
    clock.now_s += 5.1
    lister.look_around(NOTHING_YET, set(), is_settled=True)
    assert cluster.asked == [None]
    lister.look_around(NOTHING_YET, set(), is_settled=False)
    assert cluster.asked == [None, None]


@pytest.mark.parametrize("options", [OPTIONS, BY_CENSUS], ids=["scanned", "by census"])
def test_while_a_leader_does_not_answer_the_metadata_is_asked_for_after_growing_pauses(
    clock: Clock, options: SourceOptions
) -> None:
    cluster = Counting({"orders": 1, "other": 1, TRANSACTION_STATE_TOPIC: 1})
    lister, offset, begin_s = Lister(options, cluster, now_ms=lambda: 0), NOTHING_YET, clock.now_s
    asked: list[float] = []
    for barrier in range(240):
        cluster.away = {ORDERS, OTHER} if barrier >= 204 else {ORDERS} if barrier > 0 else set()
        count = len(cluster.asked)
        offset = lister.next_offset(offset) or offset
        asked += [clock.now_s - begin_s] * (len(cluster.asked) - count)
        clock.now_s += 0.25
    first, then = [at for at in asked if at <= 51.0], [at for at in asked if at > 51.0]
    assert first[:4] == [0.0, 0.5, 1.0, 1.5], "it may have moved"
    assert all(later - earlier <= max(0.5, later / 8) + 0.25 for earlier, later in itertools.pairwise(first))
    assert first[-1] - first[-2] == 5.0, "as if all leaders answered"
    assert then[:3] == [51.25, 51.75, 52.25], "another one"


def test_a_topic_that_a_transaction_names_is_looked_for_at_once(clock: Clock) -> None:
    del clock
    cluster = Counting({"orders": 1, TRANSACTION_STATE_TOPIC: 1})
    lister = Lister(OPTIONS, cluster, now_ms=lambda: 0)
    lister.look_around(NOTHING_YET, set())
    lister.look_around(NOTHING_YET, {"quite new"})
    assert cluster.asked == [None, None, ["quite new"]]


def test_a_log_that_is_not_there_is_looked_for_by_name(clock: Clock) -> None:
    del clock
    cluster = Counting({"orders": 1})
    lister, offset = Lister(OPTIONS, cluster, now_ms=lambda: 0), NOTHING_YET
    for _ in range(3):
        offset = lister.next_offset(offset) or offset
    assert cluster.asked == [None, *[[TRANSACTION_STATE_TOPIC]] * 3]
    cluster.partitions[TRANSACTION_STATE_TOPIC] = 2
    found = lister.next_offset(offset)
    assert found is not None
    assert {one.topic for one in found.positions} == {"orders", TRANSACTION_STATE_TOPIC}


def test_requests_by_name_do_not_change_the_order_of_the_brokers() -> None:
    cluster = Counting({"orders": 1}, brokers=2)
    cluster.refresh()
    for _ in range(4):
        cluster.named(["orders"])
        cluster.refresh()
    whole = [who for who, names in zip(cluster.who, cluster.asked, strict=True) if names is None]
    assert set(whole) == set(cluster.brokers.values())


def taken(cluster: Counting, monkeypatch: pytest.MonkeyPatch, opened: set[TopicPartition]) -> CensusTaken:
    def described(_: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        producer = ActiveProducer(7, 0, 1, 0, 0, 5)
        return {one: (producer,) if one in opened else () for one in partitions}

    monkeypatch.setattr(census_module, "describe_producers", described)
    cluster.refresh()
    cluster.asked.clear()
    census = Census({one: Asked(f"id-of-{one.topic}") for one in (ORDERS, OTHER)}, 1)
    *_, found = take_census(cluster, census)
    assert isinstance(found, CensusTaken)
    return found


def test_a_census_looks_up_the_ids_of_its_own_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Counting({"orders": 1, "other": 1, "a third": 1})
    assert not taken(cluster, monkeypatch, {OTHER}).failed
    assert cluster.asked == [["orders", "other"]]


@pytest.mark.parametrize("opened", [set(), {ORDERS}], ids=["nothing open in the new one", "something open"])
def test_a_topic_that_is_re_created_meanwhile_does_not_count_as_the_old_one(
    monkeypatch: pytest.MonkeyPatch, opened: set[TopicPartition]
) -> None:
    cluster = Counting({"orders": 1, "other": 1})
    cluster.recreated_logs = {"orders"}
    found = taken(cluster, monkeypatch, opened)
    assert (found.failed, found.taken.keys()) == ({ORDERS}, {OTHER})


def test_a_census_that_failed_somewhere_looks_for_the_leaders(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Counting({"orders": 1, "other": 1})
    cluster.away = {ORDERS}
    assert taken(cluster, monkeypatch, set()).failed == {ORDERS}
    assert cluster.asked == [["other"], None]
