"""Reading under a quota and over a slow link: no answer is given up on that is still coming, and nothing is a gap."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest

from support.forwarder import Forwarder
from support.quotas import CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, quota
from support.raw_log import range_of
from support.raw_producer import RawProducer
from support.servers import connect
from support.topics import create_topic, unique
from txnwatch.state.model.ports import ListedOffset
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.connection import Connection
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.client.security import Security
from txnwatch.streaming.log.fetch import read_ranges
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

BATCH = 500_000
PATIENCE_S = 2.0


class Behind(Cluster):
    """A cluster of one broker that is reached through a forwarder."""

    def __init__(self, forwarder: Forwarder) -> None:
        super().__init__([Endpoint.parse(forwarder.address)], Security(), timeout_s=PATIENCE_S)

    def node(self, node_id: int) -> Connection:
        """The one broker, whatever address it advertises."""
        del node_id
        return self.connection(self.bootstrap[0])


def write(cluster: Cluster, batches: int) -> tuple[TopicPartition, int]:
    """A topic with so many batches of half a megabyte; returns where it ends."""
    (partition,) = create_topic(cluster, unique("large"))
    producer = RawProducer(cluster, unique("large")).init()
    for _ in range(batches):
        producer.produce(partition, [bytes(BATCH)], transactional=False)
    return partition, batches


@contextlib.contextmanager
def behind(kafka: EmbeddedKafka, bytes_per_s: int) -> Iterator[tuple[Behind, Forwarder]]:
    host, _, port = kafka.bootstrap_servers.partition(":")
    with Forwarder((host, int(port)), bytes_per_s=bytes_per_s) as forwarder:
        forwarder.start()
        with contextlib.closing(Behind(forwarder)) as found:
            found.refresh()
            yield found, forwarder


def test_a_throttled_partition_is_read_to_its_end_and_is_no_gap(kafka: EmbeddedKafka, cluster: Cluster) -> None:
    partition, end = write(cluster, 16)
    rate = 512 * 1024
    with quota(cluster, CONSUMER_BYTE_RATE, rate), contextlib.closing(connect(kafka, timeout_s=PATIENCE_S)) as ours:
        ours.refresh()
        give_up_at = time.monotonic() + 60.0
        # A broker applies a quota some time after it has accepted it: the first read can be over before that.
        while not ours.throttled_ms["Fetch"] and time.monotonic() < give_up_at:
            read = range_of(ours, partition, 0, end)
            began = time.monotonic()
            read_ranges(ours, [read], patience_s=PATIENCE_S)
            took_s = time.monotonic() - began
    assert read.notices == []
    assert read.fold.offsets == list(range(end))
    assert took_s < 4 * end * BATCH / rate
    assert ours.throttled_ms["Fetch"] > 0


@pytest.mark.long
def test_an_answer_that_takes_longer_than_patience_is_read_for_as_long_as_it_comes(
    kafka: EmbeddedKafka, cluster: Cluster
) -> None:
    partition, end = write(cluster, 12)
    with behind(kafka, 1 << 20) as (slow, _):
        read = range_of(slow, partition, 0, end)
        began = time.monotonic()
        read_ranges(slow, [read], patience_s=PATIENCE_S)
        took_s = time.monotonic() - began
    assert read.notices == []
    assert read.fold.offsets == list(range(end))
    assert took_s < 3 * end * BATCH / (1 << 20), "no answer was asked for twice"


@pytest.mark.long
def test_a_link_that_stalls_is_a_gap_in_time(kafka: EmbeddedKafka, cluster: Cluster) -> None:
    partition, end = write(cluster, 12)
    with behind(kafka, 1 << 20) as (slow, link):
        read = range_of(slow, partition, 0, end, on_feed=lambda fold: fold.position > 2 and link.is_stalled.set())
        began = time.monotonic()
        read_ranges(slow, [read], patience_s=PATIENCE_S)
        took_s = time.monotonic() - began
        link.is_stalled.clear()
    (notice,) = read.notices
    assert (notice.kind, notice.from_offset, notice.to_offset) == ("gap", read.fold.position, end)
    assert took_s < 30.0


@pytest.mark.parametrize("stop_after_s", [0.0, 2.0])
def test_reading_stops_at_a_given_time_with_what_it_has(
    kafka: EmbeddedKafka, cluster: Cluster, stop_after_s: float
) -> None:
    partition, end = write(cluster, 16)
    with behind(kafka, 1 << 20) as (slow, _):
        read = range_of(slow, partition, 0, end)
        began = time.monotonic()
        read_ranges(slow, [read], patience_s=PATIENCE_S, until=began + stop_after_s)
        took_s = time.monotonic() - began
    assert took_s < stop_after_s + 5.0
    assert read.notices == []
    assert read.needs_fetch
    assert read.fold.offsets == list(range(read.fold.position)), "what came before is kept"


def test_a_budget_that_ends_is_a_gap_whatever_the_throttle(kafka: EmbeddedKafka, cluster: Cluster) -> None:
    partition, end = write(cluster, 16)
    with quota(cluster, CONSUMER_BYTE_RATE, 128 * 1024), contextlib.closing(connect(kafka)) as ours:
        ours.refresh()
        read = range_of(ours, partition, 0, end)
        began = time.monotonic()
        with ours.budget(3.0):
            read_ranges(ours, [read], patience_s=60.0)
        assert time.monotonic() - began < 8.0
    (notice,) = read.notices
    assert (notice.kind, notice.to_offset) == ("gap", end)
    assert "budget" in notice.detail


def test_every_request_counts_its_throttle_time_and_the_next_one_waits(kafka: EmbeddedKafka, cluster: Cluster) -> None:
    partition, _ = write(cluster, 1)
    with quota(cluster, REQUEST_PERCENTAGE, 0.01), contextlib.closing(connect(kafka, timeout_s=0.5)) as ours:
        ours.refresh()
        answers = []
        give_up_at = time.monotonic() + 60.0
        # The broker counts its own time for a request, which is a fraction of a millisecond: how many requests it
        # takes until the quota is used up depends on the machine.
        while not ours.throttled_ms["ListOffsets"] and time.monotonic() < give_up_at:
            answers.append(ours.list_offsets([partition])[partition])
        throttled_ms = ours.throttled_ms["ListOffsets"]
        began = time.monotonic()
        answers.append(ours.list_offsets([partition])[partition])
        waited_s = time.monotonic() - began
    assert all(isinstance(answer, ListedOffset) for answer in answers), "the wait is nobody's patience"
    assert throttled_ms > 0
    assert waited_s >= throttled_ms / 1_000 - 0.1
