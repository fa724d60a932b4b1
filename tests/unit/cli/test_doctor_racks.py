"""What `doctor` says about the client's rack: where a scan is read, and what is wrong with the setting."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from txnwatch.cli.doctor_rows import Health, row_of_rack
from txnwatch.streaming.source.options import parse_options

WATCHED = parse_options({"kafka.bootstrap.servers": "a:1", "subscribePattern": "orders"})
BROKERS = [SimpleNamespace(node_id=node, host="h", port=1, rack=rack) for node, rack in ((1, "a"), (2, "b"))]


def topic(name: str, leaders: list[int], replicas: list[int]) -> SimpleNamespace:
    partitions = [
        SimpleNamespace(
            partition_index=number, leader_id=leader, leader_epoch=0, isr_nodes=replicas, replica_nodes=replicas
        )
        for number, leader in enumerate(leaders)
    ]
    return SimpleNamespace(name=name, topic_id=None, error_code=0, partitions=partitions)


ANSWER: Any = SimpleNamespace(
    cluster_id="c", brokers=BROKERS, topics=[topic("orders", [1, 2, 1], [1, 2]), topic("not-watched", [1], [1, 2])]
)
CASES = {
    "no rack anywhere": (None, [], False, None),
    "one rack": (None, ["a"], False, None),
    "not set": (None, ["a", "b"], False, (Health.OK, "not set: data is read from the leaders, in every rack (a, b)")),
    "unknown": ("c", ["a", "b"], False, (Health.WARNING, "no broker has this rack, found a, b: data is read")),
    "brokers without racks": (
        "c",
        [],
        False,
        (Health.WARNING, "no broker has this rack, found brokers without a rack"),
    ),
    "epochs may be kept": ("b", ["a", "b"], True, (Health.WARNING, "data is read from the leaders: controllers")),
    "used": (
        "b",
        ["a", "b"],
        False,
        (Health.OK, "of 3 scanned partitions, 1 have their leader there and 2 a follower"),
    ),
}


@pytest.mark.parametrize(("rack", "racks", "keeps", "expected"), CASES.values(), ids=CASES)
def test_the_row_says_where_data_is_read(
    rack: str | None,
    racks: list[str],
    keeps: bool,  # noqa: FBT001 - a column
    expected: tuple[Health, str] | None,
) -> None:
    row = row_of_rack(ANSWER, racks, WATCHED, rack, keeps_epochs=keeps)
    if expected is None or row is None:
        assert row is None
        assert expected is None
        return
    assert row.status is expected[0]
    assert row.detail.startswith(expected[1])
