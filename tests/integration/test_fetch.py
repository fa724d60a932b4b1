"""read_ranges against three real brokers: leaders die, logs are cut, topics go; every offset is walked or reported."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition as Position

from support.raw_log import RawFold, range_of
from support.raw_producer import RawProducer
from support.servers import connect, whole
from support.topics import FAILOVER_S, admin_of, await_leader, create_topic, delete_topic, is_led, unique
from support.waiting import eventually
from txnwatch.state.model.errors import WireError
from txnwatch.state.model.facts import NoticeKind
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log import fetch
from txnwatch.streaming.log.fetch import read_ranges
from txnwatch.streaming.log.range_reading import RangeReading
from txnwatch.streaming.wire.fetch_response import FetchAnswer, decode_fetch_response
from txnwatch_demo.embedded.real_servers import EmbeddedKafka


@pytest.fixture
def cluster(kafka3: EmbeddedKafka) -> Iterator[Cluster]:
    """Fresh connections; afterwards every broker runs again."""
    with contextlib.closing(connect(kafka3)) as found:
        yield found
    whole(kafka3)


@pytest.fixture
def producer(cluster: Cluster) -> RawProducer:
    return RawProducer(cluster, unique("fetch")).init()


@pytest.fixture
def small_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A response brings a batch or two, so that reading takes many of them."""
    monkeypatch.setattr(fetch, "PARTITION_MAX_BYTES", (200, 200))
    monkeypatch.setattr(fetch, "MAX_BYTES", 200)


def write(producer: RawProducer, partition: TopicPartition, batches: int) -> int:
    """Writes so many batches of two records, outside of any transaction; returns where the log ends then."""
    base = 0
    for _ in range(batches):
        base = producer.produce(partition, [b"one", b"two"], transactional=False)
    return base + 2


def kinds(read: RangeReading) -> list[tuple[str, int, int]]:
    return [(notice.kind, notice.from_offset, notice.to_offset) for notice in read.notices]


@pytest.mark.usefixtures("small_answers")
def test_many_partitions_and_tiny_answers_are_read_to_the_last_offset(cluster: Cluster, producer: RawProducer) -> None:
    partitions = create_topic(cluster, unique("many"), replicas=[[1 + number % 3] for number in range(45)])
    ends = {partition: write(producer, partition, 3) for partition in partitions}
    reads = [range_of(cluster, partition, 0, end) for partition, end in ends.items()]

    read_ranges(cluster, reads, patience_s=10.0)

    assert [read.fold.offsets for read in reads] == [list(range(6))] * len(partitions)
    assert [read.notices for read in reads] == [[]] * len(partitions)
    assert all(read.fold.responses > 1 for read in reads), "no answer brought everything"


def test_only_what_was_asked_for_is_read(cluster: Cluster, producer: RawProducer) -> None:
    (partition,) = create_topic(cluster, unique("part"))
    write(producer, partition, 5)
    read = range_of(cluster, partition, 2, 6)
    read_ranges(cluster, [read], patience_s=10.0)
    assert read.fold.offsets == [2, 3, 4, 5]
    assert read.fold.position == 6


def test_a_topic_that_the_metadata_does_not_have_yet_is_looked_up_and_read(
    kafka3: EmbeddedKafka, cluster: Cluster, producer: RawProducer
) -> None:
    with contextlib.closing(connect(kafka3)) as other:
        other.refresh()
        (partition,) = create_topic(cluster, unique("newer-than-metadata"))
        end = write(producer, partition, 2)
        read = range_of(cluster, partition, 0, end)
        read_ranges(other, [read], patience_s=10.0)
    assert read.notices == []
    assert read.fold.offsets == list(range(end))


@pytest.mark.usefixtures("small_answers")
def test_a_leader_that_dies_in_the_middle_loses_nothing(
    kafka3: EmbeddedKafka, cluster: Cluster, producer: RawProducer
) -> None:
    (partition,) = create_topic(cluster, unique("failover"), replicas=[[2, 3, 1]])
    await_leader(cluster, partition, 2)
    end = write(producer, partition, 30)
    killed_at: list[int] = []

    def kill_in_the_middle(fold: RawFold) -> None:
        if not killed_at and fold.position >= end // 2:
            kafka3.broker(2).kill()
            killed_at.append(fold.position)

    read = range_of(cluster, partition, 0, end, on_feed=kill_in_the_middle)
    read_ranges(cluster, [read], patience_s=FAILOVER_S)

    assert 0 < killed_at[0] < end - 2
    assert read.notices == []
    assert read.fold.offsets == list(range(end))
    info = cluster.known.info(partition)
    assert info is not None
    assert info.leader in {1, 3}


@pytest.mark.usefixtures("small_answers")
def test_a_partition_that_loses_its_only_leader_ends_in_a_gap_and_the_others_are_read(
    kafka3: EmbeddedKafka, cluster: Cluster, producer: RawProducer
) -> None:
    lonely, safe = create_topic(cluster, unique("leaderless"), replicas=[[3], [1]])
    ends = {partition: write(producer, partition, 10) for partition in (lonely, safe)}

    def kill(_: RawFold) -> None:
        if kafka3.broker(3).is_running:
            kafka3.broker(3).kill()

    reads = [range_of(cluster, lonely, 0, ends[lonely], on_feed=kill), range_of(cluster, safe, 0, ends[safe])]
    started = time.monotonic()
    read_ranges(cluster, reads, patience_s=1.0)
    assert 1.0 <= time.monotonic() - started < 5.0
    assert (reads[1].notices, reads[1].fold.offsets) == ([], list(range(ends[safe])))
    (notice,) = reads[0].notices
    position = reads[0].fold.position
    assert 0 < position < ends[lonely]
    assert reads[0].fold.offsets == list(range(position)), "what came before is kept"
    assert (notice.kind, notice.partition, notice.topic_id) == (NoticeKind.GAP, lonely, reads[0].topic_id)
    assert (notice.from_offset, notice.to_offset) == (position, ends[lonely])
    assert "127.0.0.1:" in notice.detail, "it names the broker"

    await_leader(cluster, lonely, None)
    later = range_of(cluster, lonely, position, ends[lonely])
    read_ranges(cluster, [later], patience_s=0.5)
    assert kinds(later) == [(NoticeKind.GAP, position, ends[lonely])]
    assert later.notices[0].detail == "no leader"

    kafka3.start_broker(3)
    eventually(lambda: is_led(cluster, lonely), FAILOVER_S, "the leader to be back")
    again = range_of(cluster, lonely, position, ends[lonely])
    read_ranges(cluster, [again], patience_s=10.0)
    assert (again.notices, again.fold.offsets) == ([], list(range(position, ends[lonely])))


def delete_records(cluster: Cluster, partition: TopicPartition, before: int) -> None:
    admin = admin_of(cluster)
    (done,) = admin.delete_records([Position(partition.topic, partition.partition, before)]).values()
    assert done.result(15.0).low_watermark == before


def test_deleted_records_are_lost_and_reading_continues_at_the_start_of_the_log(
    cluster: Cluster, producer: RawProducer
) -> None:
    (partition,) = create_topic(cluster, unique("deleted-records"))
    end = write(producer, partition, 10)
    delete_records(cluster, partition, 8)
    read = range_of(cluster, partition, 2, end)
    read_ranges(cluster, [read], patience_s=10.0)
    assert kinds(read) == [(NoticeKind.LOST, 2, 8)]
    assert "the log starts at 8" in read.notices[0].detail
    assert read.fold.offsets == list(range(8, end))


@pytest.mark.usefixtures("small_answers")
def test_records_deleted_while_they_are_read_are_lost_from_the_position_of_the_reading(
    cluster: Cluster, producer: RawProducer
) -> None:
    (partition,) = create_topic(cluster, unique("deleted-meanwhile"))
    end = write(producer, partition, 20)
    stood: list[int] = []

    def delete_in_the_middle(fold: RawFold) -> None:
        if not stood and fold.position > 4:
            delete_records(cluster, partition, end - 4)
            stood.append(fold.position)

    read = range_of(cluster, partition, 0, end, on_feed=delete_in_the_middle)
    read_ranges(cluster, [read], patience_s=10.0)
    ((kind, lost_from, lost_to),) = kinds(read)
    assert (kind, lost_to) == (NoticeKind.LOST, end - 4)
    assert stood[0] <= lost_from < end - 4
    assert read.fold.offsets == list(range(end - 4, end)), "the fold begins anew where the log does"


def test_a_range_that_is_deleted_altogether_is_lost_and_done(cluster: Cluster, producer: RawProducer) -> None:
    (partition,) = create_topic(cluster, unique("all-deleted"))
    end = write(producer, partition, 3)
    delete_records(cluster, partition, end)
    read = range_of(cluster, partition, 0, end)
    read_ranges(cluster, [read], patience_s=10.0)
    assert kinds(read) == [(NoticeKind.LOST, 0, end)]
    assert read.fold.offsets == []
    assert not read.needs_fetch


def test_a_deleted_topic_ends_the_read(cluster: Cluster, producer: RawProducer) -> None:
    (partition,) = create_topic(cluster, unique("deleted"))
    end = write(producer, partition, 2)
    read = range_of(cluster, partition, 0, end)
    delete_topic(cluster, partition.topic)
    read_ranges(cluster, [read], patience_s=10.0)
    assert kinds(read) == [(NoticeKind.DELETED, 0, end)]
    assert not read.needs_fetch


def test_a_topic_created_again_under_its_name_is_another_one(cluster: Cluster, producer: RawProducer) -> None:
    name = unique("recreated")
    (partition,) = create_topic(cluster, name)
    write(producer, partition, 5)
    former = range_of(cluster, partition, 0, 10)
    delete_topic(cluster, name)
    create_topic(cluster, name)
    end = write(RawProducer(cluster, unique("fetch")).init(), partition, 1)
    current = range_of(cluster, partition, 0, end)
    assert current.topic_id != former.topic_id
    read_ranges(cluster, [former], patience_s=10.0)
    read_ranges(cluster, [current], patience_s=10.0)
    assert (kinds(former), former.fold.offsets) == ([(NoticeKind.DELETED, 0, 10)], [])
    assert (kinds(current), current.fold.offsets) == ([], [0, 1])


def test_an_answer_that_cannot_be_decoded_ends_in_a_gap_that_names_the_broker(
    cluster: Cluster, producer: RawProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (partition,) = create_topic(cluster, unique("undecodable"))
    end = write(producer, partition, 2)

    def fails(body: memoryview, version: int) -> FetchAnswer:
        return decode_fetch_response(body[:7], version)

    monkeypatch.setattr(fetch, "decode_fetch_response", fails)
    read = range_of(cluster, partition, 0, end)
    read_ranges(cluster, [read], patience_s=0.5)
    assert kinds(read) == [(NoticeKind.GAP, 0, end)]
    assert "127.0.0.1:" in read.notices[0].detail
    assert "session id at byte 6" in read.notices[0].detail
    assert not read.notices[0].is_decode_failure


def test_a_batch_that_cannot_be_decoded_is_a_gap_with_its_own_mark(
    cluster: Cluster, producer: RawProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (partition,) = create_topic(cluster, unique("undecodable-batch"))
    end = write(producer, partition, 2)
    read = range_of(cluster, partition, 0, end)

    def fails(*_: object) -> None:
        raise WireError("magic", 16, 9, "2 or lower")

    monkeypatch.setattr(type(read.fold), "feed", fails)
    read_ranges(cluster, [read], patience_s=0.5)
    assert kinds(read) == [(NoticeKind.GAP, 0, end)]
    assert read.notices[0].is_decode_failure
