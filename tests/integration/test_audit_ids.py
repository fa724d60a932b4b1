"""The audit's checks of transactional ids and of rights on a real broker: made bad on purpose, and the near misses."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]

from support.acl_recipes import Grants, Right
from support.audit_runs import Rows, audit_rows, follow
from support.raw_producer import RawProducer
from support.servers import Clusters, connect
from support.shell_tools import ShellTools
from support.topics import create_topic, unique
from support.waiting import eventually
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import await_end

PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "transaction.max.timeout.ms": "7200000",
}
HOUR_MS = 3_600_000
OWNERS = '[[owner]]\nteam = "checkout"\ncontact = "#checkout"\ntransactional_ids = ["slow-*"]\n'


@pytest.fixture(scope="module")
def kafka_with_rights(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    directory = tmp_path_factory.mktemp("audited-ids")
    yield clusters.start("audited ids", lambda: EmbeddedKafka(directory, properties=PROPERTIES))
    clusters.end("audited ids")


@pytest.fixture
def cluster(kafka_with_rights: EmbeddedKafka) -> Iterator[Cluster]:
    with contextlib.closing(connect(kafka_with_rights)) as found:
        yield found


def rows_of(kafka: EmbeddedKafka, capsys: pytest.CaptureFixture[str], *flags: str, codes: Sequence[int] = (0,)) -> Rows:
    return audit_rows(kafka, capsys, *flags, codes=codes)


def findings(rows: Rows) -> set[tuple[str, str, str]]:
    return {(row["severity"], row["check"], row["subject"]) for row in rows}


def begun(cluster: Cluster, name: str, partition: TopicPartition, timeout_ms: int = 60_000) -> RawProducer:
    producer = RawProducer(cluster, name, timeout_ms).init()  # type: ignore[arg-type]
    producer.add(partition)
    producer.produce(partition)
    return producer


def test_what_ids_do_is_found(
    kafka_with_rights: EmbeddedKafka, cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (partition,) = create_topic(cluster, unique("ids"))
    for _ in range(4):
        RawProducer(cluster, "reused-with-nothing-open").init()
    begun(cluster, "quick", partition).end(commit=True)
    assert {row["check"] for row in rows_of(kafka_with_rights, capsys) if row["group"] == "transactional ids"} <= {
        "old-protocol"
    }, "near misses"
    for number in range(3):
        begun(cluster, f"slow-{number}", partition, 4_000)
    for _ in range(3):
        begun(cluster, "shared", partition)
    last = RawProducer(cluster, "shared").init()
    for number in range(20):
        aborting = begun(cluster, f"probe-{number}", partition)
        aborting.end(commit=False)
    begun(cluster, "hour", partition, HOUR_MS).end(commit=True)
    await_end(cluster, last, partition)
    owners = tmp_path / "owners.toml"
    owners.write_text(OWNERS)
    expected = {
        ("warn", "times-out", "slow-{n}"),
        ("warn", "fenced-while-open", "shared"),
        ("info", "never-commits", "probe-{n}"),
        ("warn", "long-timeout", "hour"),
        ("info", "old-protocol", "clients"),
    }
    flags = ("--owners-file", str(owners))
    eventually(lambda: findings(rows_of(kafka_with_rights, capsys, *flags)) >= expected, 40.0, "the findings")
    rows = rows_of(kafka_with_rights, capsys, *flags)
    of_ids = {(row["check"], row["subject"]) for row in rows if row["group"] == "transactional ids"}
    assert of_ids == {(check, subject) for _, check, subject in expected}
    (slow,) = (row for row in rows if row["check"] == "times-out")
    assert (slow["exposed_ids"], slow["owners"]) == (3, ["checkout (#checkout)"])
    muted = rows_of(kafka_with_rights, capsys, "--ignore", "times-out:slow-{n}", "--min-severity", "warn")
    assert {row["check"] for row in muted if row["group"] == "transactional ids"} == {
        "fenced-while-open",
        "long-timeout",
    }
    RawProducer(cluster, "hour").init()  # a lower timeout
    begun(cluster, "probe-7", partition).end(commit=True)
    ended = {"long-timeout", "never-commits"}
    eventually(
        lambda: ended.isdisjoint(row["check"] for row in rows_of(kafka_with_rights, capsys)), 20.0, "the remedies"
    )


def of_users(rows: Rows) -> set[tuple[str, str, str]]:
    return {one for one in findings(rows) if one[2].startswith("User:")}


def test_a_right_on_the_internal_topics_is_found_and_denied(
    kafka_with_rights: EmbeddedKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tools, everywhere = ShellTools(tmp_path), Right(AclOperation.WRITE, ResourceType.TOPIC, "*")
    grants = [Grants(kafka_with_rights.bootstrap_servers, user) for user in ("app", "*")]
    assert of_users(rows_of(kafka_with_rights, capsys)) == set()
    for user in grants:
        user.add(everywhere)
    ids = Right(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "*")
    grants[0].add(ids)
    expected = {("critical", "internal-writers", "User:*"), ("warn", "internal-writers", "User:app")}
    expected |= {("info", "id-owners", "User:app")}
    eventually(
        lambda: of_users(rows_of(kafka_with_rights, capsys)) == expected,
        20.0,
        "the holders of the rights",
    )
    follow_all(tools, kafka_with_rights, rows_of(kafka_with_rights, capsys), "internal-writers")
    eventually(
        lambda: (
            {one for one in findings(rows_of(kafka_with_rights, capsys)) if "User" in one[2]}
            == {("info", "id-owners", "User:app")}
        ),
        20.0,
        "nobody to write to the internal topics",
    )
    own = Right(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "app-*")
    grants[0].add(own)  # what the remedy says first
    assert "name=*" in follow_all(tools, kafka_with_rights, rows_of(kafka_with_rights, capsys), "id-owners")
    eventually(
        lambda: not any(check == "id-owners" for _, check, _ in findings(rows_of(kafka_with_rights, capsys))),
        20.0,
        "no rule for all ids",
    )
    listed = tools.run(f"kafka-acls.sh --bootstrap-server {kafka_with_rights.bootstrap_servers} --list")
    assert "name=app-, patternType=PREFIXED" in listed, "the other rule stays"


def follow_all(tools: ShellTools, kafka: EmbeddedKafka, rows: Rows, check: str) -> str:
    """Runs the commands of one check's findings as they are printed; what they print."""
    return follow(kafka, tools, [row for row in rows if row["check"] == check])


def test_a_right_to_write_markers_is_found_and_removed(
    kafka_with_rights: EmbeddedKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alter = Right(AclOperation.ALTER, ResourceType.BROKER)
    describe = Right(AclOperation.DESCRIBE, ResourceType.BROKER)
    admin, everybody = (Grants(kafka_with_rights.bootstrap_servers, user) for user in ("admin", "*"))

    def holders() -> set[tuple[str, str, str]]:
        return {one for one in findings(rows_of(kafka_with_rights, capsys)) if one[1] == "marker-writers"}

    everybody.add(describe)
    assert holders() == set()
    admin.add(alter)
    everybody.add(alter)
    assert holders() == {("info", "marker-writers", "User:admin"), ("critical", "marker-writers", "User:*")}
    rows, tools = rows_of(kafka_with_rights, capsys), ShellTools(tmp_path)
    of_everybody = [row for row in rows if row["subject"] == "User:*"]
    assert "principal=User:admin" in follow_all(tools, kafka_with_rights, of_everybody, "marker-writers"), (
        "the rules are shown"
    )
    eventually(lambda: holders() == {("info", "marker-writers", "User:admin")}, 20.0, "it to be kept to administrators")
    follow_all(tools, kafka_with_rights, rows_of(kafka_with_rights, capsys), "marker-writers")
    eventually(lambda: holders() == set(), 20.0, "nobody to have the right")


def test_partitions_that_are_added_to_the_coordinators_log_are_proven(
    kafka_with_rights: EmbeddedKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last test of this cluster: there is no way back."""
    from confluent_kafka.admin import AdminClient, NewPartitions

    assert not any(row["check"] == "coordinator-partitions" for row in rows_of(kafka_with_rights, capsys))
    admin = AdminClient({"bootstrap.servers": kafka_with_rights.bootstrap_servers, "log_level": 2})
    admin.create_partitions([NewPartitions(TRANSACTION_STATE_TOPIC, 7)])[TRANSACTION_STATE_TOPIC].result(10.0)
    eventually(
        lambda: (
            ("critical", "coordinator-partitions", TRANSACTION_STATE_TOPIC)
            in findings(rows_of(kafka_with_rights, capsys, codes=(0, 1)))
        ),
        20.0,
        "the misplaced ids",
    )
