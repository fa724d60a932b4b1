"""What lives as long as the watch does not grow with the topics, requests and brokers that came and went."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from txnwatch.state.model.ports import ListedOffset
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.client import cluster as cluster_module
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.metadata import Metadata, PartitionInfo, TopicInfo
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.source.census_schedule import SnapshotSchedule
from txnwatch.streaming.source.driver_file import DriverFile
from txnwatch.streaming.source.lister import Lister
from txnwatch.streaming.source.offsets import SourceOffset
from txnwatch.streaming.source.options import SourceOptions, parse_options
from txnwatch.streaming.source.planner import RereadRequest

TOPICS = 30
BROKER = Endpoint("a", 1)


def options(**more: str) -> SourceOptions:
    return parse_options({"kafka.bootstrap.servers": "a:1", "censusPattern": ".*", "metadataRefreshMs": "1", **more})


SCANNED = {"subscribePattern": ".*"}


def metadata(*names: str) -> Metadata:
    topics = {name: TopicInfo(name, f"id-of-{name}", partitions={0: PartitionInfo(1, 0)}) for name in names}
    return Metadata("cluster", {1: BROKER}, topics)


class OneBroker(Cluster):
    """Answers with the topics that exist now."""

    def __init__(self) -> None:
        super().__init__([BROKER], options(**SCANNED).security)
        self.there: list[str] = []

    def metadata_from(self, *_: Any) -> Metadata:
        return metadata("__transaction_state", *self.there)

    def list_offsets(self, partitions: Any, **_: Any) -> dict[TopicPartition, ListedOffset]:
        return dict.fromkeys(partitions, ListedOffset(10, 0, 1))


def test_topics_that_came_and_went_leave_nothing_with_the_lister() -> None:
    broker, offset = OneBroker(), SourceOffset("", 0, 0, 0, {})
    lister = Lister(options(**SCANNED), broker)
    for number in range(TOPICS):
        for broker.there in ([f"topic-{number}"], [f"topic-{number}"], [], [], [], []):
            lister.looked_s = float("-inf")
            following = lister.next_offset(offset)
            assert following is not None
            offset = following
    assert {partition.topic for partition in offset.positions} == {"__transaction_state"}
    assert lister.absences.keys() <= {"__transaction_state", f"topic-{TOPICS - 1}"}


def test_topics_that_came_and_went_leave_nothing_with_the_census() -> None:
    rota, offset = SnapshotSchedule(options(subscribe="none")), SourceOffset("", 0, 0, 0, {})
    for number in range(TOPICS):
        for there in ([f"topic-{number}"], [], [], [], []):
            rota.look_at(metadata(*there), {})
            rota.next_census(offset, offset, ())
    assert rota.watched == {}
    assert rota.absences == {}


def test_requests_that_moved_on_leave_nothing_with_the_lister(tmp_path: Path) -> None:
    """A gap that is read a little further each time is another request each time."""
    file, broker = DriverFile(tmp_path / "driver"), OneBroker()
    lister, offset = Lister(options(**SCANNED, driverFile=str(file.path)), broker), SourceOffset("", 0, 0, 0, {})
    broker.there = ["orders"]
    most = 0
    for number in range(400):
        file.write([RereadRequest(TopicPartition("orders", 0), number)], None)
        following = lister.next_offset(offset)
        assert following is not None
        offset = following
        most = max(most, len(lister.granted))
    assert most < 100


def test_connections_that_brokers_have_closed_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[SimpleNamespace] = []

    def connect(*_: Any, **__: Any) -> SimpleNamespace:
        made.append(SimpleNamespace(is_open=True))
        return made[-1]

    monkeypatch.setattr(cluster_module, "Connection", connect)
    cluster = OneBroker()
    cached = cluster.connection(BROKER)
    for number in range(TOPICS):
        cluster.connection(Endpoint(f"pod-{number}", 1))
        assert len(cluster._connections) == 2
        made[-1].is_open = False
    assert cluster.connection(BROKER) is cached
