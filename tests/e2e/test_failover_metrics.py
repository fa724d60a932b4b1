"""A transaction that is decided under one coordinator and complete under another, as a scrape shows it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from support.broker_faults import in_sync
from support.metrics import Scrape
from support.raw_producer import RawProducer
from support.servers import connect, whole
from support.topics import create_topic, unique
from support.waiting import eventually
from support.watch import RunningWatch
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, coordinator_partition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

pytestmark = pytest.mark.long

COORDINATOR, LEADER, FOLLOWER = 1, 2, 3
PATIENCE_S = 60.0
COMMITTED = {"target_state": "CompleteCommit"}
STAGES = ("failover_completion", "completion", "marker_completion")


@pytest.fixture
def cluster(kafka3: EmbeddedKafka) -> Iterator[Cluster]:
    whole(kafka3)
    with closing(connect(kafka3)) as found:
        yield found
    whole(kafka3)


def counts(scrape: Scrape) -> dict[str, float]:
    return {stage: scrape.value(f"transaction_{stage}_seconds_count", **COMMITTED) or 0.0 for stage in STAGES}


def test_an_end_under_another_coordinator_is_counted_separately(
    kafka3: EmbeddedKafka, cluster: Cluster, tmp_path: Path
) -> None:
    """While a replica is away no marker is accepted; in the meantime the coordinator's broker starts anew."""
    topic = unique("moved")
    (partition,) = create_topic(cluster, topic, replicas=[[LEADER, FOLLOWER]], config={"min.insync.replicas": "2"})
    flags = ("--topics", f"{topic}|__.*", "--events-topic", "moved.events", "--http-port", "0")
    with RunningWatch(kafka3.bootstrap_servers, tmp_path, *flags) as watch:
        watch.until_ready()
        before = counts(Scrape.at(watch.metrics_url))
        producer = RawProducer(cluster, coordinated_by_the_controller(cluster)).init()
        producer.add(partition)
        producer.produce(partition)
        kafka3.broker(FOLLOWER).kill()
        eventually(lambda: in_sync(cluster, partition) == {LEADER}, PATIENCE_S, "the follower to be out of sync")
        producer.end(commit=True)

        def is_pending() -> bool:
            now = Scrape.at(watch.metrics_url)
            age_s = now.value("oldest_pending_transaction_seconds") or 0
            return now.value("transactions_pending_markers", **COMMITTED) == 1 and age_s > 2

        eventually(is_pending, PATIENCE_S, "a transaction that waits for its marker")
        kafka3.broker(COORDINATOR).kill()
        kafka3.start_broker(COORDINATOR)
        assert counts(Scrape.at(watch.metrics_url)) == before
        kafka3.start_broker(FOLLOWER)
        expected = {**before, "failover_completion": before["failover_completion"] + 1}
        expected["completion"] += 1
        eventually(lambda: counts(Scrape.at(watch.metrics_url)) == expected, PATIENCE_S, "the end across the failover")
        now = Scrape.at(watch.metrics_url)
        assert (now.value("transaction_failover_completion_seconds_sum", **COMMITTED) or 0) > 2
        eventually(
            lambda: Scrape.at(watch.metrics_url).value("oldest_pending_transaction_seconds") == 0,
            PATIENCE_S,
            "nothing to be pending",
        )


def coordinated_by_the_controller(cluster: Cluster) -> str:
    """A transactional id whose coordinator is broker 1."""
    log = cluster.refresh().topics[TRANSACTION_STATE_TOPIC].partitions
    names = (unique("moved") for _ in range(1000))
    return next(name for name in names if log[coordinator_partition(name, len(log))].leader == COORDINATOR)
