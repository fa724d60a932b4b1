"""What `status` answers about watchers in each coordinator view: the verdicts that are not detected, the exit code."""

from __future__ import annotations

import json

import pytest

from support.heartbeats import a_heartbeat
from txnwatch.cli import status
from txnwatch.cli.main import main
from txnwatch.sinks.delivery.redis_views import Shown
from txnwatch.state.incidents.heartbeat import Heartbeat
from txnwatch.streaming.client.clock import wall_clock_ms

API = "stuck_prepare, late, long_running"
NONE = "hanging, stuck_prepare, long_running, stray_write"
ACTIVE = "no open incident; a watcher is active"
PARTLY = f"{ACTIVE}, but it proves nothing on the partitions that are not checked"


def watching(view: str, cluster_id: str) -> Heartbeat:
    """A watcher that judges now, and for which no partition is unproven."""
    now_ms = wall_clock_ms()
    whole = {"unproven_partitions": 0, "unproven_names": (), "time_ms": now_ms, "evaluated_ms": now_ms}
    return a_heartbeat(**whole, cluster_id=cluster_id, instance=view, coordinator_view=view)


def of_redis(monkeypatch: pytest.MonkeyPatch, *beats: Heartbeat) -> list[str]:
    """The command line for a Redis that shows these heartbeats and no incident."""
    shown = Shown(sorted({beat.cluster_id for beat in beats}), [], list(beats), {})
    monkeypatch.setattr(status, "read_shown", lambda *_: shown)
    return ["status", "--redis-url", "redis://a:1/0"]


# The watchers of a case, by view and cluster. Their heartbeats are made in the test: an old one is not active.
ANSWERS: dict[str, tuple[list[tuple[str, str]], int, str]] = {
    "log": ([("log", "one")], 0, ACTIVE),
    "api": ([("api", "one")], 0, f"{ACTIVE}; no watcher of cluster one detects {API}"),
    "none": ([("none", "one")], 1, f"{PARTLY}; no watcher of cluster one detects {NONE}"),
    "api, and another one with the log": ([("api", "one"), ("log", "one")], 0, ACTIVE),
    "two clusters": (
        [("api", "one"), ("api", "two"), ("log", "three")],
        0,
        f"{ACTIVE}; no watcher of cluster one, two detects {API}",
    ),
    "two clusters with two views": (
        [("api", "one"), ("none", "two")],
        1,
        f"{PARTLY}; no watcher of cluster one detects {API}; no watcher of cluster two detects {NONE}",
    ),
}


@pytest.mark.parametrize(("watchers", "code", "summary"), ANSWERS.values(), ids=ANSWERS.keys())
def test_the_last_line_names_the_verdicts_that_no_watcher_detects(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    watchers: list[tuple[str, str]],
    code: int,
    summary: str,
) -> None:
    assert main(of_redis(monkeypatch, *(watching(view, cluster) for view, cluster in watchers))) == code
    assert capsys.readouterr().out.splitlines()[-1] == summary


def test_json_has_the_verdicts_of_each_watcher(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*of_redis(monkeypatch, watching("api", "one"), watching("log", "one")), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["complete"] is True
    assert {one["coordinator_view"]: one["undetected"] for one in document["watchers"]} == {
        "api": API.split(", "),
        "log": [],
    }
