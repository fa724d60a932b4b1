"""A topic that may not be seen any more is not a topic that is gone: nothing may be resolved because of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from txnwatch.state.ids import TopicPartition
from txnwatch.streaming.broker import Endpoint
from txnwatch.streaming.census import CensusRota
from txnwatch.streaming.cluster import Cluster, Listed
from txnwatch.streaming.lister import Lister
from txnwatch.streaming.metadata import Metadata, PartitionInfo, TopicInfo
from txnwatch.streaming.offsets import SourceOffset
from txnwatch.streaming.options import parse_options

ORDERS, OTHER = TopicPartition("orders", 0), TopicPartition("other", 0)
BROKER = Endpoint("a", 1)
LOOKS = 6
NOTHING_YET = SourceOffset("", 0, 0, 0, {})


class OneBroker(Cluster):
    """Tells what a broker would tell; topics can be hidden or deleted."""

    def __init__(self) -> None:
        super().__init__([BROKER], OPTIONS.security)
        self.hidden: set[str] = set()
        self.there = {"orders", "other", "__transaction_state"}

    def metadata_from(self, _: Endpoint, topics: Iterable[str] | None = None) -> Metadata:
        found = {
            name: TopicInfo(name, f"id-of-{name}", partitions={0: PartitionInfo(1, 0)})
            for name in (self.there - self.hidden if topics is None else topics)
        }
        for name, topic in found.items():
            if name in self.hidden:
                found[name] = replace(topic, topic_id="", partitions={}, error="TOPIC_AUTHORIZATION_FAILED")
            elif name not in self.there:
                found[name] = replace(topic, topic_id="", partitions={}, error="UNKNOWN_TOPIC_OR_PARTITION")
        return Metadata("cluster", {1: BROKER}, found)

    def list_offsets(self, partitions: Iterable[TopicPartition], **_: Any) -> dict[TopicPartition, Listed]:
        return dict.fromkeys(partitions, Listed(10, 0))


OPTIONS = parse_options(
    {"kafka.bootstrap.servers": "a:1", "subscribePattern": ".*", "metadataRefreshMs": "1", "healIntervalMs": "1"}
)


@pytest.fixture
def broker() -> OneBroker:
    return OneBroker()


def gone_after(lister: Lister, offset: SourceOffset) -> set[TopicPartition]:
    found: set[TopicPartition] = set()
    for _ in range(LOOKS):
        lister._metadata_due = 0.0
        following = lister.next_offset(offset)
        assert following is not None
        offset = following
        found |= offset.gone.keys()
    return found


def begun(broker: OneBroker) -> tuple[Lister, SourceOffset]:
    lister = Lister(OPTIONS, broker)
    offset = lister.next_offset(NOTHING_YET)
    assert offset is not None
    return lister, offset


def test_a_deleted_topic_is_gone(broker: OneBroker) -> None:
    lister, offset = begun(broker)
    broker.there.remove("orders")
    assert gone_after(lister, offset) == {ORDERS}


def test_a_hidden_topic_is_not_gone(broker: OneBroker) -> None:
    lister, offset = begun(broker)
    broker.hidden.add("orders")
    assert gone_after(lister, offset) == set()
    following = lister.next_offset(offset)
    assert following is not None
    assert following.positions[ORDERS].is_stale, "what is not read is not proven"


def test_nor_is_it_after_a_restart(broker: OneBroker) -> None:
    _, offset = begun(broker)
    broker.hidden.add("orders")
    broker.metadata = None
    assert gone_after(Lister(OPTIONS, broker), offset) == set()


def test_a_hidden_topic_that_is_deleted_later_is_gone(broker: OneBroker) -> None:
    lister, offset = begun(broker)
    broker.hidden.add("orders")
    assert gone_after(lister, offset) == set()
    broker.hidden.clear()
    broker.there.remove("orders")
    assert gone_after(lister, offset) == {ORDERS}


def test_a_census_keeps_asking_for_a_hidden_topic(broker: OneBroker) -> None:
    rota = CensusRota(
        parse_options(
            {"kafka.bootstrap.servers": "a:1", "subscribe": "none", "censusPattern": ".*", "censusIntervalMs": "1"}
        )
    )
    offset = NOTHING_YET
    for looks in range(LOOKS):
        if looks:
            broker.hidden.add("orders")
        rota._round_due_s = 0.0
        census = rota.next_census(broker.refresh(), offset, offset, ())
        assert census is not None
    assert ORDERS in census.missing
    assert OTHER in census.asked
