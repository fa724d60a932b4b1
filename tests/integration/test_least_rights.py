"""The recipes of docs/rights.md on a real broker: with one right taken away, what still works and what is reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.acl_recipes import (
    ABORT,
    CLUSTER_CONFIGS,
    CREATE_EVENTS,
    DESCRIBE_GROUPS,
    DESCRIBE_IDS,
    GROUP_CONFIGS,
    HOLD_LEASE,
    ON_EVENTS_TOPIC,
    PUBLISH,
    READ_DATA,
    READ_EVENTS,
    READ_GROUP_OFFSETS,
    READ_LOG,
    SHARE_GROUPS,
    TOPIC_CONFIGS,
    WATCH,
    WRITE_EVENTS,
    WRITE_MARKERS,
    Right,
)
from support.group_protocols import join_share_group
from support.guarded_broker import IN_FORCE_S, USER, Guarded, guarded_broker, missing_rights
from support.kafka_faults import stray_write
from support.log_lines import log_restored
from support.plans import FollowUpReads
from support.servers import Clusters, connect
from support.topics import create_topic, unique
from support.waiting import eventually
from support.watch import READY_S, RunningWatch, events_about
from txnwatch.cli.main import main
from txnwatch.cli.one_shot import connected, options_of
from txnwatch.config import EVENTS_TOPIC
from txnwatch.librdkafka import librdkafka_config
from txnwatch.sinks.incidents.group_lease import GroupLease
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.ports import LeaseView
from txnwatch.state.model.values import TimestampMs, TopicPartition
from txnwatch.streaming.admin.groups import ClusterGroups
from txnwatch.streaming.admin.transactions import ClusterAdmin

PAGE = Path(__file__).parents[2] / "docs" / "rights.md"
EVERYTHING = (*WATCH, *SHARE_GROUPS, *PUBLISH, *ABORT)
VERDICT_S, REJOINS_S = 90.0, 60.0  # without the lease, an instance speaks after a minute
Answer = dict[str, Any]


@pytest.fixture(scope="module")
def guarded(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_broker(clusters, "least", tmp_path_factory.mktemp("least")) as found:
        yield found


@pytest.fixture
def ask(guarded: Guarded, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, Answer]]:
    """A command as the user: its exit code and its JSON; empty if the command ended with an error."""
    return lambda *command: guarded.ask(capsys, *command)[:2]


def without(right: Right) -> tuple[Right, ...]:
    return tuple(other for other in EVERYTHING if other is not right)


def test_with_the_whole_recipe_nothing_is_missing(guarded: Guarded, ask: Callable[..., tuple[int, Answer]]) -> None:
    guarded.grants.set(EVERYTHING)
    eventually(lambda: missing_rights(ask("doctor")[1]) == {}, IN_FORCE_S, "the ACLs to be in force")
    code, answer = ask("find-hanging")
    assert (code, [row["topic"] for row in answer["rows"]]) == (0, ["orders-hanging"])


COMMANDS_WITHOUT: dict[Right, tuple[str, str, bool]] = {
    # the right: what doctor reports, the operation that its line grants, whether find-hanging is complete
    READ_DATA: ("Describe on topic orders-healthy", "Read --topic orders-healthy", False),
    READ_LOG: ("Read on topic __transaction_state", "Read --topic __transaction_state", False),
    DESCRIBE_IDS: ("Describe on all transactional ids", "Describe --transactional-id", False),
    READ_GROUP_OFFSETS: ("Read on topic __consumer_offsets", "Read --topic __consumer_offsets", True),
    DESCRIBE_GROUPS: ("Describe on all consumer groups", "Describe --group", True),
    CLUSTER_CONFIGS: ("DescribeConfigs on the cluster", "DescribeConfigs --cluster", True),
    TOPIC_CONFIGS: ("DescribeConfigs on topics", "DescribeConfigs --topic", True),
    GROUP_CONFIGS: ("DescribeConfigs on all share groups", "DescribeConfigs --group", True),
    CREATE_EVENTS: (f"Create topic {EVENTS_TOPIC}", f"--topic {EVENTS_TOPIC}", True),
    WRITE_MARKERS: ("Alter on the cluster", "Alter --cluster", True),
    HOLD_LEASE: ("Read on group txnwatch-speaker-", "Read --group txnwatch-speaker-", True),
}
INCOMPLETE_GROUPS = "the list of affected groups is incomplete"
OF_SHARE_GROUPS = f"{INCOMPLETE_GROUPS}: isolation level of share groups"
OF_GROUPS = f"{INCOMPLETE_GROUPS}: offsets of consumer groups"


@pytest.mark.matrix
@pytest.mark.parametrize("right", COMMANDS_WITHOUT, ids=str)
def test_a_command_without_one_right(guarded: Guarded, ask: Callable[..., tuple[int, Answer]], right: Right) -> None:
    subject, grants, is_complete = COMMANDS_WITHOUT[right]
    guarded.grants.set(without(right))
    (reported,) = eventually(
        lambda: [fix for name, fix in missing_rights(ask("doctor")[1]).items() if name.startswith(subject)],
        IN_FORCE_S,
        f"doctor to report {subject}",
    )
    assert grants in reported
    code, answer = ask("find-hanging")
    assert all(row["topic"] == "orders-hanging" for row in answer["rows"]), "a live transaction never hangs"
    if is_complete:
        assert (code, [row["verdict"] for row in answer["rows"]]) == (0, ["hanging"])
    else:
        assert (code, answer["complete"], answer["rows"]) == (1, False, [])


@pytest.mark.parametrize("right", [WRITE_EVENTS, READ_EVENTS], ids=str)
def test_doctor_reports_a_right_on_an_events_topic_that_exists(
    guarded: Guarded, ask: Callable[..., tuple[int, Answer]], right: Right
) -> None:
    with closing(connect(guarded.kafka)) as cluster:
        if EVENTS_TOPIC not in cluster.refresh().topics:
            create_topic(cluster, EVENTS_TOPIC)
    word = right.operation.name.capitalize()
    guarded.grants.set(without(right))
    found = eventually(
        lambda: missing_rights(ask("doctor")[1]).get(f"{word} on topic {EVENTS_TOPIC}"),
        IN_FORCE_S,
        "doctor to report it",
    )
    assert f"--operation {word} --topic {EVENTS_TOPIC}" in found


@pytest.mark.matrix
@pytest.mark.parametrize("right", ON_EVENTS_TOPIC, ids=str)
def test_a_missing_right_on_an_events_topic_that_does_not_exist_is_named_by_doctor_and_ends_run(
    guarded: Guarded,
    ask: Callable[..., tuple[int, Answer]],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    right: Right,
) -> None:
    name, word = f"{EVENTS_TOPIC}.first", right.operation.name.capitalize()
    on_it = [Right(other.operation, other.resource, name) for other in ON_EVENTS_TOPIC if other is not right]
    guarded.grants.set((*WATCH, *SHARE_GROUPS, *ABORT, HOLD_LEASE, *on_it))
    subject = f"{word} topic {name}" if right is CREATE_EVENTS else f"{word} on topic {name}"
    found = eventually(
        lambda: (said := missing_rights(ask("doctor", "--events-topic", name)[1])).keys() == {subject} and said,
        IN_FORCE_S,
        f"doctor to report {subject} and nothing else",
    )
    line = f"--operation {word} --topic {name}"
    assert line in found[subject]
    assert ask("doctor", "--events-topic", name)[0] == 1
    with log_restored():
        assert main(["run", *guarded.connection, "--events-topic", name, "--checkpoint", str(tmp_path / "c")]) == 1
    error = capsys.readouterr().err
    assert f"expected the right {right.operation.name} for User:{USER}" in error
    assert line in error
    with closing(connect(guarded.kafka)) as cluster:
        assert name not in cluster.refresh().topics


def test_a_warning_of_run_names_the_right_on_share_groups(guarded: Guarded) -> None:
    hanging = TopicPartition("orders-hanging", 0)
    with closing(connect(guarded.kafka)) as cluster:
        join_share_group(cluster, "a-share-group", hanging.topic)

    def warnings() -> list[str]:
        """Of `run` while the incident is open, with new connections of the user."""
        reported: list[str] = []
        with connected(guarded.kafka.listener("SASL"), guarded.config, timeout_s=5.0) as cluster:
            follow_up = FollowUpReads(ClusterAdmin(cluster), ClusterGroups(cluster), reported.append)
            follow_up.around(follow_up.admin.read_partitions([hanging]), TimestampMs(0))
        return reported

    guarded.grants.set(EVERYTHING)
    eventually(lambda: warnings() == [], IN_FORCE_S, lambda: f"no warning with the whole recipe, but: {warnings()}")
    guarded.grants.set(without(GROUP_CONFIGS))
    (warning,) = eventually(warnings, IN_FORCE_S, "a warning")
    assert warning.startswith(f"{OF_SHARE_GROUPS}: GROUP_AUTHORIZATION_FAILED")
    assert "DESCRIBE_CONFIGS on the group is missing" in warning


def holds(lease: GroupLease) -> bool:
    return lease.view() is LeaseView.HELD


def test_a_lease_names_the_right_that_is_missing_and_is_held_once_it_is_granted(guarded: Guarded) -> None:
    guarded.ensure_events_topic()
    guarded.grants.set(without(HOLD_LEASE))
    config = librdkafka_config(options_of(guarded.kafka.listener("SASL"), guarded.config))
    with closing(GroupLease(config, EVENTS_TOPIC, "txnwatch-speaker-a-cluster")) as lease:
        problem = eventually(lambda: None if holds(lease) else lease.problem, IN_FORCE_S, "a problem")
        assert problem == "the right READ on the group txnwatch-speaker-a-cluster is missing"
        guarded.grants.set(EVERYTHING)
        eventually(lambda: holds(lease), REJOINS_S, "the lease")
        assert lease.problem is None


@dataclass(frozen=True)
class Start:
    """What `run` reports at its start without one right.

    Attributes:
        line: a part of its lines; empty if it reports nothing about the right.
        ends: whether it ends with exit code 1; else it goes on to start Spark.
    """

    line: str = ""
    ends: bool = False


EVENTS_LINE = f"events topic '{EVENTS_TOPIC}': expected the right"
RUN_WITHOUT: dict[Right, Start] = {
    READ_DATA: Start("0 topics, 0 partitions"),
    READ_LOG: Start("coordinator view: none (topic __transaction_state: expected the rights DESCRIBE and READ"),
    DESCRIBE_IDS: Start(),
    READ_GROUP_OFFSETS: Start(),
    DESCRIBE_GROUPS: Start(),
    CLUSTER_CONFIGS: Start("CLUSTER_AUTHORIZATION_FAILED"),
    TOPIC_CONFIGS: Start(),
    CREATE_EVENTS: Start(),  # the topic exists
    WRITE_EVENTS: Start(f"{EVENTS_LINE} WRITE for User:{USER}", ends=True),
    READ_EVENTS: Start(f"{EVENTS_LINE} READ for User:{USER}", ends=True),
    WRITE_MARKERS: Start(),
    HOLD_LEASE: Start(),
}


@pytest.mark.long
@pytest.mark.parametrize("right", RUN_WITHOUT, ids=str)
def test_run_at_its_start_without_one_right(guarded: Guarded, tmp_path: Path, right: Right) -> None:
    guarded.ensure_events_topic()
    guarded.grants.set(without(right))
    expected, begun = RUN_WITHOUT[right], "watching cluster"

    def lines() -> list[str]:
        """Of a start; again while the ACLs are not yet in force."""
        _, *connection = guarded.connection
        flags = ("--topics", "orders.*", "--auto-abort", "dry-run", *connection[1:])
        watch = RunningWatch(connection[0], tmp_path / "checkpoint", *flags).start()
        try:
            eventually(
                lambda: watch.has_ended or any(begun in line for line in watch.lines), READY_S, "the start of the run"
            )
            if expected.ends and watch.has_ended:
                assert watch.exit_code == 1
            return list(watch.lines)
        finally:
            watch.kill()

    found = eventually(
        lambda: said if expected.line in " ".join(said := lines()) else None, IN_FORCE_S, f"{expected.line!r}"
    )
    text = " ".join(found)
    assert (begun not in text) is expected.ends
    assert "%3|" not in text
    assert "FATAL" not in text
    if expected.ends:
        (line,) = found
        assert f"--operation {right.operation.name.capitalize()} --topic {EVENTS_TOPIC}" in line


@dataclass(frozen=True)
class Watched:
    """What `run` reports about a hang without one right.

    Attributes:
        line: a part of a warning; empty if only `doctor` reports the right.
        is_published: whether the incident is opened.
        is_decided: whether the automatic abort publishes a decision.
    """

    line: str = ""
    is_published: bool = True
    is_decided: bool = True


WATCH_WITHOUT: dict[Right, Watched] = {
    DESCRIBE_IDS: Watched("can be neither confirmed nor refuted now: transactional id", False, False),
    DESCRIBE_GROUPS: Watched(f"{OF_GROUPS}: GROUP_AUTHORIZATION_FAILED: DESCRIBE on the group is missing"),
    TOPIC_CONFIGS: Watched(),
    HOLD_LEASE: Watched("aborts nothing automatically: the right READ on the group", is_decided=False),
}


@pytest.mark.long
@pytest.mark.parametrize("right", WATCH_WITHOUT, ids=str)
def test_a_hang_without_one_right(
    guarded: Guarded, ask: Callable[..., tuple[int, Answer]], tmp_path: Path, right: Right
) -> None:
    expected, subject = WATCH_WITHOUT[right], COMMANDS_WITHOUT[right][0]
    guarded.grants.set(without(right))
    eventually(lambda: any(name.startswith(subject) for name in missing_rights(ask("doctor")[1])), IN_FORCE_S, subject)
    _, bootstrap, *connection = guarded.connection
    flags = ("--topics", "orders.*", "--auto-abort", "on", "--abort-after-ms", "0", *connection)
    with (
        closing(connect(guarded.kafka)) as cluster,
        RunningWatch(bootstrap, tmp_path / "checkpoint", *flags) as watch,
    ):
        (hanging,) = create_topic(cluster, unique("orders-without"))
        watch.until_ready()
        stray_write(cluster, f"of-{hanging.topic}", hanging)

        def found() -> list[IncidentEvent]:
            return events_about(guarded.kafka.bootstrap_servers, hanging)

        if expected.is_published:
            eventually(found, VERDICT_S, "the incident")
            assert {event.cleanup_policy for event in found()} == {None if right is TOPIC_CONFIGS else "delete"}
        if expected.is_decided:
            eventually(lambda: any(event.action for event in found()), VERDICT_S, "a decision")
        if expected.line:
            watch.until(expected.line)
        assert bool(found()) is expected.is_published
        assert any(event.action for event in found()) is expected.is_decided


def test_the_page_has_the_line_of_every_right() -> None:
    page = PAGE.read_text()
    assert [right.line() for right in EVERYTHING if right.line() not in page] == []
