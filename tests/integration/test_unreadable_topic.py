"""A topic that `run` may describe but not read: it is named, and nothing is proven there until it may be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]

from support.acl_recipes import PUBLISH, READ_DATA, WATCH, Right
from support.answered import Answered
from support.guarded_broker import HANGING, IN_FORCE_S, LIVE, Guarded, guarded_broker, missing_rights
from support.kafka_faults import stray_write
from support.servers import Clusters, connect
from support.topics import create_topic
from support.waiting import eventually
from support.watch import RunningWatch, events_about
from txnwatch.state.model.values import TopicPartition

VERDICT_S, PERSISTENT_S, NEXT_LINE_S = 30.0, 60.0, 90.0  # a partition has at most one line about a gap in a minute
PARTITION = TopicPartition(HANGING, 0)
DESCRIBE_DATA = Right(AclOperation.DESCRIBE, ResourceType.TOPIC, READ_DATA.name)
READ_LIVE = Right(AclOperation.READ, ResourceType.TOPIC, LIVE)
READ_OTHERS = Right(AclOperation.READ, ResourceType.TOPIC, "orders-open*")
WHOLE = (*WATCH, *PUBLISH)
WITHOUT = (*(right for right in WHOLE if right is not READ_DATA), DESCRIBE_DATA, READ_LIVE, READ_OTHERS)
UNREAD = "TOPIC_AUTHORIZATION_FAILED: the right READ on the topic is missing"


@pytest.fixture(scope="module")
def guarded(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_broker(clusters, "unreadable", tmp_path_factory.mktemp("unreadable")) as found:
        yield found


@pytest.fixture
def ask(guarded: Guarded, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answered]:
    """A command as the user."""
    return lambda *command: guarded.ask(capsys, *command)


def not_checked(answered: Answered) -> dict[str, str]:
    return {one["what"]: one["why"] for one in answered.answer["not_checked"]}


@pytest.mark.long
def test_a_watch_names_a_topic_that_it_may_not_read_and_finds_its_hang_once_it_may(
    guarded: Guarded, ask: Callable[..., Answered], tmp_path: Path
) -> None:
    server = guarded.kafka.bootstrap_servers
    guarded.grants.set(WITHOUT)
    missing = f"Read on topic {HANGING}"
    eventually(lambda: missing in missing_rights(ask("doctor").answer), IN_FORCE_S, f"doctor to report {missing}")
    found = ask("find-hanging")
    assert (found.code, found.answer["rows"], not_checked(found)) == (1, [], {str(PARTITION): UNREAD})

    _, bootstrap, *connection = guarded.connection
    flags = ("--topics", "orders.*", "--events-heartbeat-ms", "1000", *connection)
    with (
        closing(connect(guarded.kafka)) as cluster,
        RunningWatch(bootstrap, tmp_path / "checkpoint", *flags) as watch,
    ):
        (readable,) = create_topic(cluster, "orders-open")
        assert "nothing is proven on the partitions of these topics" in watch.until(f"topic {HANGING}: {UNREAD}")
        assert f"nothing is proven on 1 partition: {PARTITION}" in watch.until("ready: ")
        stray_write(cluster, "of-the-readable", readable)
        stray_write(cluster, "of-the-unreadable", PARTITION)
        eventually(lambda: events_about(server, readable), VERDICT_S, "the hang that it may read")
        assert UNREAD in watch.until(f"warning: gap {PARTITION}")
        status = eventually(
            lambda: str(PARTITION) in not_checked(now := ask("status")) and now, VERDICT_S, "status to name it"
        )
        assert (status.code, status.answer["complete"]) == (1, False)
        assert events_about(server, PARTITION) == []

        guarded.grants.set(WHOLE)
        eventually(lambda: len(events_about(server, PARTITION)) >= 2, PERSISTENT_S, "both hangs")
        assert {event.txn_start_offset for event in events_about(server, PARTITION)} == {0, 1}
        eventually(lambda: ask("status").code == 0, PERSISTENT_S, "nothing to be unproven")

        guarded.grants.set(WITHOUT)
        lines = len(watch.lines)
        eventually(lambda: missing in missing_rights(ask("doctor").answer), IN_FORCE_S, f"doctor to report {missing}")
        stray_write(cluster, "of-the-unreadable-again", PARTITION)
        eventually(lambda: UNREAD in " ".join(watch.lines[lines:]), NEXT_LINE_S, "the right that was taken away")
        eventually(lambda: str(PARTITION) in not_checked(ask("status")), PERSISTENT_S, "status to name it again")
        assert {event.txn_start_offset for event in events_about(server, PARTITION)} == {0, 1}
        guarded.grants.set(WHOLE)
        eventually(
            lambda: 2 in {event.txn_start_offset for event in events_about(server, PARTITION)},
            PERSISTENT_S,
            "the third",
        )
        eventually(lambda: ask("status").code == 0, PERSISTENT_S, "nothing to be unproven again")
