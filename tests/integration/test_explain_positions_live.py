"""`explain` of a group that is behind by itself, and of partitions without a record for a reader, on a real broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.answered import answered
from support.raw_producer import RawProducer
from support.topics import commit_an_offset, create_topic, unique
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import await_end

Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def ask(kafka: EmbeddedKafka, capsys: pytest.CaptureFixture[str]) -> Ask:
    def asked(*target: str) -> dict[str, Any]:
        found = answered(capsys, "explain", *target, "--bootstrap-server", kafka.bootstrap_servers, "--fail-on-found")
        assert found.code == 0
        return found.row

    return asked


@pytest.fixture
def partition(cluster: Cluster) -> TopicPartition:
    (created,) = create_topic(cluster, unique("positions"))
    return created


def ended(cluster: Cluster, partition: TopicPartition, *, commit: bool) -> None:
    """A transaction with two records, and its marker."""
    producer = RawProducer(cluster, unique("app")).init()
    producer.add(partition)
    producer.produce(partition, [b"a", b"b"])
    producer.end(commit=commit)
    await_end(cluster, producer, partition)


def test_a_group_behind_by_itself_is_told_with_its_figures(
    kafka: EmbeddedKafka, cluster: Cluster, partition: TopicPartition, ask: Ask
) -> None:
    """0, 1: committed; 2: its marker; 3, 4: aborted; 5: its marker; 6, 7: committed; 8: its marker."""
    for commit in (True, False, True):
        ended(cluster, partition, commit=commit)
    name = unique("slow")
    texts = {
        2: "At 2 is a COMMIT marker, which clients skip. The next record that it gets is at 6.",
        3: "At 3 is a record of an aborted transaction, which is not given to it. The next record that it gets is",
        7: "At 7 is a record. The next record that it gets is that one.",
        8: "Only markers and aborted records are left for it up to 9: it has read everything, although its lag is 1.",
        9: "It has read everything on its partition.",
    }
    for offset, text in texts.items():
        commit_an_offset(kafka, partition, name, offset)
        row = ask("--group", name)
        told = " ".join(row["text"])
        assert text in told
        assert "All clear: " in told
        (position,) = row["positions"]
        assert (position["committed_offset"], position["last_stable_offset"], position["high_watermark"]) == (
            offset,
            9,
            9,
        )
        if offset < 8:
            assert f"it has committed {offset}, can read with read_committed up to 9" in told
            assert "No transaction stops it: it is behind by itself." in told


def test_a_partition_says_what_it_is_made_of(cluster: Cluster, partition: TopicPartition, ask: Ask) -> None:
    text = " ".join(ask(str(partition))["text"])
    assert "It has no records: it begins and ends at offset 0 (nothing was ever written to it)." in text
    ended(cluster, partition, commit=False)
    text = " ".join(ask(str(partition))["text"])
    assert "no record for read_committed consumers: there are only markers and records of aborted transactions." in text
    assert "Its last offset, 2, is an ABORT marker: no consumer gets a record there" in text
    ended(cluster, partition, commit=True)
    text = " ".join(ask(str(partition))["text"])
    assert "Its last offset, 5, is a COMMIT marker" in text
    assert "no record for read_committed" not in text
