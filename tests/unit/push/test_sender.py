"""The requests of one target: how long the next one waits, and what is said about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.http_receiver import Says, receiving
from support.log_lines import LogLines
from support.push_world import HandClock
from txnwatch.push.http_client import HttpClient
from txnwatch.push.journal import Journal
from txnwatch.push.push_file import WebhookTarget
from txnwatch.push.sender import Sender
from txnwatch.push.target_answers import TargetAnswer

UNWRITTEN = Journal(Path("no-directory", "position"), lambda _: None)  # only an answer 410 is written


def sender_to(url: str, clock: HandClock, log: LogLines, journal: Journal = UNWRITTEN, **values: object) -> Sender:
    target = WebhookTarget(name="pager", url=f"{url}/secret-path", **values)
    return Sender("webhook pager", target, HttpClient(target.addresses[0]), journal, clock, log)


def test_a_target_is_left_alone_for_as_long_as_it_asks() -> None:
    clock = HandClock()
    with receiving() as receiver:
        sender = sender_to(receiver.url, clock, LogLines())
        receiver.answers = [Says(429, {"Retry-After": "120"}), Says(200)]
        assert sender.post([], b"x") is TargetAnswer.AGAIN
        assert sender.wait_ms() == 120_000
        clock.now_ms += 119_000
        assert sender.wait_ms() == 1_000
        clock.now_ms += 1_000
        assert sender.wait_ms() == 0
        assert sender.post([], b"x") is TargetAnswer.TAKEN
    assert sender.wait_ms() == 0
    assert sender.failures == 1


def test_a_target_that_does_not_answer_is_a_failure_with_a_pause() -> None:
    log = LogLines()
    with receiving() as receiver:
        url = receiver.url
    sender = sender_to(url, HandClock(), log)
    assert [sender.post([], b"x") for _ in range(2)] == [TargetAnswer.AGAIN] * 2
    assert 1_600 <= sender.wait_ms() <= 2_400
    assert len(log) == 1, "one line for a row of failures"
    assert "secret-path" not in log[0]


@pytest.mark.parametrize("text", [b"no \x1b[31m\r\nforged line", b"\xe2\x80\xae" * 500])
def test_an_answer_is_shown_as_one_line_that_a_terminal_can_show(text: bytes) -> None:
    log = LogLines()
    with receiving() as receiver:
        receiver.answers = [Says(500, {}, text)]
        sender_to(receiver.url, HandClock(), log).post([], b"x")
    assert log[0].isprintable()
    assert len(log[0]) < 1_500


def test_a_secret_of_a_request_is_in_no_line(tmp_path: Path) -> None:
    log = LogLines()
    (tmp_path / "token").write_text("hunter2-hunter2")
    with receiving() as receiver:
        receiver.answers = [Says(401), Says(410)]
        journal, secrets = Journal(tmp_path / "position", log.warning), {"X-Key": "hunter3"}
        sender = sender_to(receiver.url, HandClock(), log, journal, token_file=tmp_path / "token", headers=secrets)
        sender.post([], b"x")
        sender.post([], b"x")
        assert receiver.received[0].headers["authorization"] == "Bearer hunter2-hunter2"
    assert len(log) == 2
    assert "hunter" not in "".join(log)
