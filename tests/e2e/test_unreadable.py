"""A disk that has lost a batch: what lies behind it is judged all the same, on a real broker and by the whole job."""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from support.kafka_faults import late_write_after_abort
from support.raw_log import range_of
from support.raw_producer import RawProducer
from support.servers import Clusters, connect, create_coordinators
from support.topics import create_topic, is_led, unique
from support.waiting import eventually
from support.watch import RunningWatch, events_about
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.log.fetch import read_ranges
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import set_verification

pytestmark = pytest.mark.long

NAME = "broken-disk"
SEGMENT_BYTES, BATCH_BYTES, BATCHES, LOST = 1 << 20, 200_000, 12, 2
REPORTED_S = 60.0
EVENTS = "unreadable.events"


@dataclass(frozen=True)
class Broken:
    """A partition of which the batch at LOST cannot be read, and in which a hang begins at `start`."""

    kafka: EmbeddedKafka
    partition: TopicPartition
    start: int


@pytest.fixture(scope="module")
def broken(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broken]:
    directory = tmp_path_factory.mktemp(NAME)
    kafka = clusters.start(NAME, lambda: EmbeddedKafka(directory))
    set_verification(kafka.bootstrap_servers, [1], enabled=False)
    create_coordinators(kafka)
    with contextlib.closing(connect(kafka)) as cluster:
        (partition,) = create_topic(cluster, unique("unreadable"), config={"segment.bytes": str(SEGMENT_BYTES)})
        producer = RawProducer(cluster, unique("unreadable")).init()
        for _ in range(BATCHES):
            producer.produce(partition, [bytes(BATCH_BYTES)], transactional=False)
        late_write_after_abort(cluster, unique("zombie"), partition)
        kafka.broker(1).stop()
        spoil(kafka, partition)
        kafka.start_broker(1)
        eventually(lambda: is_led(cluster, partition), 30.0, "the partition to be led again")
    yield Broken(kafka, partition, BATCHES + 2)
    clusters.end(NAME)


def spoil(kafka: EmbeddedKafka, partition: TopicPartition) -> None:
    """Makes the length in front of one batch of the oldest segment negative."""
    (segment,) = kafka.log_directory(1).glob(f"{partition}/{0:020}.log")
    with segment.open("r+b") as file:
        for _ in range(LOST):
            _, length = struct.unpack(">qi", file.read(12))
            file.seek(length, 1)
        file.seek(8, 1)
        file.write(struct.pack(">i", -1))


def test_a_range_that_its_leader_cannot_read_is_a_gap_at_once(broken: Broken) -> None:
    with contextlib.closing(connect(broken.kafka)) as cluster:
        cluster.refresh()
        first = range_of(cluster, broken.partition, 0, broken.start)
        again = range_of(cluster, broken.partition, LOST, broken.start)
        behind = range_of(cluster, broken.partition, BATCHES, broken.start)
        began = time.monotonic()
        read_ranges(cluster, [first], patience_s=60.0)
        read_ranges(cluster, [again, behind], patience_s=60.0)
        assert time.monotonic() - began < 20.0, "whatever the patience"
    for read in (first, again):
        (notice,) = read.notices
        assert (notice.kind, notice.from_offset, notice.to_offset) == ("gap", LOST, broken.start)
    assert "CORRUPT_MESSAGE" in again.notices[0].detail.upper()
    assert first.fold.offsets == list(range(LOST)), "what came before is kept"
    assert (behind.notices, behind.fold.offsets) == ([], [BATCHES, BATCHES + 1]), "what comes behind is read"


def test_a_hang_behind_an_unreadable_range_is_reported(
    broken: Broken, tmp_path_factory: pytest.TempPathFactory
) -> None:
    flags = ("--topics", broken.partition.topic, "--starting-offsets", "earliest", "--events-topic", EVENTS)
    servers = broken.kafka.bootstrap_servers
    with RunningWatch(servers, tmp_path_factory.mktemp("checkpoint"), *flags) as watch:
        watch.until_ready()
        event, *_ = eventually(lambda: events_about(servers, broken.partition, EVENTS), REPORTED_S, "the hang")
        assert (event.verdict, event.txn_start_offset) == ("hanging", broken.start)
        assert "lost" in watch.until("given up after", timeout_s=REPORTED_S), "the census need not wait for that"
