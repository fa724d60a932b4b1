"""Each command on a real broker without each right: whether it answers, and that it names the right that is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]

from support.acl_recipes import (
    COMMANDS,
    DESCRIBE_GROUPS,
    DESCRIBE_IDS,
    READ_DATA,
    READ_EVENTS,
    READ_GROUP_OFFSETS,
    READ_LOG,
    READERS,
    WRITE_EVENTS,
    WRITE_MARKERS,
    Right,
)
from support.answered import Answered
from support.guarded_broker import (
    HANGING,
    IN_FORCE_S,
    LIVE,
    OWNER,
    USER,
    Guarded,
    guarded_broker,
    missing_rights,
)
from support.heartbeats import a_heartbeat
from support.incidents import a_life
from support.kafka_faults import stray_write
from support.servers import Clusters, connect
from support.topics import create_topic, unique
from support.waiting import eventually
from support.watch import events_about
from txnwatch.cli.main import main
from txnwatch.config import EVENTS_TOPIC
from txnwatch.sinks.delivery.events_topic import KafkaEventsTopic
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.clock import wall_clock_ms

PAGE = Path(__file__).parents[2] / "docs" / "rights.md"
ASKED: dict[str, tuple[str, ...]] = {
    "`find-hanging`": ("find-hanging",),
    "`list`": ("list",),
    "`describe`": ("describe", "--transactional-id", OWNER),
    "`describe-producers`": ("describe-producers", "--topic", LIVE, "--partition", "0"),
    "`explain` partition": ("explain", f"{HANGING}-0"),
    "`explain` id": ("explain", "--transactional-id", OWNER),
}
COMPLETE, PARTIAL, NOTHING, ERROR = "complete", "partial", "nothing", "error"
DESCRIBE_DATA = Right(AclOperation.DESCRIBE, ResourceType.TOPIC, READ_DATA.name)
DESCRIBE_LOG = Right(AclOperation.DESCRIBE, ResourceType.TOPIC, READ_LOG.name)
HIDDEN = "the right DESCRIBE on the topic (READ includes it) is missing"
UNREAD = "the right READ on the topic is missing"
UNKNOWN_IDS = "the right DESCRIBE on transactional ids is missing"


@dataclass(frozen=True)
class Row:
    """What the commands answer without some right.

    Attributes:
        instead: rights that the user has instead of the missing one.
        reported: the start of the subject that doctor reports.
        cells: by command, whether the answer is complete, partial (rows, and parts that are not checked), nothing (no
            rows, and parts that are not checked), or an error.
        named: a part of what each command says whose answer is not complete.
    """

    without: Right
    reported: str
    cells: tuple[str, ...]
    named: str = ""
    instead: tuple[Right, ...] = ()

    @property
    def granted(self) -> tuple[Right, ...]:
        """The rights of the user."""
        return (*(right for right in COMMANDS if right is not self.without), *self.instead)


MATRIX: dict[str, Row] = {
    "READ on the topics": Row(
        READ_DATA,
        f"Describe on topic {LIVE}",
        (NOTHING, PARTIAL, PARTIAL, ERROR, ERROR, PARTIAL),
        HIDDEN,
    ),
    "READ on the topics, with DESCRIBE": Row(
        READ_DATA,
        f"Read on topic {LIVE}",
        (NOTHING, COMPLETE, COMPLETE, ERROR, ERROR, PARTIAL),
        UNREAD,
        (DESCRIBE_DATA,),
    ),
    "READ on `__transaction_state`": Row(
        READ_LOG,
        f"Read on topic {TRANSACTION_STATE_TOPIC}",
        (NOTHING, PARTIAL, PARTIAL, PARTIAL, PARTIAL, PARTIAL),
        HIDDEN,
    ),
    "READ on `__transaction_state`, with DESCRIBE": Row(
        READ_LOG,
        f"Read on topic {TRANSACTION_STATE_TOPIC}",
        (PARTIAL, PARTIAL, PARTIAL, COMPLETE, COMPLETE, PARTIAL),
        UNREAD,
        (DESCRIBE_LOG,),
    ),
    "READ on `__consumer_offsets`": Row(
        READ_GROUP_OFFSETS, "Read on topic __consumer_offsets", (COMPLETE,) * len(ASKED)
    ),
    "DESCRIBE on transactional ids": Row(
        DESCRIBE_IDS,
        "Describe on all transactional ids",
        (NOTHING, NOTHING, NOTHING, PARTIAL, PARTIAL, ERROR),
        UNKNOWN_IDS,
    ),
    "DESCRIBE on groups": Row(DESCRIBE_GROUPS, "Describe on all consumer groups", (COMPLETE,) * len(ASKED)),
}


@pytest.fixture(scope="module")
def guarded(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_broker(clusters, "commands", tmp_path_factory.mktemp("commands")) as found:
        yield found


@pytest.fixture
def ask(guarded: Guarded, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answered]:
    """A command as the user."""
    return lambda *command: guarded.ask(capsys, *command)


def kind(answered: Answered) -> str:
    if not answered.answer:
        assert answered.code == 1
        return ERROR
    rows, is_complete = answered.answer["rows"], answered.answer["complete"]
    assert answered.code == (0 if is_complete else 1)
    return COMPLETE if is_complete else PARTIAL if rows else NOTHING


def said(answered: Answered) -> str:
    return answered.error + " ".join(one["why"] for one in answered.answer.get("not_checked", ()))


@pytest.mark.matrix
@pytest.mark.parametrize("missing", MATRIX)
def test_the_commands_without_one_right(guarded: Guarded, ask: Callable[..., Answered], missing: str) -> None:
    row = MATRIX[missing]
    guarded.grants.set(row.granted)
    eventually(
        lambda: any(one.startswith(row.reported) for one in missing_rights(ask("doctor").answer)),
        IN_FORCE_S,
        f"doctor to report {row.reported}",
    )
    found: dict[str, Answered] = {name: ask(*command) for name, command in ASKED.items()}
    assert {name: kind(answered) for name, answered in found.items()} == dict(zip(ASKED, row.cells, strict=True))
    incomplete = {name: said(answered) for name, answered in found.items() if kind(answered) != COMPLETE}
    assert {name: text for name, text in incomplete.items() if row.named not in text} == {}
    hangs = [one["verdict"] for one in found["`find-hanging`"].answer["rows"]]
    assert hangs == ([] if row.cells[0] == NOTHING else ["hanging"])


def test_the_page_has_what_each_command_answers_without_each_right() -> None:
    page = PAGE.read_text()
    lines = [f"| {name} | {' | '.join(row.cells)} |" for name, row in MATRIX.items()]
    assert f"| without | {' | '.join(ASKED)} |" in page
    assert [line for line in lines if line not in page] == []


DESCRIBE_EVENTS = Right(AclOperation.DESCRIBE, ResourceType.TOPIC, EVENTS_TOPIC)


@pytest.fixture(scope="module")
def incident(guarded: Guarded) -> str:
    """An open incident on the events topic, with the heartbeat of a watcher that proves everything."""
    guarded.ensure_events_topic()
    now_ms, opened = wall_clock_ms(), a_life("of-readers")[0]
    beat = a_heartbeat(time_ms=now_ms, evaluated_ms=now_ms, unproven_partitions=0, unproven_names=())
    with closing(KafkaEventsTopic({"bootstrap.servers": guarded.kafka.bootstrap_servers}, EVENTS_TOPIC)) as topic:
        topic.beat(beat)
        topic.publish([opened])
    return opened.incident_id


def test_a_reader_needs_one_right(guarded: Guarded, ask: Callable[..., Answered], incident: str) -> None:
    guarded.grants.set(READERS)
    events = eventually(lambda: (found := ask("events")).code == 0 and found, IN_FORCE_S, "events to be read")
    assert events.answer["incident_id"] == incident
    status = ask("status", "--events-topic", EVENTS_TOPIC, "--fail-on-found")
    assert (status.code, status.answer["complete"]) == (3, True)
    assert [row["incident_id"] for row in status.answer["rows"]] == [incident]


@pytest.mark.usefixtures("incident")
@pytest.mark.parametrize("rights", [(), (DESCRIBE_EVENTS,)], ids=["none", "DESCRIBE"])
@pytest.mark.parametrize("command", ["events", "status"])
def test_a_reader_without_the_right_is_an_error_that_names_it(
    guarded: Guarded, capsys: pytest.CaptureFixture[str], rights: tuple[Right, ...], command: str
) -> None:
    guarded.grants.set(rights)

    def said() -> str:
        code = main([command, *guarded.connection, "--events-topic", EVENTS_TOPIC])
        out, error = capsys.readouterr()
        return error if (code, out) == (1, "") else ""

    (line,) = eventually(said, IN_FORCE_S, "an error").splitlines()
    assert line.startswith(f"txnwatch: events topic '{EVENTS_TOPIC}': ")
    assert "the right READ on the topic is missing (docs/rights.md)" in line


@dataclass(frozen=True)
class Hang:
    """A hang that `txnwatch abort` may end."""

    guarded: Guarded
    partition: TopicPartition
    producer_id: int

    @property
    def command(self) -> tuple[str, ...]:
        where = ("--topic", self.partition.topic, "--partition", str(self.partition.partition))
        return ("abort", *where, "--producer-id", str(self.producer_id), "--yes")

    @property
    def is_open(self) -> bool:
        with closing(connect(self.guarded.kafka)) as cluster:
            reading = ClusterAdmin(cluster).read_partitions([self.partition])[self.partition]
            return reading.open_transaction(self.producer_id) is not None


@pytest.fixture
def hang(guarded: Guarded) -> Hang:
    guarded.ensure_events_topic()
    with closing(connect(guarded.kafka)) as cluster:
        (partition,) = create_topic(cluster, unique("orders-abort"))
        producer = stray_write(cluster, unique("stray"), partition)
        found = Hang(guarded, partition, producer.producer_id)
        producer.init()  # no client can use the epoch again
    return found


ABORT_NEEDS = (READ_DATA, READ_LOG, DESCRIBE_IDS, WRITE_EVENTS, WRITE_MARKERS)
NOT_ABORTED: dict[Right, tuple[str, str]] = {  # what doctor reports, and what the command says
    READ_DATA: (f"Describe on topic {LIVE}", HIDDEN),
    READ_LOG: (f"Read on topic {TRANSACTION_STATE_TOPIC}", HIDDEN),
    DESCRIBE_IDS: ("Describe on all transactional ids", UNKNOWN_IDS),
    WRITE_EVENTS: (f"Write on topic {EVENTS_TOPIC}", "expected the right WRITE for User:txnwatch, found it missing"),
    WRITE_MARKERS: ("Alter on the cluster", "CLUSTER_AUTHORIZATION_FAILED; grant ALTER on the cluster"),
}


def await_rights(ask: Callable[..., Answered], *, lacking: str | None, allowed: tuple[str, ...]) -> None:
    """Waits until doctor reports one right as missing, and others not; None for no missing one."""

    def are_in_force() -> bool:
        missing = missing_rights(ask("doctor").answer)
        return lacking in (*missing, None) and not any(name.startswith(allowed) for name in missing)

    eventually(are_in_force, IN_FORCE_S, f"{lacking} to be missing, and {allowed} not")


def result(answered: Answered) -> str:
    """The row of an abort as one text, or its error."""
    rows = answered.answer.get("rows", ())
    return answered.error + "".join(f"{row['result']}: {row['detail']}" for row in rows)


@pytest.mark.matrix
@pytest.mark.parametrize("right", NOT_ABORTED, ids=str)
def test_without_a_right_abort_writes_no_marker_and_names_it(
    guarded: Guarded, ask: Callable[..., Answered], hang: Hang, right: Right
) -> None:
    lacking, named = NOT_ABORTED[right]
    guarded.grants.set((READ_EVENTS, *(other for other in ABORT_NEEDS if other is not right)))
    await_rights(ask, lacking=lacking, allowed=("Read on topic txnwatch.events",))
    answered = ask(*hang.command)
    assert answered.code == (5 if right is WRITE_MARKERS else 1)
    assert named in result(answered)
    assert (right is WRITE_MARKERS) is ("refused (not_authorized)" in result(answered))
    assert hang.is_open


def test_with_exactly_these_rights_abort_ends_the_hang_and_publishes_it(
    guarded: Guarded, ask: Callable[..., Answered], hang: Hang
) -> None:
    guarded.grants.set((READ_EVENTS, *ABORT_NEEDS))
    allowed = ("Alter on the cluster", "Write on topic", "Read on topic txnwatch.events")
    await_rights(ask, lacking=None, allowed=allowed)
    answered = ask(*hang.command)
    assert (answered.code, answered.error) == (0, "")
    assert result(answered).startswith("verified")
    assert not hang.is_open
    published = events_about(guarded.kafka.bootstrap_servers, hang.partition)
    assert [event.status for event in published] == ["opened", "updated", "resolved"]
    assert {event.action.principal for event in published if event.action is not None} == {f"User:{USER}"}


def test_an_abort_that_may_not_read_the_events_topic_publishes_an_incident_of_its_own_and_says_so(
    guarded: Guarded, ask: Callable[..., Answered], hang: Hang
) -> None:
    guarded.grants.set(ABORT_NEEDS)
    await_rights(ask, lacking="Read on topic txnwatch.events", allowed=("Alter on the cluster", "Write on topic"))
    answered = ask(*hang.command)
    assert (answered.code, hang.is_open) == (0, False)
    assert "the right READ on the topic is missing" in answered.error
    assert "this abort is not told on the incident of a watch" in answered.error
    published = events_about(guarded.kafka.bootstrap_servers, hang.partition)
    assert [event.status for event in published] == ["opened", "updated", "resolved"]


def test_an_abort_without_rights_on_the_events_topic_reports_that_it_publishes_nothing(
    guarded: Guarded, ask: Callable[..., Answered], hang: Hang
) -> None:
    guarded.grants.set(tuple(right for right in ABORT_NEEDS if right is not WRITE_EVENTS))
    await_rights(ask, lacking="Write on topic txnwatch.events", allowed=("Alter on the cluster",))
    answered = ask(*hang.command)
    assert (answered.code, hang.is_open) == (0, False)
    assert f"events topic '{EVENTS_TOPIC}': no event of this abort is published: " in answered.error
    assert HIDDEN in answered.error
    assert events_about(guarded.kafka.bootstrap_servers, hang.partition) == []
