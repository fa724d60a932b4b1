"""The replicas in a Metadata response."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from txnwatch.state.model.partition_replicas import PartitionReplicas
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.admin.replicas import replicas_in

ORDERS = TopicPartition("orders", 3)


def response(leader: int, replicas: list[int], in_sync: list[int], offline: list[int] | None) -> Any:
    partition = SimpleNamespace(
        partition_index=3,
        leader_id=leader,
        replica_nodes=replicas,
        isr_nodes=in_sync,
        offline_replicas=offline,
    )
    return SimpleNamespace(topics=[SimpleNamespace(name="orders", partitions=[partition])])


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (response(1, [2, 1], [2, 1], []), PartitionReplicas(ORDERS, 1, (1, 2), (1, 2))),
        (response(1, [2, 1], [1], [2]), PartitionReplicas(ORDERS, 1, (1, 2), (1,), (2,))),
        (response(-1, [2, 1], [2], [2, 1]), PartitionReplicas(ORDERS, None, (1, 2), (2,), (1, 2))),
        (response(1, [1], [1], None), PartitionReplicas(ORDERS, 1, (1,), (1,))),
    ],
)
def test_each_partition_has_its_replicas_in_order(found: Any, expected: PartitionReplicas) -> None:
    assert replicas_in(found) == {ORDERS: expected}
