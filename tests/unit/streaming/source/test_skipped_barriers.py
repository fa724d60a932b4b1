"""Which rounds of the lister have a barrier while nothing changes: a request, a snapshot and a heartbeat need one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from txnwatch.state.model.findings import CensusReason
from txnwatch.state.model.ports import ListedOffset
from txnwatch.state.model.values import NEVER_MS, TRANSACTION_STATE_TOPIC, BrokerId, Problem, TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.metadata import Metadata, PartitionInfo, TopicInfo
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.source import lister as listing
from txnwatch.streaming.source.driver_file import DriverFile, NextBarrierDue
from txnwatch.streaming.source.lister import IDLE_S, Lister
from txnwatch.streaming.source.offsets import SourceOffset
from txnwatch.streaming.source.options import parse_options
from txnwatch.streaming.source.planner import RereadRequest, census_of

ORDERS = TopicPartition("orders", 0)
BROKER = Endpoint("a", 1)
ROUNDS = 6
SCANNED = {"subscribePattern": ".*"}
BY_CENSUS = {"subscribe": "none", "censusPattern": ORDERS.topic}


class IdleBroker(Cluster):
    """Every partition ends where it ended before, if it answers."""

    away: AbstractSet[TopicPartition] = frozenset()

    def metadata_from(self, _: Endpoint, topics: Iterable[str] | None = None) -> Metadata:
        del topics
        names = (ORDERS.topic, TRANSACTION_STATE_TOPIC)
        return Metadata(
            "cluster", {1: BROKER}, {name: TopicInfo(name, name, {0: PartitionInfo(1, 0)}) for name in names}
        )

    def list_offsets(
        self, partitions: Iterable[TopicPartition], **_: Any
    ) -> dict[TopicPartition, ListedOffset | Problem]:
        return {one: Problem("away") if one in self.away else ListedOffset(10, 0, 1) for one in partitions}

    def connection_to_keep(self, _: BrokerId) -> str:
        return ""


class Idle:
    """A lister on a cluster where nothing changes, and where no bucket waits for a time."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, chosen: Mapping[str, str] = SCANNED) -> None:
        self.now_s = 1_000.0
        monkeypatch.setattr(listing, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        self.file, self.requests = DriverFile(directory / "driver"), set[RereadRequest]()
        options = parse_options({"kafka.bootstrap.servers": "a:1", "driverFile": str(self.file.path), **chosen})
        self.broker = IdleBroker([BROKER], options.security)
        self.lister = Lister(options, self.broker)
        self.offset = SourceOffset.beginning()
        while self.has_barrier():
            assert self.offset.barrier < ROUNDS, "reading has begun and is at the end"

    def has_barrier(self) -> bool:
        """One round. The driver writes what it writes after a batch with nothing open."""
        following = self.lister.next_offset(self.offset)
        if following is None:
            return False
        self.offset = following
        self.file.write(self.requests, NextBarrierDue(following.barrier, NEVER_MS))
        return True


@pytest.fixture
def idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Idle:
    return Idle(tmp_path, monkeypatch)


def test_an_idle_cluster_has_no_barriers_until_one_is_due(idle: Idle) -> None:
    assert not any(idle.has_barrier() for _ in range(ROUNDS))


def test_a_request_has_a_barrier_in_every_round_also_while_it_is_backed_off(idle: Idle) -> None:
    idle.requests = {census_of(ORDERS, CensusReason.DOUBT)}
    idle.file.write(idle.requests, NextBarrierDue(idle.offset.barrier, NEVER_MS))
    assert all(idle.has_barrier() for _ in range(ROUNDS))
    assert idle.lister.census_of(idle.offset.barrier) is None, "the last request was backed off"
    idle.file.write((), NextBarrierDue(idle.offset.barrier, NEVER_MS))
    assert not idle.has_barrier()


def test_a_census_that_has_failed_has_a_barrier_when_its_pause_is_over(idle: Idle) -> None:
    idle.requests = {census_of(ORDERS, CensusReason.FAILED)}
    idle.file.write(idle.requests, NextBarrierDue(idle.offset.barrier, NEVER_MS))
    assert [idle.has_barrier() for _ in range(3)] == [True, True, False], "the second pause is two barriers"
    assert idle.lister.census_of(idle.offset.barrier) is not None


def test_a_census_that_has_failed_waits_for_a_leader_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = Idle(tmp_path, monkeypatch, BY_CENSUS)
    idle.broker.away = {ORDERS}
    idle.requests = {census_of(ORDERS, CensusReason.FAILED)}
    idle.file.write(idle.requests, NextBarrierDue(idle.offset.barrier, NEVER_MS))
    assert not any(idle.has_barrier() for _ in range(ROUNDS))
    idle.broker.away = set()
    assert idle.has_barrier()
    census = idle.lister.census_of(idle.offset.barrier)
    assert census is not None
    assert census.asked.keys() == {ORDERS}, "at once"


def test_a_producer_snapshot_that_is_due_has_a_barrier(idle: Idle) -> None:
    idle.lister.schedule.heal_due_s = 0.0
    assert idle.has_barrier()
    assert idle.lister.census_of(idle.offset.barrier) is not None
    assert not idle.has_barrier()


def test_an_idle_cluster_has_a_barrier_every_few_seconds(idle: Idle) -> None:
    for _ in range(ROUNDS):
        idle.now_s += IDLE_S - 0.01
        assert not idle.has_barrier()
        idle.now_s += 0.02
        assert idle.has_barrier()
    assert IDLE_S <= 5.0, "heartbeats and metrics need one"


def test_requests_and_the_next_barrier_are_read_at_once(idle: Idle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two readings could mix the requests of one batch with the next barrier of another one."""
    reads: list[str | None] = []
    read = listing.read_driver_file
    monkeypatch.setattr(listing, "read_driver_file", lambda path: reads.append(path) or read(path))
    idle.has_barrier()
    assert reads == [str(idle.file.path)]
