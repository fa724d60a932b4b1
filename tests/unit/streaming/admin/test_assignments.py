"""What members of groups are assigned, by protocol; a group that rebalances or is refused is not one without any."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txnwatch.state.model.errors import BrokerError, WireError
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.admin.assignments import (
    HIDES,
    REBALANCES,
    Assignments,
    GroupToDescribe,
    decode_assignment,
    read_assignments,
)

DENIED = 30
ORDERS, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 7)


def encoded(topic: str = "orders", *numbers: int, version: int = 1) -> bytes:
    name = topic.encode()
    partitions = struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return struct.pack(">hih", version, 1, len(name)) + name + partitions + struct.pack(">i", -1)


def test_an_assignment_is_read_up_to_its_partitions() -> None:
    assert decode_assignment(encoded("orders", 0, 7)) == {ORDERS, OTHER}
    assert decode_assignment(encoded("orders", 0, version=3) + b"later") == {ORDERS}
    assert decode_assignment(b"") == frozenset()


def test_a_truncated_assignment_is_an_error_and_no_shorter_one() -> None:
    whole = encoded("orders", 0, 7)
    for size in range(1, len(whole) - 4):
        with pytest.raises(WireError):
            decode_assignment(whole[:size])


@given(st.binary(max_size=64))
def test_any_bytes_of_a_client_are_an_assignment_or_an_error(data: bytes) -> None:
    try:
        found = decode_assignment(data)
    except WireError:
        return
    assert all(partition.partition >= 0 for partition in found)


class Broker:
    """As much of a Cluster as the reading takes; its coordinators answer with `rows`."""

    timeout_s = 1.0

    def __init__(self, **rows: Any) -> None:
        self.rows = rows
        self.asked: list[tuple[str, int]] = []
        self.silent = False

    def require_version(self, _: Any, highest: int) -> int:
        return highest

    def ask(self, requests: dict[int, Any], _: float) -> dict[int, Any]:
        return {node: self._answer(build(self)) for node, build in requests.items()}

    def _answer(self, request: Any) -> Any:
        names = request.groups if hasattr(request, "groups") else request.group_ids
        self.asked.append((type(request).__name__.removesuffix("Request"), len(names)))
        if self.silent:
            return BrokerError("broker 1 is away")
        return SimpleNamespace(groups=[self.rows[name] for name in names if name in self.rows])

    def read(self, *groups: tuple[str, str]) -> Assignments:
        return read_assignments(self, (GroupToDescribe(name, 1, kind) for name, kind in groups))  # type: ignore[arg-type]


def classic(name: str, *assignments: bytes, state: str = "Stable", error: int = 0) -> Any:
    members = [SimpleNamespace(member_assignment=one) for one in assignments]
    return SimpleNamespace(group_id=name, group_state=state, error_code=error, members=members)


def of(*numbers: int) -> Any:
    return SimpleNamespace(topic_partitions=[SimpleNamespace(topic_name="orders", partitions=list(numbers))])


def test_a_classic_group_has_what_its_members_are_assigned() -> None:
    broker = Broker(app=classic("app", encoded("orders", 0), encoded("orders", 7), b""))
    assert broker.read(("app", "classic")).partitions == {"app": {ORDERS, OTHER}}
    assert broker.read(("app", "")).partitions == {"app": {ORDERS, OTHER}}, "before Kafka 3.8"


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance"])
def test_a_group_that_rebalances_is_not_one_without_partitions(state: str) -> None:
    found = Broker(app=classic("app", b"", state=state)).read(("app", "classic"))
    assert (found.partitions, found.unknown, dict(found.problems)) == ({}, {"app": REBALANCES}, {})


def test_a_group_whose_members_have_just_left_has_nothing() -> None:
    found = Broker(app=classic("app", state="Empty")).read(("app", "classic"))
    assert (found.partitions, found.unknown, dict(found.problems)) == ({}, {}, {})


def test_what_is_refused_or_cannot_be_read_is_a_problem() -> None:
    rows = {"a": classic("a", error=DENIED), "b": classic("b", error=DENIED), "c": classic("c", b"\x00")}
    found = Broker(**rows).read(*((name, "classic") for name in rows))
    assert found.partitions == {}
    refused, unread = sorted(found.problems.items(), key=lambda one: -one[1])
    assert refused[1] == 2
    assert "DESCRIBE on the group is missing" in refused[0]
    assert unread[0].startswith("assignments of consumer groups: assignment version at byte 0: ")


def test_a_group_with_a_hidden_topic_is_not_known_and_the_answer_about_others_is_whole() -> None:
    found = Broker(new=classic("new", error=29)).read(("new", "consumer"))
    assert (found.unknown, dict(found.problems)) == ({"new": HIDES}, {})


def test_a_coordinator_that_is_away_is_a_problem_for_each_of_its_groups() -> None:
    broker = Broker()
    broker.silent = True
    assert dict(broker.read(("a", "classic"), ("b", "classic")).problems) == {
        "assignments of consumer groups: broker 1 is away": 2
    }


def test_a_group_of_the_consumer_protocol_has_its_present_and_its_next_partitions() -> None:
    member = SimpleNamespace(assignment=of(0), target_assignment=of(7))
    row = SimpleNamespace(group_id="new", group_state="Reconciling", error_code=0, members=[member])
    found = Broker(new=row).read(("new", "consumer"))
    assert (found.partitions, found.unknown) == ({"new": {ORDERS, OTHER}}, {})
    row.group_state = "Assigning"
    assert Broker(new=row).read(("new", "consumer")).unknown == {"new": REBALANCES}


def test_a_task_of_kafka_streams_reads_its_partition_of_each_source_topic() -> None:
    task = SimpleNamespace(subtopology_id="0", partitions=[7])
    tasks, none = SimpleNamespace(active_tasks=[task]), SimpleNamespace(active_tasks=[])
    repartition = SimpleNamespace(name="orders-repartition")
    part = SimpleNamespace(subtopology_id="0", source_topics=["orders"], repartition_source_topics=[repartition])
    row = SimpleNamespace(
        group_id="flow",
        group_state="Stable",
        error_code=0,
        topology=SimpleNamespace(subtopologies=[part]),
        members=[SimpleNamespace(assignment=none, target_assignment=tasks)],
    )
    expected = {OTHER, TopicPartition("orders-repartition", 7)}
    assert Broker(flow=row).read(("flow", "streams")).partitions == {"flow": expected}
    assert Broker(flow=row).read(("flow", "streams")).unknown == {}
    row.topology.subtopologies = None
    assert Broker(flow=row).read(("flow", "streams")).unknown == {"flow": REBALANCES}


def test_a_request_has_at_most_a_hundred_groups_of_one_protocol() -> None:
    broker = Broker()
    broker.read(*((f"g{number}", "classic") for number in range(250)), ("new", "consumer"))
    assert broker.asked == [
        *(("DescribeGroups", size) for size in (100, 100, 50)),
        ("ConsumerGroupDescribe", 1),
    ]
