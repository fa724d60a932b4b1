"""What `doctor` says about the targets of a push; it sends no event and shows no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.http_receiver import Says, receiving
from txnwatch.cli.doctor_rows import push_rows

SECRET = "hunter2-hunter2"


def file_of(directory: Path, hook: str, peer: str) -> Path:
    (directory / "token").write_text(SECRET)
    path = directory / "push.toml"
    path.write_text(
        f'[[webhook]]\nname = "pager"\nurl = "{hook}/{SECRET}"\n'
        f'[[alertmanager]]\nname = "main"\nurls = ["{peer}/prefix"]\ntoken_file = "{directory}/token"\n'
    )
    return path


def test_there_is_no_row_without_a_file() -> None:
    assert list(push_rows(None)) == []


def test_targets_are_reached_and_no_event_is_sent(tmp_path: Path) -> None:
    with receiving() as hook, receiving() as peer:
        peer.usually = lambda _: Says(200)
        rows = list(push_rows(file_of(tmp_path, hook.url, peer.url)))
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
        _, row = push_rows(file_of(tmp_path, hook.url, peer.url))
    assert row.status == "missing"
    assert f"answers {status}" in row.detail


def test_a_target_that_is_down_is_missing(tmp_path: Path) -> None:
    with receiving() as hook, receiving() as peer:
        path = file_of(tmp_path, hook.url, peer.url)
    rows = list(push_rows(path))
    assert [row.status for row in rows] == ["missing", "missing"]
    assert all("refused" in row.detail for row in rows)
    assert SECRET not in str(rows)


def test_a_file_that_is_not_valid_is_one_row(tmp_path: Path) -> None:
    path = tmp_path / "push.toml"
    path.write_text("[[webhook]]\n")
    (row,) = push_rows(path)
    assert row.status == "missing"
    assert "webhook.0.name" in row.detail
