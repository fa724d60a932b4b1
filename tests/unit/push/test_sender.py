"""The requests of one target: what the answers mean, how long the next one waits, and what is said about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.http_receiver import Says, receiving
from support.log_lines import LogLines
from support.push_world import HandClock
from txnwatch.http_client import HttpClient
from txnwatch.push.push_file import WebhookTarget
from txnwatch.push.sender import LONGEST_WAIT_MS, Journal, Retries, Sender, TargetAnswer, answer_of, wait_of

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


NOW_MS = 1_700_000_000_000  # Tue, 14 Nov 2023 22:13:20 GMT


@pytest.mark.parametrize(
    ("answer", "statuses"),
    [
        (TargetAnswer.TAKEN, (200, 201, 202, 204, 299)),
        (TargetAnswer.GONE, (410,)),
        (TargetAnswer.REFUSED, (400, 413, 415, 422)),
        (TargetAnswer.AGAIN, (301, 302, 307, 308, 401, 403, 404, 408, 409, 429, 500, 502, 503, 504, 599)),
    ],
)
def test_every_status_has_a_meaning(answer: TargetAnswer, statuses: tuple[int, ...]) -> None:
    assert {status: answer_of(status) for status in statuses} == dict.fromkeys(statuses, answer)


@pytest.mark.parametrize(
    ("header", "wait_ms"),
    [
        (None, 0),
        ("7", 7_000),
        (" 7 ", 7_000),
        ("0", 0),
        ("86400", LONGEST_WAIT_MS),
        ("9" * 4_000, LONGEST_WAIT_MS),
        ("Tue, 14 Nov 2023 22:13:50 GMT", 30_000),
        ("Tue, 14 Nov 2023 22:13:50", 30_000),
        ("Tue, 14 Nov 2023 22:13:10 GMT", 0),
        ("Wed, 15 Nov 2023 22:13:20 GMT", LONGEST_WAIT_MS),
        ("soon", 0),
        ("-5", 0),
        ("1.5", 0),
        ("\u0667", 0),
        ("", 0),
    ],
)
def test_the_time_that_a_target_asks_for_counts_up_to_a_limit(header: str | None, wait_ms: int) -> None:
    assert wait_of(header, NOW_MS) == wait_ms


def test_pauses_double_up_to_thirty_seconds_and_end_with_a_success() -> None:
    retries, pauses = Retries(lambda _, __: 1.0), []
    for _ in range(8):
        retries.put_off(NOW_MS)
        pauses.append(retries.due_ms - NOW_MS)
    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]
    assert retries.end()
    assert not retries.end(), "nothing has failed since"
    retries.put_off(NOW_MS)
    assert retries.due_ms - NOW_MS == 1_000


def test_pauses_differ_by_a_fifth_so_that_several_watchers_do_not_come_together() -> None:
    asked: list[tuple[float, float]] = []

    def least(low: float, high: float) -> float:
        asked.append((low, high))
        return low

    retries = Retries(least)
    retries.put_off(NOW_MS)
    assert asked == [(0.8, 1.2)]
    assert retries.due_ms - NOW_MS == 800


def test_a_target_is_left_alone_at_least_for_as_long_as_it_asks() -> None:
    retries = Retries(lambda _, __: 1.0)
    retries.put_off(NOW_MS, 60_000)
    assert retries.due_ms - NOW_MS == 60_000
    retries.put_off(NOW_MS, 500)
    assert retries.due_ms - NOW_MS == 2_000
