"""When the source grants a reread: what keeps coming back waits longer each time; what nobody answers does not."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from txnwatch.state.model.findings import CensusReason
from txnwatch.state.model.ports import ListedOffset
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, Problem, TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.metadata import Metadata, PartitionInfo, TopicInfo
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.source.driver_file import DriverFile
from txnwatch.streaming.source.lister import Lister
from txnwatch.streaming.source.offsets import SourceOffset
from txnwatch.streaming.source.options import parse_options
from txnwatch.streaming.source.planner import RereadRequest, census_of

ORDERS = TopicPartition("orders", 0)
BROKER = Endpoint("a", 1)
A_PROOF, IT_STANDS, IT_FAILED = (
    census_of(ORDERS, why) for why in (CensusReason.PROOF, CensusReason.STANDING, CensusReason.FAILED)
)


class OneBroker(Cluster):
    """A broker that may not answer for its data."""

    def __init__(self) -> None:
        super().__init__([BROKER], parse_options({"kafka.bootstrap.servers": "a:1", "subscribe": "orders"}).security)
        self.is_away = False

    def metadata_from(self, *_: Any) -> Metadata:
        names = (TRANSACTION_STATE_TOPIC, ORDERS.topic)
        topics = {name: TopicInfo(name, f"id-of-{name}", partitions={0: PartitionInfo(1, 0)}) for name in names}
        return Metadata("cluster", {1: BROKER}, topics)

    def list_offsets(
        self, partitions: Iterable[TopicPartition], **_: Any
    ) -> dict[TopicPartition, ListedOffset | Problem]:
        away = Problem("LEADER_NOT_AVAILABLE")
        return {p: away if self.is_away and p == ORDERS else ListedOffset(10, 0, 1) for p in partitions}


class Source:
    """A lister and the file of its requests; nothing is due for a census by itself."""

    def __init__(self, directory: Path) -> None:
        self.broker, self._file = OneBroker(), DriverFile(directory / "driver")
        options = {"subscribe": "orders", "driverFile": str(self._file.path), "healIntervalMs": "1000000"}
        self._lister = Lister(parse_options({"kafka.bootstrap.servers": "a:1", **options}), self.broker)
        self._offset = SourceOffset("", 0, 0, 0, {})
        self.grants()

    def grants(self, *rereads: RereadRequest) -> bool:
        """Whether the next barrier reads or describes what is requested."""
        self._file.write(rereads, None)
        following = self._lister.next_offset(self._offset)
        assert following is not None
        self._offset = following
        census = self._lister.census_of(following.barrier)
        return bool(following.reread) or (census is not None and ORDERS in census.asked)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path)


@pytest.mark.parametrize(
    "reread", [A_PROOF, IT_STANDS, RereadRequest(ORDERS, 4)], ids=["a proof", "it stands", "a gap"]
)
def test_a_repeated_request_waits_twice_as_long_each_time(source: Source, reread: RereadRequest) -> None:
    granted = [number for number in range(40) if source.grants(reread)]
    assert granted == [0, 1, 3, 7, 15, 31]


def test_one_reason_does_not_make_another_one_wait(source: Source) -> None:
    for _ in range(33):
        source.grants(IT_STANDS)
    assert not source.grants(IT_STANDS)
    assert source.grants(IT_STANDS, A_PROOF)


@pytest.mark.parametrize("reread", [IT_FAILED, RereadRequest(ORDERS, 4)], ids=["a census", "a gap"])
def test_a_partition_that_was_away_is_asked_at_once_when_it_answers(source: Source, reread: RereadRequest) -> None:
    source.broker.is_away = True
    assert not any(source.grants(reread) for _ in range(40))
    source.broker.is_away = False
    assert source.grants(reread)
    assert source.grants(reread)
    assert not source.grants(reread)


@pytest.mark.parametrize(("stands", "moves"), [(16, 4), (3, 4)], ids=["for long", "for a moment"])
def test_an_offset_that_moves_now_and_then_keeps_its_pause(source: Source, stands: int, moves: int) -> None:
    granted: list[int] = []
    for number in range(600):
        requests = [IT_STANDS] if number % (stands + moves) < stands else []
        if source.grants(*requests):
            granted.append(number)
    assert granted[:2] == [0, 1]
    assert len(granted) <= 16, "the pause doubles up to 64 barriers"


def test_an_offset_that_was_explained_for_a_while_begins_anew(source: Source) -> None:
    for _ in range(40):
        source.grants(IT_STANDS)
    for _ in range(130):
        source.grants()
    assert [source.grants(IT_STANDS) for _ in range(3)] == [True, True, False]


def test_a_request_that_was_once_left_out_begins_with_the_first_pause(source: Source) -> None:
    assert [source.grants(A_PROOF) for _ in range(3)] == [True, True, False]
    assert not source.grants()
    assert source.grants(A_PROOF)
