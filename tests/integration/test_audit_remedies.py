"""Remedies about replicas, followed on real brokers as printed: none does harm, and in the end all is silent."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.audit_runs import Rows, audit_rows, follow, severities
from support.raw_producer import RawProducer
from support.servers import Clusters, connect
from support.shell_tools import ShellTools
from support.topics import create_topic
from support.waiting import eventually
from txnwatch.streaming.audit.gathering import gather
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

FEW = {
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "6",
}
VERSIONS = ("4.4.0", "3.9.2", "3.3.2")
# What no setting of the release ends.
LEFT = {
    "4.4.0": {"info marker-skipped", "info old-protocol", "info internal-writers"},
    "3.9.2": {"info internal-writers"},
    "3.3.2": {"info no-verification", "info stuck-prepare-bugs", "info internal-writers"},
}
STEPS = 4  # a remedy can lead to the next one: first the replicas, then the minimum


@pytest.fixture(params=VERSIONS)
def few(request: pytest.FixtureRequest, clusters: Clusters, tmp_path: Path) -> Iterator[EmbeddedKafka]:
    """Three brokers; the coordinators' log has two replicas and needs one."""
    name = f"audited few {request.param}"
    yield clusters.start(name, lambda: EmbeddedKafka(tmp_path, brokers=3, version=request.param, properties=FEW))
    clusters.end(name)


def written(kafka: EmbeddedKafka, topic: str, replicas: list[int], minimum: int) -> None:
    with contextlib.closing(connect(kafka)) as cluster:
        (partition,) = create_topic(cluster, topic, replicas=[replicas], config={"min.insync.replicas": str(minimum)})
        producer = RawProducer(cluster, f"writer-of-{topic}").init()
        producer.add(partition)
        producer.produce(partition)
        producer.end(commit=True)


def verify_nowhere(kafka: EmbeddedKafka, tools: ShellTools) -> None:
    """As the cluster-wide default and as a value of broker 2."""
    alter = f"kafka-configs.sh --bootstrap-server {kafka.bootstrap_servers} --alter --entity-type brokers"
    for entity in ("--entity-default", "--entity-name 2"):
        tools.run(f"{alter} {entity} --add-config transaction.partition.verification.enable=false")


def is_in_sync(kafka: EmbeddedKafka) -> bool:
    with contextlib.closing(connect(kafka)) as cluster:
        partitions = [of for topic in gather(cluster, None).topics.values() for of in topic.partitions.values()]
    return all(len(of.in_sync) == len(of.replicas) for of in partitions)


def commands(rows: Rows) -> list[str]:
    return [remedy["command"] for row in rows for remedy in row["remedies"] if remedy["command"]]


@pytest.mark.long
def test_every_command_is_followed_until_nothing_is_left(
    few: EmbeddedKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tools = ShellTools(tmp_path, few.version)
    written(few, "two", [1, 2], 2)
    written(few, "one", [3], 1)
    written(few, "all", [1, 2, 3], 3)
    bad = {"warn replication", "warn coordinator-log-config"}
    if few.version >= "3.6":
        verify_nowhere(few, tools)
        bad |= {"critical no-verification"}

    def rows() -> Rows:
        return audit_rows(few, capsys, codes=(0, 1))

    eventually(lambda: severities(rows()) >= bad, 60.0, f"{sorted(bad)}")
    few.broker(3).stop()
    eventually(lambda: "critical replication" in severities(rows()), 60.0, "the topic without a leader")
    found = rows()
    assert not [line for line in commands(found) if "reassign" in line], (
        "nothing can be copied from a broker that is away"
    )
    assert "first bring broker 3 back" in " ".join(one["text"] for row in found for one in row["remedies"])
    few.start_broker(3)
    eventually(lambda: is_in_sync(few), 90.0, "all replicas to be in sync")
    for _ in range(STEPS):
        before = commands(rows())
        if before:
            follow(few, tools, rows())
            eventually(lambda: is_in_sync(few) and not set(before) & set(commands(rows())), 90.0, "none to be left")  # noqa: B023
    eventually(lambda: severities(rows()) == LEFT[few.version], 60.0, "only what no setting ends")
    written(few, "after", [1, 2, 3], 2)
