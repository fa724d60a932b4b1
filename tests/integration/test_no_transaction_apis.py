"""A broker without the requests of KIP-664 and without a visible `__transaction_state`, as some managed services are.

The logs of the partitions and their last stable offsets are the only evidence.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from support.gate import DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS, Gate, GatedKafka
from support.kafka_faults import abort_by_hand
from support.raw_producer import RawProducer
from support.servers import Clusters, connect
from support.topics import create_topic, unique
from support.waiting import eventually
from support.watch import RunningWatch, events_about
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.late_write import set_verification

LONGEST_MS = 5_000
EVENTS = "no-apis.events"
PROPERTIES = {
    "transaction.max.timeout.ms": str(LONGEST_MS),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


@pytest.fixture(scope="module")
def service(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatedKafka]:
    directory = tmp_path_factory.mktemp("no-apis")
    with Gate() as gate:
        gate.hidden.add(TRANSACTION_STATE_TOPIC)
        gate.unsupported |= {DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS}
        started = clusters.start("no_apis", lambda: GatedKafka(directory, gate, properties=PROPERTIES))
        assert isinstance(started, GatedKafka)
        set_verification(started.bootstrap_servers, [1], enabled=False)
        yield started
        clusters.end("no_apis")


@pytest.fixture
def cluster(service: GatedKafka) -> Iterator[Cluster]:
    with closing(connect(service)) as cluster:
        yield cluster


@pytest.mark.long
def test_late_data_is_found_and_resolved_by_the_logs_alone(
    service: GatedKafka, cluster: Cluster, tmp_path: Path
) -> None:
    (partition,) = create_topic(cluster, unique("data"))
    healthy = RawProducer(cluster, "healthy", LONGEST_MS).init()
    older, younger = (RawProducer(cluster, name, LONGEST_MS).init() for name in ("older", "younger"))

    def events_of(producer: RawProducer) -> list[tuple[str, str]]:
        found = events_about(service.bootstrap_servers, partition, EVENTS)
        return [(one.status, one.verdict) for one in found if one.producer_id == producer.producer_id]

    flags = ("--events-topic", EVENTS, "--late-buffer-ms", "500", "--coordinator-scan-interval-ms", "1000")
    with RunningWatch(service.gate.address, tmp_path / "checkpoint", *flags) as watch:
        watch.until("coordinator view: none")
        watch.until("ready: ")
        older.produce(partition)
        younger.produce(partition)
        eventually(lambda: events_of(older), 60.0, "the oldest open data to be late")
        healthy.add(partition)
        healthy.produce(partition)
        healthy.end(commit=True)
        assert events_of(older) == [("opened", "late")]
        assert events_of(younger) == [], "it cannot be confirmed below an older open transaction"
        abort_by_hand(cluster, partition, older.producer_id)
        eventually(lambda: ("resolved", "late") in events_of(older), 60.0, "its marker to end the incident")
        eventually(lambda: events_of(younger), 60.0, "the next open data to be late")
        assert events_of(younger) == [("opened", "late")]
    assert events_of(healthy) == []
