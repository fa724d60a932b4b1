"""Share groups: which broker is asked, what a missing right or an old broker hides, and that others are listed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.ports import GroupOffset, ListedOffset
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.admin.groups import ClusterGroups
from txnwatch.streaming.admin.share_groups import DescribeShareGroupOffsetsResponse, may_read_isolation

ORDERS = TopicPartition("orders", 0)
DENIED, UNKNOWN = 30, -1  # error codes


def _listed(group: str, protocol: str, state: str) -> Any:
    return SimpleNamespace(group_id=group, protocol_type=protocol, group_state=state, group_type="")


class Speaker:
    """A connection to a broker that knows every message, or not the one about share groups."""

    def __init__(self, *, is_old: bool) -> None:
        self._is_old = is_old

    def require_version(self, request: Any, highest: int = 0, lowest: int = 0) -> int:
        del lowest
        if self._is_old and "Share" in request.__name__:
            raise BrokerError("broker one is too old: it does not support DescribeShareGroupOffsets")
        return highest


class Broker:
    """As much of a Cluster as groups take.

    Attributes:
        isolation: how each share group reads; an error code where that may not be asked.
        lag: what share groups have yet to deal with; -1 where the coordinator does not know.
        hides: whether it does not list some groups.
        ends: the partition's end at each time it is asked for; the last one stays.
        asked: the names of the requests, in order.
    """

    timeout_s = 1.0

    def __init__(self, isolation: dict[str, str | int], *, is_old: bool = False, hides: bool = False) -> None:
        self.isolation = isolation
        self.hides = hides
        self.lag: int | None = 3
        self.ends = [20]
        self.asked: list[str] = []
        self.known = SimpleNamespace(brokers={1: "one"}, topics={})
        self._speaker = Speaker(is_old=is_old)

    def any_connection(self) -> Speaker:
        return self._speaker

    def list_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Any]:
        end = self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
        return {partition: ListedOffset(end, 0, 1) for partition in partitions}

    def call(self, _: Speaker, request: Any) -> Any:
        return self._answer(request)

    def ask(self, requests: dict[int, Any], _: float) -> dict[int, Any]:
        answers: dict[int, Any] = {}
        for node, build in requests.items():
            try:
                answers[node] = self._answer(build(self._speaker))
            except BrokerError as exc:
                answers[node] = exc
        return answers

    def _answer(self, request: Any) -> Any:
        name = type(request).__name__
        self.asked.append(name.partition("Request")[0])
        if name.startswith("ListGroups"):
            rows = [_listed("app", "consumer", "Stable"), _listed("flow", "streams", "NotReady")]
            rows += [_listed(group, "share", "Empty") for group in self.isolation]
            return SimpleNamespace(error_code=0, groups=[*rows, _listed("sync", "connect", "Stable")])
        if name.startswith("DescribeGroups"):
            row = SimpleNamespace(group_id=request.groups[0], error_code=DENIED if self.hides else 0)
            return SimpleNamespace(groups=[row])
        if name.startswith("DescribeConfigs"):
            return SimpleNamespace(results=[self._config(one.resource_name) for one in request.resources])
        part = SimpleNamespace(partition_index=0, error_code=0, committed_offset=5, start_offset=7, lag=self.lag)
        topic = SimpleNamespace(name="orders", topic_name="orders", partitions=[part])
        return SimpleNamespace(
            groups=[SimpleNamespace(group_id=one.group_id, error_code=0, topics=[topic]) for one in request.groups]
        )

    def _config(self, group: str) -> Any:
        value = self.isolation[group]
        if isinstance(value, int):
            return SimpleNamespace(resource_name=group, error_code=value, configs=[])
        config = SimpleNamespace(name="share.isolation.level", value=value)
        return SimpleNamespace(resource_name=group, error_code=0, configs=[config])

    def read(self) -> tuple[set[GroupOffset], Counter[str]]:
        found = ClusterGroups(self).committed_offsets([ORDERS])  # type: ignore[arg-type]
        return set(found.offsets[ORDERS]), Counter(found.problems)


OTHERS = {GroupOffset("app", 5, has_members=True), GroupOffset("flow", 5, has_members=True)}
FROZEN = GroupOffset("frozen", 17, has_members=False)


def test_only_share_groups_that_read_committed_are_listed() -> None:
    found, problems = Broker({"frozen": "read_committed", "free": "read_uncommitted"}).read()
    assert (found, problems) == (OTHERS | {FROZEN}, Counter())


def test_offsets_are_not_requested_if_no_share_group_reads_committed() -> None:
    broker = Broker({"free": "read_uncommitted"})
    assert broker.read()[0] == OTHERS
    assert broker.asked == ["ListGroups", "OffsetFetch", "DescribeConfigs", "DescribeGroups"]


def test_no_further_request_is_sent_without_share_groups() -> None:
    broker = Broker({})
    assert broker.read() == (OTHERS, Counter())
    assert broker.asked == ["ListGroups", "OffsetFetch", "DescribeGroups"]


def test_a_missing_right_is_reported_and_the_other_groups_are_listed() -> None:
    found, problems = Broker({"frozen": "read_committed", "hidden": DENIED}).read()
    assert found == OTHERS | {FROZEN}
    ((why, _),) = problems.items()
    assert why.endswith("DESCRIBE_CONFIGS on the group is missing")


@pytest.mark.parametrize(("answer", "expected"), [("read_committed", True), (DENIED, False), (UNKNOWN, None)])
def test_the_right_to_read_the_isolation_level_is_known_only_from_a_clear_answer(
    *, answer: str | int, expected: bool | None
) -> None:
    broker = Broker({"unused": answer})
    assert may_read_isolation(broker, "unused") is expected  # type: ignore[arg-type]


def test_with_an_older_broker_the_other_groups_are_listed() -> None:
    found, problems = Broker({"frozen": "read_committed"}, is_old=True).read()
    assert found == OTHERS
    assert list(problems) == ["broker one is too old: it does not support DescribeShareGroupOffsets"]


@pytest.mark.parametrize("lag", [-1, None], ids=["not counted yet", "an older answer"])
def test_without_a_lag_the_start_offset_is_a_lower_bound_and_that_is_logged(lag: int | None) -> None:
    broker = Broker({"frozen": "read_committed"})
    broker.lag = lag
    found, problems = broker.read()
    assert found == OTHERS | {FROZEN._replace(committed_offset=7, is_floor=True)}
    no_lag = "offsets of share groups: the broker does not return the lag, so no group can be stopped, only at_risk"
    assert list(problems) == [no_lag]


def test_an_end_that_moves_is_asked_for_again() -> None:
    broker = Broker({"frozen": "read_committed"})
    broker.ends = [18, 19, 20]
    assert broker.read() == (OTHERS | {FROZEN}, Counter())
    assert broker.asked.count("DescribeShareGroupOffsets") == 2


def test_an_end_that_keeps_moving_leaves_a_floor() -> None:
    broker = Broker({"frozen": "read_committed"})
    broker.ends = list(range(20, 30))
    ((found,), problems) = broker.read()[0] - OTHERS, broker.read()[1]
    assert (found.is_floor, problems) == (True, Counter())
    assert found.committed_offset >= FROZEN.committed_offset


@pytest.mark.parametrize(("version", "lag"), [(0, -1), (1, 13)])
def test_the_answer_has_the_lag_from_version_1(version: int, lag: int) -> None:
    group = DescribeShareGroupOffsetsResponse.Group
    part = group.Topic.Partition(
        version=version, partition_index=0, start_offset=7, leader_epoch=0, error_code=0, lag=13
    )
    topic = group.Topic(version=version, topic_name="orders", topic_id=UUID(int=1), partitions=[part])
    answer = DescribeShareGroupOffsetsResponse(
        version=version,
        throttle_time_ms=0,
        groups=[group(version=version, group_id="g", topics=[topic], error_code=0, error_message=None)],
    )
    read = DescribeShareGroupOffsetsResponse.decode(answer.encode(), version=version)
    found = read.groups[0].topics[0].partitions[0]
    assert (found.start_offset, -1 if found.lag is None else found.lag) == (7, lag)


def test_groups_that_a_broker_hides_are_a_problem() -> None:
    found, problems = Broker({}, hides=True).read()
    (problem,) = problems
    assert found == OTHERS
    assert problem == "hidden groups are not listed: GROUP_AUTHORIZATION_FAILED: DESCRIBE on all groups is missing"
