"""Checks that need brokers of their own: each is fired by a cluster made bad, and gone when its remedy was followed.

Ids of the past are put into the coordinators' log, as a restored backup or a week of an application would leave them.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.audit_runs import Rows, audit_rows, follow, restart_with, severities
from support.injection import inject_all
from support.offset_producer import OffsetProducer
from support.raw_producer import RawProducer
from support.servers import Clusters, connect
from support.shell_tools import ShellTools
from support.topics import create_topic
from support.waiting import eventually
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.values import Offset, ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from txnwatch.streaming.audit.gathering import gather
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.wire.internal_topics import TransactionLogValue
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

DAY_MS, MINUTE_MS = 86_400_000, 60_000
BAD = {"transaction.max.timeout.ms": "3600001", "log.cleaner.enable": "false"}
NEW_GROUPS = {"group.coordinator.rebalance.protocols": "classic,consumer"}


@pytest.fixture(scope="module")
def bad(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    directory = tmp_path_factory.mktemp("audited-bad")
    yield clusters.start("audited bad", lambda: EmbeddedKafka(directory, properties=BAD))
    clusters.end("audited bad")


def transaction_on(kafka: EmbeddedKafka, topic: str, replicas: list[int]) -> TopicPartition:
    with contextlib.closing(connect(kafka)) as cluster:
        (partition,) = create_topic(cluster, topic, replicas=[replicas])
        producer = RawProducer(cluster, f"writer-of-{topic}").init()
        producer.add(partition)
        producer.produce(partition)
        producer.end(commit=True)
    return partition


def rows_of(kafka: EmbeddedKafka, capsys: pytest.CaptureFixture[str]) -> Rows:
    return audit_rows(kafka, capsys, codes=(0, 1))


def past(producer_id: int, days: float, state: str = "CompleteCommit", took_ms: int = 20) -> TransactionLogValue:
    """The record of a transaction that ended some days ago."""
    ended_ms = int(time.time() * 1000 - days * DAY_MS)
    value = TransactionState(state)
    return TransactionLogValue(
        0, ProducerId(producer_id), ProducerEpoch(1), MINUTE_MS, value, (), ended_ms, TimestampMs(ended_ms - took_ms)
    )


def await_checks(kafka: EmbeddedKafka, capsys: pytest.CaptureFixture[str], *checks: str, absent: str = "") -> None:
    def are_there() -> bool:
        found = severities(rows_of(kafka, capsys))
        return found >= set(checks) and not any(one.endswith(f" {absent}") for one in found)

    eventually(are_there, 60.0, f"{checks}, and not {absent}")


def test_settings_of_a_broker_that_only_its_file_has(bad: EmbeddedKafka, capsys: pytest.CaptureFixture[str]) -> None:
    transaction_on(bad, "settings", [1])
    found = severities(rows_of(bad, capsys))
    assert {"info late-gauge-blind", "warn coordinator-log-large"} <= found
    restart_with(bad, 1, log_cleaner_enable="true", transaction_max_timeout_ms="3600000")
    found = severities(rows_of(bad, capsys))
    assert not found & {"info late-gauge-blind", "warn coordinator-log-large"}


def test_two_ids_with_one_producer_id(bad: EmbeddedKafka, capsys: pytest.CaptureFixture[str]) -> None:
    transaction_on(bad, "reused", [1])
    with contextlib.closing(connect(bad)) as cluster:
        inject_all(cluster, {"restored-a": past(900_001, 0.1), "restored-b": past(900_001, 0.1)})
        inject_all(cluster, {"restored-b": past(900_002, 0.1)})
        await_checks(bad, capsys, absent="producer-id-reused")
        inject_all(cluster, {"restored-b": past(900_001, 0.1)})
        await_checks(bad, capsys, "critical producer-id-reused")
        inject_all(cluster, {"restored-b": None, "restored-c": past(900_003, 0.1)})
        await_checks(bad, capsys, absent="producer-id-reused")


def test_ids_that_are_used_once(bad: EmbeddedKafka, capsys: pytest.CaptureFixture[str]) -> None:
    transaction_on(bad, "once", [1])
    names = [f"job-{uuid.uuid4()}" for _ in range(100)]
    values = {name: past(910_000 + at, 2.0) for at, name in enumerate(names)}
    with contextlib.closing(connect(bad)) as cluster:
        inject_all(cluster, {name: values[name] for name in names[:99]})
        inject_all(cluster, {f"job-{number}": past(920_000 + number, 2.0) for number in range(100)})
        await_checks(bad, capsys, absent="one-shot-ids")
        inject_all(cluster, {names[99]: values[names[99]]})
        await_checks(bad, capsys, "info one-shot-ids")
        inject_all(cluster, {names[99]: past(910_099, 2.0, "PrepareAbort", took_ms=MINUTE_MS)})
        await_checks(bad, capsys, "warn one-shot-ids")
        inject_all(cluster, dict.fromkeys(names))
        await_checks(bad, capsys, absent="one-shot-ids")


@pytest.mark.long
def test_an_upgrade_that_has_not_ended_and_the_bug_of_the_new_group_coordinator(
    clusters: Clusters, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From 3.9.2 to 4.4.0: afterwards the level of transaction.version is 0, as no answer says."""
    kafka = clusters.start(
        "audited upgrade", lambda: EmbeddedKafka(tmp_path, brokers=2, version="3.9.2", properties=NEW_GROUPS)
    )
    upgraded = transaction_on(kafka, "upgraded", [1, 2])
    await_checks(kafka, capsys, absent="stuck-prepare-bugs")
    with contextlib.closing(connect(kafka)) as cluster:
        producer = OffsetProducer(cluster, "copier").init()
        producer.add_offsets("copiers")
        producer.commit_offset("copiers", upgraded, Offset(1))
        producer.end(commit=True)
    await_checks(kafka, capsys, "warn stuck-prepare-bugs", absent="mixed-versions")
    for node in (2, 1):
        restart_with(kafka, node, group_coordinator_rebalance_protocols="classic")
    await_checks(kafka, capsys, absent="stuck-prepare-bugs")
    kafka.version = "4.4.0"
    restart_with(kafka, 2)
    await_checks(kafka, capsys, "warn mixed-versions", absent="old-transaction-version")
    restart_with(kafka, 1)
    await_checks(kafka, capsys, "warn old-transaction-version", absent="mixed-versions")
    tools = ShellTools(tmp_path, "4.4.0")
    follow(kafka, tools, [row for row in rows_of(kafka, capsys) if row["check"] == "old-transaction-version"])
    await_checks(kafka, capsys, absent="old-transaction-version")
    clusters.end("audited upgrade")


@pytest.mark.long
@pytest.mark.parametrize(("version", "expected"), [("4.0.0", "warn epoch-bugs"), ("4.2.1", "info epoch-bugs")])
def test_the_bugs_at_the_last_epoch(
    clusters: Clusters, tmp_path: Path, capsys: pytest.CaptureFixture[str], version: str, expected: str
) -> None:
    """A lower level of transaction.version is the near miss; a downgrade is never advised, so it comes first."""
    features = {"transaction.version": 1}
    kafka = clusters.start(f"audited {version}", lambda: EmbeddedKafka(tmp_path, version=version, features=features))
    transaction_on(kafka, "epochs", [1])
    await_checks(kafka, capsys, absent="epoch-bugs")
    rows = [row for row in rows_of(kafka, capsys) if row["check"] == "old-transaction-version"]
    follow(kafka, ShellTools(tmp_path, version), rows)
    await_checks(kafka, capsys, expected)
    if version == "4.0.0":
        kafka.version = "4.2.1"
        restart_with(kafka, 1)
        await_checks(kafka, capsys, "info epoch-bugs")
    clusters.end(f"audited {version}")


@pytest.mark.long
def test_all_replicas_in_one_rack(clusters: Clusters, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two = {"transaction.state.log.replication.factor": "2", "transaction.state.log.num.partitions": "6"}
    kafka = clusters.start("audited racks", lambda: EmbeddedKafka(tmp_path, brokers=3, properties=two))
    one_rack, several = transaction_on(kafka, "one-rack", [1, 2]), transaction_on(kafka, "several", [1, 3])
    assert not any("rack" in row["finding"] for row in rows_of(kafka, capsys)), "racks that are not set"
    for node, rack in ((3, "b"), (2, "a"), (1, "a")):
        restart_with(kafka, node, broker_rack=rack)

    def in_one_rack() -> set[str]:
        rows = [row for row in rows_of(kafka, capsys) if "rack" in row["finding"]]
        return {place for row in rows for place in row["examples"]}

    def are_in_sync() -> bool:
        with contextlib.closing(connect(kafka)) as cluster:
            return in_sync_everywhere(cluster)

    eventually(are_in_sync, 60.0, "all replicas to be in sync")
    found = in_one_rack()
    assert str(one_rack) in found
    assert str(several) not in found
    assert any(place.startswith("__transaction_state-") for place in found)
    assert {"info replication", "warn coordinator-log-config"} <= severities(rows_of(kafka, capsys))
    tools = ShellTools(tmp_path)
    tools.run(reassignment(kafka, found))
    eventually(lambda: in_one_rack() == set(), 60.0, "no partition in one rack")
    clusters.end("audited racks")


def in_sync_everywhere(cluster: Cluster) -> bool:
    partitions = [one for topic in gather(cluster, None).topics.values() for one in topic.partitions.values()]
    return all(len(one.in_sync) == len(one.replicas) for one in partitions)


def reassignment(kafka: EmbeddedKafka, places: set[str]) -> str:
    """What an administrator types: the remedy is a sentence, because no rule says which broker is best."""
    partitions = ",".join(
        f'{{"topic":"{topic}","partition":{number},"replicas":[1,3]}}'
        for topic, _, number in (place.rpartition("-") for place in sorted(places))
    )
    plan = f'{{"version":1,"partitions":[{partitions}]}}'
    return (
        f"kafka-reassign-partitions.sh --bootstrap-server {kafka.bootstrap_servers} --execute "
        f"--reassignment-json-file <(echo '{plan}')"
    )
