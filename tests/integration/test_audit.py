"""The audit on real brokers: a healthy cluster has no warning, one made bad has each finding, and remedies end them."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from support.audit_proofs import PROOFS
from support.audit_runs import Rows, audit_rows, follow, severities
from support.raw_producer import RawProducer
from support.sent_requests import sent_requests
from support.servers import Clusters, connect
from support.shell_tools import ShellTools
from support.topics import create_topic, unique
from support.waiting import eventually
from txnwatch.owners.owner_table import OwnerTable
from txnwatch.state.audit.exposure_rows import PeriodicAudit
from txnwatch.state.model.facts import CensusTaken
from txnwatch.state.model.values import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, BrokerId, TopicPartition
from txnwatch.state.text import Grantee
from txnwatch.streaming.audit.gathering import gather
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.source.census_schedule import Asked, Census, take_census
from txnwatch.watch.hourly_audit import HourlyAudit
from txnwatch_demo.embedded.applications import exactly_once_copier, transactional_writer
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import set_verification

HEALTHY = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}
LOG_BYTES = 100_000_000
UNCLEAN = "unclean.leader.election.enable"
VERSIONS = ("4.4.0", "4.3.1", "3.9.2", "3.3.2")
# What no setting changes: it follows from the release, from the clients, which use librdkafka, or from
# brokers without an authorizer.
BY_RELEASE: dict[str, set[str]] = {
    "4.4.0": {"info marker-skipped", "info old-protocol", "info internal-writers"},
    "4.3.1": {"info marker-skipped", "info old-protocol", "info internal-writers"},
    "3.9.2": {"info internal-writers"},
    "3.3.2": {"info no-verification", "info stuck-prepare-bugs", "info internal-writers"},
}


@dataclass(frozen=True)
class AuditedCluster:
    """Three brokers of a version, and its tools."""

    kafka: EmbeddedKafka
    tools: ShellTools
    version: str

    @property
    def is_4(self) -> bool:
        """Whether it has transaction.version."""
        return self.version.startswith("4.")

    @property
    def verifies(self) -> bool:
        """Whether a broker can verify that a write belongs to a transaction."""
        return self.version >= "3.6"


@pytest.fixture(
    scope="module", params=[VERSIONS[0], *(pytest.param(one, marks=pytest.mark.long) for one in VERSIONS[1:])]
)
def audited(
    request: pytest.FixtureRequest, clusters: Clusters, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AuditedCluster]:
    """Healthy applications have written to a cluster that begins with transaction.version 1, if it has this feature."""
    directory = tmp_path_factory.mktemp("audited")
    version: str = request.param
    features = {"transaction.version": 1} if version.startswith("4.") else None
    kafka = clusters.start(
        f"audited {version}",
        lambda: EmbeddedKafka(directory, brokers=3, version=version, properties=HEALTHY, features=features),
    )
    with contextlib.closing(connect(kafka)) as cluster, contextlib.ExitStack() as running:
        for name in ("payments", "ledger"):
            create_topic(cluster, name, replicas=[[1, 2, 3]])
        for application in (
            transactional_writer(kafka.bootstrap_servers, "checkout", "payments", seed=1),
            exactly_once_copier(kafka.bootstrap_servers, "ledger-copy", "payments", "ledger"),
        ):
            running.callback(application.start().stop)

        def has_offsets_in_a_transaction() -> bool:
            with contextlib.closing(connect(kafka)) as fresh:
                topics = gather(fresh, LOG_BYTES).transactional_topics
            return {"payments", "ledger", CONSUMER_OFFSETS_TOPIC} <= {topic.name for topic in topics}

        eventually(has_offsets_in_a_transaction, 120.0, "the applications to commit")
    yield AuditedCluster(kafka, ShellTools(directory, version), version)
    clusters.end(f"audited {version}")


def rows_of(of: AuditedCluster, capsys: pytest.CaptureFixture[str], *flags: str, codes: Sequence[int] = (0,)) -> Rows:
    return audit_rows(of.kafka, capsys, *flags, codes=codes)


def set_on(of: AuditedCluster, kind: ConfigResource.Type, name: str, **settings: str) -> None:
    admin = AdminClient({"bootstrap.servers": of.kafka.bootstrap_servers, "log_level": 2})
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for key, value in settings.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(10.0)


def write_in_a_transaction(of: AuditedCluster, topic: str, replicas: list[int]) -> None:
    with contextlib.closing(connect(of.kafka)) as cluster:
        least = {"min.insync.replicas": str(min(2, len(replicas)))}  # 3.3 needs 2 of one replica otherwise
        (partition,) = create_topic(cluster, topic, replicas=[replicas], config=least)
        producer = RawProducer(cluster, unique("writer")).init()
        producer.add(partition)
        producer.produce(partition)
        producer.end(commit=True)


def test_a_healthy_cluster_has_no_warning_and_the_old_level_is_raised(
    audited: AuditedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = rows_of(audited, capsys)
    rows_of(audited, capsys, "--min-severity", "critical", "--fail-on", "warn", codes=[3 if audited.is_4 else 0])
    raised = {"warn old-transaction-version"} if audited.is_4 else set()
    assert severities(rows) == (BY_RELEASE[audited.version] - {"info old-protocol"}) | raised
    follow(audited.kafka, audited.tools, rows)
    eventually(
        lambda: severities(rows_of(audited, capsys)) == BY_RELEASE[audited.version], 20.0, "the finding to be gone"
    )


def test_it_sends_no_more_requests_than_a_census(audited: AuditedCluster) -> None:
    """ApiVersions is asked by the start of each connection, and not again. A watch repeats it without the log."""
    asked: dict[str, Counter[str]] = {}
    moved: dict[str, int] = {}

    @contextlib.contextmanager
    def counted(what: str) -> Iterator[Cluster]:
        with sent_requests() as sent, contextlib.closing(connect(audited.kafka)) as cluster:
            yield cluster
            asked[what], moved[what] = Counter(sent), cluster.traffic.sent + cluster.traffic.received

    with contextlib.closing(connect(audited.kafka)) as cluster:
        create_topic(cluster, "many", replicas=[[1 + number % 3] for number in range(150)])
    with counted("with the log") as cluster:
        gather(cluster, LOG_BYTES)
    with counted("without the log") as cluster:
        gather(cluster, None)
    with counted("a census") as cluster:
        topics = {name: of for name, of in cluster.refresh().topics.items() if name != TRANSACTION_STATE_TOPIC}
        wanted = {TopicPartition(name, at): Asked(of.topic_id) for name, of in topics.items() for at in of.partitions}
        *_, taken = take_census(cluster, Census(wanted, 1, is_round=True))
    assert isinstance(taken, CensusTaken)
    assert (len(taken.taken), taken.failed) == (len(wanted), frozenset())
    without = {
        "ApiVersionsRequest": 3 if audited.version >= "3.9" else 6,  # an older broker refuses version 4
        "MetadataRequest": 1,
        "DescribeProducersRequest": 3,
        "DescribeConfigsRequest": 3,
        "DescribeAclsRequest": 1,
    }
    assert asked["without the log"] == without
    assert asked["with the log"] == {**without, "FetchRequest": 3}
    assert asked["with the log"].total() <= asked["a census"].total()
    assert moved["without the log"] < moved["a census"]


def test_what_is_bad_is_found_and_what_the_finding_says_ends_it(
    audited: AuditedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    write_in_a_transaction(audited, "one-replica", [2])
    write_in_a_transaction(audited, "needs-all", [1, 2, 3])
    write_in_a_transaction(audited, "unclean", [1, 2, 3])
    with contextlib.closing(connect(audited.kafka)) as cluster:
        create_topic(cluster, "idle-one-replica", replicas=[[3]], config={UNCLEAN: "true"})
        create_topic(cluster, "idle-unclean", replicas=[[1, 2]], config={UNCLEAN: "true"})
    topic = ConfigResource.Type.TOPIC
    set_on(audited, topic, "needs-all", min_insync_replicas="3", retention_ms="30000")
    set_on(audited, topic, CONSUMER_OFFSETS_TOPIC, delete_retention_ms="1000", cleanup_policy="compact,delete")
    set_on(audited, topic, "unclean", unclean_leader_election_enable="true", min_insync_replicas="1")
    set_on(audited, topic, TRANSACTION_STATE_TOPIC, cleanup_policy="compact,delete", min_insync_replicas="1")
    expected = {"warn replication", "critical coordinator-log-config", "warn coordinator-log-config"}
    expected |= {"warn compaction-race", "warn retention-below-timeout"}
    expected |= {"info unclean-election"} if audited.version == "3.3.2" else {"critical unclean-election"}
    if audited.verifies:
        set_verification(audited.kafka.bootstrap_servers, [2], enabled=False)
        expected |= {"critical no-verification"}
    if audited.version >= "4.3":
        expected |= {"critical marker-skipped"}
    healthy = BY_RELEASE[audited.version]

    def lacks() -> set[str]:
        return expected - severities(rows_of(audited, capsys))

    eventually(lambda: not lacks(), 60.0, f"each of {sorted(expected)}")
    rows = rows_of(audited, capsys, "--fail-on", "critical", codes=[3])
    assert severities(rows) - healthy == expected
    about = {row["check"]: " ".join([row["finding"], *row["examples"]]) for row in rows}
    assert [text for text in about.values() if "idle" in text] == [], "topics without transactional data are not judged"
    assert ("coordinator-log-config", CONSUMER_OFFSETS_TOPIC) in {(row["check"], row["subject"]) for row in rows}
    assert "one-replica-0" in " ".join(" ".join(row["examples"]) for row in rows if row["check"] == "replication")
    follow(audited.kafka, audited.tools, rows)
    eventually(lambda: severities(rows_of(audited, capsys)) == healthy, 30.0, "every finding to be gone")


def test_a_value_on_the_node_of_the_controller_counts(
    audited: AuditedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Node 1 is broker and controller, node 2 is a broker only: its own value decides nothing."""

    def set_on_node(node: int) -> None:
        set_on(audited, ConfigResource.Type.BROKER, str(node), unclean_leader_election_enable="true")

        def is_shown() -> bool:
            with contextlib.closing(connect(audited.kafka)) as cluster:
                return gather(cluster, None).brokers[BrokerId(node)].settings[UNCLEAN] == "true"

        eventually(is_shown, 20.0, f"the value of node {node}")

    set_on_node(2)
    assert severities(rows_of(audited, capsys)) == BY_RELEASE[audited.version]
    set_on_node(1)
    found = {"info"} if audited.version == "3.3.2" else {"critical", "warn"}  # the coordinators' log, and topics
    rows = rows_of(audited, capsys)
    assert severities(rows) == BY_RELEASE[audited.version] | {f"{severity} unclean-election" for severity in found}
    (first, *_) = [row["remedies"][0]["command"] for row in rows if row["check"] == "unclean-election"]
    PROOFS.ran(audited.version, "unclean-election", first)
    audited.tools.run(first)
    eventually(
        lambda: severities(rows_of(audited, capsys)) == BY_RELEASE[audited.version], 20.0, "the finding to be gone"
    )


class _Lines:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, message: str, /) -> None:
        self.lines.append(message)

    warning = info


def test_a_watch_repeats_the_checks_that_do_not_read_the_log(audited: AuditedCluster) -> None:
    log, taken = _Lines(), list[PeriodicAudit]()
    admin = Grantee(audited.kafka.bootstrap_servers, "User:ANONYMOUS")
    HourlyAudit(lambda: connect(audited.kafka), tuple, OwnerTable, admin, log, taken.append).look()
    without_log = {one.split()[0] for one in BY_RELEASE[audited.version] if "old-protocol" not in one}
    assert {severity for severity, count in taken[0].counts.items() if count} == without_log
    assert log.lines[0].startswith("audit: ")


@pytest.mark.long
def test_a_broker_that_is_away_is_found(audited: AuditedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("payments", TRANSACTION_STATE_TOPIC):
        set_on(audited, ConfigResource.Type.TOPIC, name, min_insync_replicas="3")
    audited.kafka.broker(3).stop()
    expected = {"critical replication", "critical coordinator-log-config"}
    eventually(
        lambda: severities(rows_of(audited, capsys, codes=(0, 1))) >= expected, 30.0, "the partitions that have stopped"
    )
    audited.kafka.start_broker(3)
    eventually(
        lambda: not severities(rows_of(audited, capsys, codes=(0, 1))) & expected, 60.0, "them to be in sync again"
    )
    follow(audited.kafka, audited.tools, rows_of(audited, capsys))
    eventually(
        lambda: severities(rows_of(audited, capsys, codes=(0, 1))) == BY_RELEASE[audited.version],
        30.0,
        "every finding to be gone",
    )
