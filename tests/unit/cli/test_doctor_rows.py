"""What `doctor` says about the targets of a push; it sends no event and shows no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.http_receiver import Says, receiving
from support.incidents import an_event
from support.log_lines import LogLines
from support.push_world import START_MS, HandClock
from support.waiting import eventually
from txnwatch.cli.doctor_rows import push_rows
from txnwatch.cli.output import utc
from txnwatch.push.push_file import read_push_file
from txnwatch.push.targets import PushTargets

SECRET = "hunter2-hunter2"
LONG_S = 10.0


def file_of(directory: Path, hook: str, peer: str) -> Path:
    (directory / "token").write_text(SECRET)
    path = directory / "push.toml"
    path.write_text(
        f'[[webhook]]\nname = "pager"\nurl = "{hook}/{SECRET}"\n'
        f'[[alertmanager]]\nname = "main"\nurls = ["{peer}/prefix"]\ntoken_file = "{directory}/token"\n'
    )
    return path


def test_there_is_no_row_without_a_file() -> None:
    assert list(push_rows(None, None)) == []


def test_targets_are_reached_and_no_event_is_sent(tmp_path: Path) -> None:
    with receiving() as hook, receiving() as peer:
        peer.usually = lambda _: Says(200)
        rows = list(push_rows(file_of(tmp_path, hook.url, peer.url), None))
        assert [(row.check, row.status, row.subject) for row in rows] == [
            ("push", "ok", f"pager 127.0.0.1:{hook.port}"),
            ("push", "ok", f"main 127.0.0.1:{peer.port}"),
        ]
        assert hook.received == []
        (request,) = peer.received
        assert (request.method, request.path) == ("GET", "/prefix/api/v2/status")
        assert request.headers["authorization"] == f"Bearer {SECRET}"
    assert SECRET not in str(rows)


@pytest.mark.parametrize("status", [301, 401, 404, 503])
def test_an_answer_that_is_no_success_is_named(tmp_path: Path, status: int) -> None:
    with receiving() as hook, receiving() as peer:
        peer.usually = lambda _: Says(status)
        _, row = push_rows(file_of(tmp_path, hook.url, peer.url), None)
    assert row.status == "missing"
    assert f"answers {status}" in row.detail


def test_a_target_that_is_down_is_missing(tmp_path: Path) -> None:
    with receiving() as hook, receiving() as peer:
        path = file_of(tmp_path, hook.url, peer.url)
    rows = list(push_rows(path, None))
    assert [row.status for row in rows] == ["missing", "missing"]
    assert all("refused" in row.detail for row in rows)
    assert SECRET not in str(rows)


def test_a_target_that_wants_no_more_events_is_missing_until_the_next_start(tmp_path: Path) -> None:
    with receiving() as hook, receiving() as peer:
        path = file_of(tmp_path, hook.url, peer.url)
        peer.usually = lambda _: Says(200)
        hook.answers = [Says(410)]
        peer.answers = [Says(410)]
        targets = started(path, tmp_path)
        for queue in targets.queues:
            queue.put([an_event()])
        eventually(lambda: all(queue.tally.is_stopped for queue in targets.queues), LONG_S, "the answers")
        targets.stop()
        rows = list(push_rows(path, tmp_path))
        assert [row.status for row in rows] == ["missing", "missing"]
        assert all(row.detail.startswith(f"answered 410 at {utc(START_MS)}") for row in rows)
        assert SECRET not in str(rows)
        assert [row.status for row in push_rows(path, tmp_path / "of another checkpoint")] == ["ok", "ok"]
        started(path, tmp_path).stop()
        assert [row.status for row in push_rows(path, tmp_path)] == ["ok", "ok"]


def started(path: Path, directory: Path) -> PushTargets:
    targets = PushTargets(read_push_file(path), directory, HandClock(), LogLines())
    targets.start()
    return targets


def test_a_file_that_is_not_valid_is_one_row(tmp_path: Path) -> None:
    path = tmp_path / "push.toml"
    path.write_text("[[webhook]]\n")
    (row,) = push_rows(path, None)
    assert row.status == "missing"
    assert "webhook.0.name" in row.detail
