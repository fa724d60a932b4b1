"""What `status` answers about watchers in each coordinator view: the verdicts that are not detected, the exit code."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from support.heartbeats import a_heartbeat
from txnwatch.cli import status
from txnwatch.cli.main import main
from txnwatch.sinks.delivery.redis_views import RedisIncidents
from txnwatch.state.incidents.heartbeat import Heartbeat
from txnwatch.state.model.errors import SinkError
from txnwatch.state.model.values import CoordinatorAccess
from txnwatch.state.model.verdicts import undetected
from txnwatch.streaming.client.clock import wall_clock_ms

API = ", ".join(undetected(CoordinatorAccess.API))
NONE = ", ".join(undetected(CoordinatorAccess.NONE))
ACTIVE = "no open incident; a watcher is active"
PARTLY = f"{ACTIVE}, but it proves nothing on the partitions that are not checked"


def watching(view: str, cluster_id: str) -> Heartbeat:
    """A watcher that judges now, and for which no partition is unproven."""
    now_ms = wall_clock_ms()
    whole = {"unproven_partitions": 0, "unproven_names": (), "time_ms": now_ms, "evaluated_ms": now_ms}
    return a_heartbeat(**whole, cluster_id=cluster_id, instance=view, coordinator_view=view)


def of_redis(monkeypatch: pytest.MonkeyPatch, *beats: Heartbeat) -> list[str]:
    """The command line for a Redis that shows these heartbeats and no incident."""
    shown = RedisIncidents(sorted({beat.cluster_id for beat in beats}), [], list(beats), {})
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


class Interrupted(Exception):  # noqa: N818 - what ends the test
    """Stands for Ctrl-C."""


def watched(monkeypatch: pytest.MonkeyPatch, *answers: RedisIncidents | Exception) -> list[float]:
    """`status` gets these answers one after the other, then it is interrupted; returns the pauses."""
    left, pauses = list(answers), []

    def read(*_: object) -> RedisIncidents:
        if not left:
            raise Interrupted
        found = left.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(status, "read_shown", read)
    monkeypatch.setattr(status.time, "sleep", pauses.append)
    return pauses


def seen(cluster: str) -> RedisIncidents:
    return RedisIncidents([cluster], [], [watching("log", cluster)], {})


AWAY = SinkError("Redis does not answer")
WATCH = ("status", "--redis-url", "redis://a:1/0", "--watch")


@pytest.mark.parametrize(("flag", "pause"), [((), 5), (("2",), 2)], ids=["without a number", "with one"])
def test_status_is_shown_again_and_survives_a_server_that_is_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flag: tuple[str, ...], pause: int
) -> None:
    pauses = watched(monkeypatch, seen("one"), AWAY, seen("two"))
    with pytest.raises(Interrupted):
        main([*WATCH, *flag])
    shown = capsys.readouterr()
    assert pauses == [pause] * 3
    lines = shown.out.splitlines()
    assert [line.partition("Z, ")[2] for line in lines if "Ctrl-C" in line] == [
        f"again in {pause} s, Ctrl-C ends it"
    ] * 2
    assert [line.split(": ")[0] for line in lines if line.startswith("watcher ")] == [
        f"watcher log (0.9) of cluster {name}" for name in ("one", "two")
    ]
    assert shown.err == "txnwatch: Redis does not answer\n"
    assert "\x1b" not in shown.out, "nobody looks"


def test_on_a_terminal_each_answer_replaces_the_one_before_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    watched(monkeypatch, seen("one"), seen("two"))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    with pytest.raises(Interrupted):
        main([*WATCH])
    assert [part.count("of cluster") for part in capsys.readouterr().out.split("\x1b[H\x1b[J")] == [0, 1, 1]


def test_json_that_is_shown_again_is_one_object_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    watched(monkeypatch, seen("one"), seen("two"))
    with pytest.raises(Interrupted):
        main([*WATCH, "-o", "json"])
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [answer["cluster_id"] for answer in found] == ["one", "two"]


def test_without_a_first_answer_it_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert watched(monkeypatch, AWAY) == []
    assert main([*WATCH]) == 1
    assert capsys.readouterr().err == "txnwatch: Redis does not answer\n"


def test_without_an_active_watcher_json_names_what_is_not_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = replace(watching("log", "two"), evaluated_ms=wall_clock_ms() - 120_000)
    for beats, what, why in (
        ((), "every cluster", "no watcher is active: no heartbeat was found here"),
        (
            (watching("log", "one"), silent),
            "cluster two",
            "no watcher is active: none has evaluated a barrier of the last minute",
        ),
    ):
        assert main([*of_redis(monkeypatch, *beats), "-o", "json"]) == 4
        answer = json.loads(capsys.readouterr().out)
        assert (answer["complete"], answer["not_checked"]) == (False, [{"what": what, "why": why}])
