"""A hang that an operator ends as it is printed, with the fence first, while a watch runs: what the topic says."""

from __future__ import annotations

import json
import shlex
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from support.kafka_faults import late_write
from support.servers import connect
from support.shared_watch import EVENTS, SharedWatch
from support.topics import create_topic, unique
from support.waiting import eventually
from support.watch import events_about
from txnwatch.cli.main import main
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.streaming.client.cluster import Cluster

IN_TIME_S, SLOW_S = 90.0, 10.0


@pytest.fixture
def cluster(shared_watch: SharedWatch) -> Iterator[Cluster]:
    with closing(connect(shared_watch.kafka)) as found:
        yield found


def pause(shared_watch: SharedWatch) -> None:
    with shared_watch.watch.paused():
        time.sleep(SLOW_S)


@pytest.mark.parametrize(
    "commit", [pytest.param(True, id="committed"), pytest.param(False, id="aborted", marks=pytest.mark.long)]
)
def test_a_fence_changes_nothing_that_is_known_and_the_incident_ends_once(
    shared_watch: SharedWatch, cluster: Cluster, capsys: pytest.CaptureFixture[str], *, commit: bool
) -> None:
    """The watch is slow: it is stopped while the marker is written. The command does not wait; the watch ends it."""
    (partition,) = create_topic(cluster, unique("fenced"))
    late_write(cluster, unique("fenced"), partition, commit=commit)

    def events() -> list[IncidentEvent]:
        return events_about(shared_watch.kafka.bootstrap_servers, partition, EVENTS)

    def ended() -> list[IncidentEvent]:
        published = events()
        return [] if published[-1].is_open else published

    (opened, *_) = eventually(events, IN_TIME_S, "the incident")
    assert opened.reason == "already_completed"
    fence, abort = str(opened.suggested_command).split(" && ")
    assert main([*shlex.split(fence)[1:], "--yes"]) == 0
    capsys.readouterr()
    assert main(["explain", str(partition), "--bootstrap-server", shared_watch.kafka.bootstrap_servers]) == 0
    text = capsys.readouterr().out
    assert "(already_completed)" in text
    assert "no transaction was begun" not in text
    slow = threading.Thread(target=pause, args=(shared_watch,))
    slow.start()
    assert main([*shlex.split(abort)[1:], "--yes", "--format", "json"]) == 0
    slow.join()
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["result"], row["reason"]) == ("verified", "already_completed")
    found = eventually(ended, IN_TIME_S, "its end")
    assert {one.reason for one in found} == {"already_completed"}
    assert {one.incident_id for one in found} == {opened.incident_id}
    assert [one.status for one in found].count("resolved") == 1
    last = found[-1]
    assert last.resolution is not None
    assert last.action is not None
    assert (last.status, last.resolution.how, last.action.result) == ("resolved", "aborted", "verified")
