"""A follower is read only where it shows that it has the log of the present leader; the leader gives the rest."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from support.facts import ORDERS
from support.raw_log import RawFold
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, BrokerId, TopicPartition
from txnwatch.streaming.client.metadata import PartitionInfo, metadata_of
from txnwatch.streaming.log.fetch import replica_to_ask, take_from_follower
from txnwatch.streaming.log.range_reading import Range, RangeReading
from txnwatch.streaming.source.options import parse_options
from txnwatch.streaming.wire.fetch_response import Divergence, PartitionData

LEADER, FOLLOWER, EPOCH, END = BrokerId(1), BrokerId(2), 7, 9
LOG = TopicPartition(TRANSACTION_STATE_TOPIC, 0)
NEAR = PartitionInfo(LEADER, EPOCH, FOLLOWER)


def a_read(
    partition: TopicPartition = ORDERS, last_epoch: int | None = EPOCH, *, must_check: bool = False
) -> RangeReading[RawFold]:
    return RangeReading(Range(partition, "id", 5, END, last_epoch, must_check), RawFold)


def asked(info: PartitionInfo | None, read: RangeReading[Any], kept: str = "") -> BrokerId | None:
    cluster: Any = SimpleNamespace(known=SimpleNamespace(info=lambda _: info), connection_to_keep=lambda _: kept)
    return replica_to_ask(cluster, read)


CASES = {
    "it shows the epoch of the leader": (NEAR, a_read(), "", FOLLOWER),
    "no follower in the rack": (PartitionInfo(LEADER, EPOCH), a_read(), "", LEADER),
    "what was read is of an earlier leader": (NEAR, a_read(last_epoch=EPOCH - 1), "", LEADER),
    "nothing was read before": (NEAR, a_read(last_epoch=None), "", LEADER),
    "a broker that knows no leader epochs": (
        PartitionInfo(LEADER, None, FOLLOWER),
        a_read(last_epoch=None),
        "",
        LEADER,
    ),
    "a leader may keep its epoch": (NEAR, a_read(), "a connection", LEADER),
    "the leader may have cut its log": (NEAR, a_read(must_check=True), "", LEADER),
    "the coordinators' log": (NEAR, a_read(LOG), "", LEADER),
    "no leader": (PartitionInfo(None, EPOCH, FOLLOWER), a_read(), "", None),
    "not in the metadata": (None, a_read(), "", None),
}


@pytest.mark.parametrize(("info", "read", "kept", "expected"), CASES.values(), ids=CASES)
def test_whom_a_range_is_read_from(
    info: PartitionInfo | None, read: RangeReading[Any], kept: str, expected: BrokerId | None
) -> None:
    assert asked(info, read, kept) == expected


ANSWERS = {
    "an error": {"error_code": 1},
    "a divergence": {"divergence": Divergence(EPOCH, 3)},
    "no records, because it lags": {},
    "bytes that are no batch": {"records": memoryview(b"\0" * 100)},
}


@pytest.mark.parametrize("changes", ANSWERS.values(), ids=ANSWERS)
def test_what_a_follower_lacks_is_asked_of_the_leader_and_no_notice_says_anything_of_the_log(
    changes: dict[str, Any],
) -> None:
    read = a_read()
    values = {"error_code": 0, "divergence": None, "records": memoryview(b""), **changes}
    data = PartitionData(ORDERS.topic, 0, high_watermark=END, last_stable_offset=END, log_start_offset=0, **values)
    take_from_follower(read, data)
    assert asked(NEAR, read) == LEADER
    assert (read.needs_fetch, read.notices, read.fold.position) == (True, [], 5)


def a_partition(leader: int, in_sync: list[int]) -> SimpleNamespace:
    return SimpleNamespace(
        partition_index=0, leader_id=leader, leader_epoch=EPOCH, isr_nodes=in_sync, replica_nodes=[1, 2, 3]
    )


def known(partition: SimpleNamespace, rack: str | None) -> PartitionInfo:
    racks = {1: "a", 2: "b", 3: "b", 4: None}
    brokers = [SimpleNamespace(node_id=node, host="h", port=1, rack=at) for node, at in racks.items()]
    topic = SimpleNamespace(name="orders", topic_id=None, error_code=0, partitions=[partition])
    answer = SimpleNamespace(cluster_id="c", brokers=brokers, topics=[topic])
    return metadata_of(answer, rack).topics["orders"].partitions[0]


FOLLOWERS = {
    "no rack is set": (1, [1, 2, 3], None, None),
    "the leader is in the rack": (2, [1, 2, 3], "b", None),
    "the one in sync comes first": (1, [1, 3], "b", 3),
    "one that lags may catch up": (1, [1], "b", 2),
    "nobody is in the rack": (1, [1, 2], "c", None),
}


@pytest.mark.parametrize(("leader", "in_sync", "rack", "closest"), FOLLOWERS.values(), ids=FOLLOWERS)
def test_the_closest_replica_of_a_partition(
    leader: int, in_sync: list[int], rack: str | None, closest: int | None
) -> None:
    assert known(a_partition(leader, in_sync), rack) == PartitionInfo(BrokerId(leader), EPOCH, closest)


def test_the_rack_of_a_source_is_that_of_kafkas_clients() -> None:
    options = {"kafka.bootstrap.servers": "a:1", "subscribe": "orders"}
    assert parse_options(options).rack is None
    assert parse_options({**options, "kafka.client.rack": ""}).rack is None
    assert parse_options({**options, "kafka.client.rack": "zone-a"}).rack == "zone-a"
