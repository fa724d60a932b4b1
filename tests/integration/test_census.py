"""A census of real partitions: what their leader has open below an end, bracketed, and nothing else."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import TopicPartition as ConfluentPartition

from support.answers import listed
from support.facts import BucketRun
from support.raw_producer import RawProducer
from support.topics import admin_of, create_topic, delete_topic, unique
from support.waiting import eventually
from txnwatch.page.knowledge import Knowledge
from txnwatch.page.picture import picture_of
from txnwatch.page.store import KnownNow, PageStore
from txnwatch.state.detection.open_transactions import LastOpenLists
from txnwatch.state.model.facts import CensusListing, CensusTaken, Fact, OpenDescribed
from txnwatch.state.model.values import CoordinatorAccess, TimestampMs, TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.source.census_schedule import Asked, Census, take_census


@pytest.fixture
def partition(cluster: Cluster) -> TopicPartition:
    (created,) = create_topic(cluster, unique("census"))
    return created


@pytest.fixture
def opened(cluster: Cluster, partition: TopicPartition) -> list[RawProducer]:
    """Three transactions on one partition: committed, open from 3, open from 5."""
    producers = [RawProducer(cluster, unique("census")).init() for _ in range(3)]
    for number, producer in enumerate(producers):
        producer.add(partition)
        producer.produce(partition, [b"a", b"b"])
        if number == 0:
            producer.end(commit=True)
            eventually(lambda: listed(cluster, partition).offset == 3, 10.0, "the commit marker")
    return producers


def topic_id(cluster: Cluster, partition: TopicPartition) -> str:
    return cluster.refresh().topics[partition.topic].topic_id


def taken(cluster: Cluster, partition: TopicPartition, asked: Asked) -> tuple[CensusTaken, dict[int, int]]:
    facts: list[Fact] = list(take_census(cluster, Census({partition: asked}, 1, is_round=True)))
    (census,) = [fact for fact in facts if isinstance(fact, CensusTaken)]
    return census, {fact.producer_id: fact.start_offset for fact in facts if isinstance(fact, OpenDescribed)}


def test_without_a_scan_it_covers_all_below_the_end(
    cluster: Cluster, partition: TopicPartition, opened: list[RawProducer]
) -> None:
    known_id = topic_id(cluster, partition)
    census, found = taken(cluster, partition, Asked(known_id))
    assert census == CensusTaken(
        {partition: CensusListing(known_id, 7, 3, is_scanned=False)}, frozenset(), is_round=True
    )
    assert found == {opened[1].producer_id: 3, opened[2].producer_id: 5}


def test_its_offsets_are_on_the_page_as_they_are_now(
    cluster: Cluster, partition: TopicPartition, opened: list[RawProducer]
) -> None:
    run, driver, store = BucketRun(), LastOpenLists(), PageStore(access=CoordinatorAccess.LOG)
    known_id = topic_id(cluster, partition)

    def lane() -> Any:
        """The lane after a round of the census, as the driver of a watch makes it."""
        run.batch(*take_census(cluster, Census({partition: Asked(known_id)}, 1, is_round=True)))
        store.take(driver.whole(run.everything), KnownNow(incidents=()), TimestampMs(run.now_ms))
        known = Knowledge(store=store, seen=store.seen, now_ms=TimestampMs(run.now_ms))
        return picture_of(known)["lanes"].get(str(partition))

    first = lane()
    assert (first["last_stable"], first["end"], first["hidden"]) == (3, 7, 4)
    assert first["holder"]["producer_id"] == opened[1].producer_id
    opened[2].produce(partition, [b"c", b"d", b"e"])
    assert (lane()["end"], lane()["hidden"]) == (10, 7), "what was written since is hidden as well"
    opened[1].end(commit=True)
    eventually(lambda: listed(cluster, partition).offset == 11, 10.0, "the commit marker")
    moved = lane()
    assert (moved["last_stable"], moved["end"], moved["hidden"]) == (5, 11, 6)
    assert moved["holder"]["producer_id"] == opened[2].producer_id
    opened[2].end(commit=True)
    eventually(lambda: listed(cluster, partition).offset == 12, 10.0, "the other marker")
    assert lane() is None


def test_of_a_scanned_partition_it_covers_what_lies_below_the_read_end(
    cluster: Cluster, partition: TopicPartition, opened: list[RawProducer]
) -> None:
    known_id = topic_id(cluster, partition)
    census, found = taken(cluster, partition, Asked(known_id, below=5, is_first=True))
    assert census.taken == {partition: CensusListing(known_id, 5, 3, is_scanned=True, is_first=True)}
    assert found == {opened[1].producer_id: 3}


def test_a_deleted_beginning_is_still_reported(
    cluster: Cluster, partition: TopicPartition, opened: list[RawProducer]
) -> None:
    wanted = ConfluentPartition(partition.topic, partition.partition, 7)
    admin = admin_of(cluster)
    admin.delete_records([wanted])[wanted].result(10.0)
    census, found = taken(cluster, partition, Asked(topic_id(cluster, partition), below=7))
    assert census.taken[partition].stable == 7, "the last stable offset shows that nothing is open"
    assert found == {opened[1].producer_id: 3, opened[2].producer_id: 5}


@pytest.mark.parametrize(
    "asked",
    [Asked("bm90LXRoZS1pZC1hdC1hbGw"), Asked("", below=1_000)],
    ids=["another topic of that name", "no longer as long"],
)
def test_a_partition_without_both_listings_has_failed(
    cluster: Cluster, partition: TopicPartition, asked: Asked
) -> None:
    asked = Asked(asked.topic_id or topic_id(cluster, partition), asked.below)
    census, found = taken(cluster, partition, asked)
    assert (census.taken, census.failed, found) == ({}, {partition}, {})
    assert census.failed_scanned == ({partition} if asked.is_scanned else set())


def test_an_unknown_partition_has_failed(cluster: Cluster) -> None:
    nowhere = TopicPartition(unique("nowhere"), 0)
    census, found = taken(cluster, nowhere, Asked("bm90LXRoZS1pZC1hdC1hbGw"))
    assert (census.taken, census.failed, found) == ({}, {nowhere}, {})


def test_a_re_created_topic_does_not_count_as_the_old_one(cluster: Cluster, partition: TopicPartition) -> None:
    with closing(Cluster(cluster.bootstrap, cluster.security)) as late:
        old_id = topic_id(late, partition)
        delete_topic(cluster, partition.topic)
        create_topic(cluster, partition.topic)
        producer = RawProducer(cluster, unique("census")).init()
        producer.add(partition)
        producer.produce(partition, [b"a"])
        census, _ = taken(late, partition, Asked(old_id))
        assert (census.taken, census.failed) == ({}, {partition})
