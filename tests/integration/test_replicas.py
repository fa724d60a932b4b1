"""Too few in-sync replicas, and no leader: who is missing is named, and no step takes the last replica offline."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.answered import Answered, answered
from support.kafka_faults import stray_write
from support.raw_producer import RawProducer
from support.servers import Clusters, connect, create_coordinators, whole
from support.topics import FAILOVER_S, await_leader, coordinated_by, create_topic, unique
from support.waiting import eventually
from txnwatch.state.model.transaction import DescribedTransaction, TransactionState
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, DurationMs, TopicPartition
from txnwatch.streaming.admin.replicas import read_replicas
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import await_end, set_verification

Ask = Callable[..., Answered]
TWO = {"min.insync.replicas": "2"}
PROPERTIES = {
    "default.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}


@pytest.fixture(scope="module")
def short3(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """Three brokers; the coordinators' log needs two in-sync replicas. Node 1 is the controller."""
    directory = tmp_path_factory.mktemp("short3")
    started = clusters.start("short3", lambda: EmbeddedKafka(directory, brokers=3, properties=PROPERTIES))
    set_verification(started.bootstrap_servers, [1, 2, 3], enabled=False)
    create_coordinators(started)
    yield started
    clusters.end("short3")


@pytest.fixture
def ask(short3: EmbeddedKafka, capsys: pytest.CaptureFixture[str]) -> Ask:
    return lambda *command: answered(capsys, *command, "--bootstrap-server", short3.bootstrap_servers)


def in_sync(cluster: Cluster, at: TopicPartition) -> tuple[int, ...]:
    cluster.refresh()
    found = read_replicas(cluster, [at.topic])
    return found[at].in_sync if at in found else ()


def state_of(cluster: Cluster, name: str) -> TransactionState | None:
    found = ClusterAdmin(cluster).describe_transactions([name])[name]
    return found.state if isinstance(found, DescribedTransaction) else None


def begun(cluster: Cluster, at: TopicPartition) -> RawProducer:
    producer = RawProducer(cluster, coordinated_by(cluster, 1), DurationMs(600_000)).init()
    producer.add(at)
    producer.produce(at)
    return producer


def explained(ask: Ask, *target: str) -> dict[str, Any]:
    found = ask("explain", *target)
    assert found.code in {0, 1}, "1: a partition without a leader could not be read"
    return found.row


SHORT = "1 of 2 in sync (broker 2 is missing), min.insync.replicas 2"
BACK = "Bring broker 2 back; do not restart broker 1."


def steps_of(row: dict[str, Any]) -> list[str]:
    return [one["text"] for one in row["steps"]]


@pytest.mark.long
def test_the_missing_broker_is_named_and_the_last_replica_is_not_restarted(short3: EmbeddedKafka, ask: Ask) -> None:
    with contextlib.closing(connect(short3)) as cluster:
        (short,) = create_topic(cluster, unique("short"), replicas=[[1, 2]], config=TWO)
        (hung,) = create_topic(cluster, unique("hung"), replicas=[[1, 2]], config=TWO)
        (lost,) = create_topic(cluster, unique("lost"), replicas=[[2]])
        (both,) = create_topic(cluster, unique("both"), replicas=[[2, 3]])
        deciding, waiting = begun(cluster, short), begun(cluster, short)
        hang = stray_write(cluster, unique("stray"), hung)
        short3.broker(2).kill()
        await_leader(cluster, lost, None)
        eventually(lambda: in_sync(cluster, short) == (1,), FAILOVER_S, "one in-sync replica")
        deciding.end(commit=True)
        for target in (deciding.transactional_id, str(short)):
            row = explained(ask, target)
            assert f"{short}: {SHORT}: neither a marker nor a record with acks=all can be written." in row["text"]
            assert (steps_of(row), row["next"]) == ([BACK], None), "and no step that restarts broker 1"
            assert row["ends_by_itself"] != "yes"
        code, answer, _ = ask("fence", deciding.transactional_id, "--dry-run")
        assert (code, BACK in answer["rows"][0]["detail"]) == (5, True), "the fence would wait for its marker"
        row = explained(ask, str(hung))
        assert (row["state"], row["producer_id"], steps_of(row)[0]) == ("hanging", hang.producer_id, f"1. {BACK}")
        assert row["next"] is None, "nothing to paste before the repair"
        (found,) = ask("find-hanging", "--topic", hung.topic).answer["rows"]
        assert (steps_of(found)[0], found["next"]) == (f"1. {BACK}", None), "find-hanging says it too"
        start = ("--topic", hung.topic, "--partition", "0", "--start-offset", str(found["start_offset"]))
        of = ("--producer-id", str(hang.producer_id), "--producer-epoch", str(found["producer_epoch"]))
        code, answer, _ = ask("fence", hang.transactional_id, *of, *start, "--yes")
        assert (code, BACK in answer["rows"][0]["detail"]) == (5, True), "the abort behind it would be refused"
        assert ask("fence", hang.transactional_id, "--yes")[0] == 0, "the log has two in-sync replicas"
        at = ("--topic", hung.topic, "--partition", "0", "--producer-id", str(hang.producer_id))
        for flags in (("--dry-run",), ("--yes", "--accept-unknown-outcome")):
            code, answer, _ = ask("abort", *at, *flags)
            assert code == 5, "the leader would answer NOT_ENOUGH_REPLICAS"
            assert answer["rows"][0]["detail"].endswith(BACK)
        code, _, error = ask("explain", str(lost))
        assert code == 1
        assert "no leader (replicas on broker 2, in sync last: broker 2)" in error
        assert "Bring broker 2 back: no other broker may lead it." in error
        code, answer, _ = ask("explain", lost.topic)
        assert (code, steps_of(answer["rows"][0])) == (1, ["Bring broker 2 back: no other broker may lead it."])
        of_partitions = [row for row in ask("doctor").answer["rows"] if row["check"] in {"leader", "replicas"}]
        rows = {name: row for row in of_partitions for name in row["subject"].split(", ")}
        assert rows[str(short)]["detail"].startswith(SHORT)
        assert (rows[str(short)]["status"], rows[str(short)]["fix"]) == ("warning", BACK)
        assert rows[str(lost)]["detail"].startswith("no leader (replicas on broker 2, in sync last: broker 2)")
        assert rows[str(both)]["fix"] == "Bring broker 2 back; do not restart broker 3.", "it has the last replica"

        short3.broker(3).kill()
        log = TopicPartition(TRANSACTION_STATE_TOPIC, 0)
        eventually(lambda: in_sync(cluster, log) == (1,), FAILOVER_S, "one in-sync replica of the log")
        row = explained(ask, waiting.transactional_id)
        assert "1 of 3 in sync (brokers 2 and 3 are missing), min.insync.replicas 2: the coordinator" in str(
            row["text"]
        )
        assert "Bring broker 2 or 3 back; do not restart broker 1." in steps_of(row)[0]
        assert (row["next"], row["ends_by_itself"]) == (None, "unknown")
        assert "Ends by itself: not known: until this is repaired nothing ends it" in " ".join(row["text"])
        for flag in ("--dry-run", "--yes"):
            code, answer, _ = ask("fence", waiting.transactional_id, flag)
            assert code == 5, "it would be answered with COORDINATOR_NOT_AVAILABLE"
            assert "Bring broker 2 or 3 back; do not restart broker 1." in answer["rows"][0]["detail"]
        assert state_of(cluster, waiting.transactional_id) is TransactionState.ONGOING

        short3.start_broker(2)
        await_end(cluster, deciding, short)
        eventually(lambda: ask("fence", waiting.transactional_id, "--yes")[0] == 0, FAILOVER_S, "the fence")
        whole(short3)
        eventually(lambda: in_sync(cluster, both) == (2, 3), FAILOVER_S, "all replicas")
        eventually(lambda: explained(ask, str(short))["state"] == "all_clear", FAILOVER_S, "all clear")
