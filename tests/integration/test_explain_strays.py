"""`explain` of an id whose write hangs where neither its coordinator nor the log names a partition, really."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from support.answered import answered
from support.kafka_faults import end_by_hand, stray_write
from support.raw_producer import RawProducer
from support.servers import Clusters, connect
from support.topics import create_topic, unique
from support.waiting import eventually
from txnwatch.cli.main import main
from txnwatch.state.model.transaction import UnknownTransactionalId
from txnwatch.state.model.values import TimestampMs, TopicPartition
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import set_verification

LIVES_MS = 4_000
EXPIRES = {
    "transactional.id.expiration.ms": str(LIVES_MS),
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
}
Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def old(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """A broker that does not verify that a partition is in a transaction, and whose ids expire soon."""
    directory = tmp_path_factory.mktemp("old")
    kafka = clusters.start("old", lambda: EmbeddedKafka(directory, properties=EXPIRES))
    set_verification(kafka.bootstrap_servers, [1], enabled=False)
    yield kafka
    clusters.end("old")


@pytest.fixture
def cluster(old: EmbeddedKafka) -> Iterator[Cluster]:
    with closing(connect(old)) as found:
        yield found


@pytest.fixture
def hang(cluster: Cluster) -> Iterator[tuple[RawProducer, TopicPartition]]:
    """A write of an id to a partition that was never in a transaction."""
    (partition,) = create_topic(cluster, unique("orders"))
    producer = stray_write(cluster, unique("app"), partition)
    yield producer, partition
    end_by_hand(cluster, partition, producer.producer_id, commit=False)


@pytest.fixture
def ask(old: EmbeddedKafka, capsys: pytest.CaptureFixture[str]) -> Ask:
    def asked(*target: str, code: int) -> dict[str, Any]:
        found = answered(capsys, "explain", *target, "--bootstrap-server", old.bootstrap_servers, "--fail-on-found")
        assert found.code == code
        return found.row

    return asked


def is_hang(row: dict[str, Any], producer: RawProducer, partition: TopicPartition) -> bool:
    assert "It is idle" not in " ".join(row["text"])
    return (row["state"], row["producer_id"]) == ("hanging", producer.producer_id) and f"{partition}: HANGING." in row[
        "text"
    ]


def test_a_live_id_whose_stray_write_hangs_is_not_idle(ask: Ask, hang: tuple[RawProducer, TopicPartition]) -> None:
    producer, partition = hang
    row = ask("--transactional-id", producer.transactional_id, code=3)
    assert is_hang(row, producer, partition)
    assert row["next"].startswith("txnwatch fence ")


def test_an_id_that_has_expired_is_not_clear_while_its_write_hangs(
    cluster: Cluster, ask: Ask, hang: tuple[RawProducer, TopicPartition]
) -> None:
    producer, partition = hang
    name, admin = producer.transactional_id, ClusterAdmin(cluster)
    gone = UnknownTransactionalId
    eventually(lambda: isinstance(admin.describe_transactions([name])[name], gone), 30.0, f"{name} to expire")
    for target in ((name,), ("--transactional-id", name), (str(producer.producer_id),)):
        assert is_hang(ask(*target, code=3), producer, partition)


def test_an_id_without_open_data_says_where_it_looked(cluster: Cluster, ask: Ask) -> None:
    create_topic(cluster, unique("other"))
    producer = RawProducer(cluster, unique("app")).init()
    row = ask("--transactional-id", producer.transactional_id, code=0)
    assert row["state"] == "idle"
    assert "It is idle: it waits for nothing. Nothing of it is open on any of the " in " ".join(row["text"])


@pytest.mark.parametrize("stamp_ms", [0, 1_795_000_000], ids=["0", "in seconds"])
def test_a_timestamp_that_cannot_be_right_makes_no_age_of_decades(
    old: EmbeddedKafka, cluster: Cluster, ask: Ask, capsys: pytest.CaptureFixture[str], stamp_ms: int
) -> None:
    (partition,) = create_topic(cluster, unique("orders"))
    producer = RawProducer(cluster, unique("app")).init()
    producer.produce(partition, timestamp_ms=TimestampMs(stamp_ms))
    row = ask(str(partition), code=3)
    assert "Its last write was after 20" in " ".join(row["text"])
    command = ("find-hanging", "--topic", partition.topic, "--bootstrap-server", old.bootstrap_servers)
    found = answered(capsys, *command)
    assert (found.code, found.row["last_timestamp_ms"], found.row["duration_ms"] < 60_000) == (0, stamp_ms, True)
    assert main(command) == 0
    assert f"{partition}: the timestamp of the last write cannot be when it was written" in capsys.readouterr().out
    end_by_hand(cluster, partition, producer.producer_id, commit=False)
