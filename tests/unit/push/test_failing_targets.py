"""A target that does not take its events is seen: what waits, since when, and why."""

from __future__ import annotations

from pathlib import Path

from support.http_receiver import Says, receiving
from support.incidents import a_life, an_event
from support.log_lines import LogLines
from support.push_world import START_MS, HandClock, a_webhook
from support.waiting import eventually
from txnwatch.sinks.delivery.outbox import Outbox, failing_targets
from txnwatch.state.model.errors import SinkError

_LONG_S = 10.0


def test_a_target_that_works_is_no_failing_one(tmp_path: Path) -> None:
    with receiving() as receiver, a_webhook(receiver, tmp_path, HandClock()) as webhook:
        webhook.put([an_event()])
        eventually(lambda: webhook.tally.delivered == 1, _LONG_S, "the event")
        assert failing_targets([webhook]) == []


def test_a_target_that_fails_is_shown_until_it_takes_events_again(tmp_path: Path) -> None:
    clock = HandClock()
    with receiving() as receiver, a_webhook(receiver, tmp_path, clock) as webhook:
        receiver.answers = [Says(503, {}, b"of the \x1b[31mproxy")]
        webhook.put(a_life("incident"))
        eventually(lambda: webhook.failures == 1, _LONG_S, "the failure")
        (found,) = failing_targets([webhook])
        assert (found.name, found.waiting, found.oldest_ms) == ("webhook pager", 3, START_MS)
        where = receiver.url.removeprefix("http://")
        expected = (
            f"webhook pager: 3 events wait, the oldest for 3 min 20 s: {where} answers 503: of the \\x1b[31mproxy"
        )
        assert found.text(clock() + 200_000) == expected
        assert "secret-path" not in found.text(clock())
        clock.now_ms += 400_000
        webhook.put([])
        eventually(lambda: webhook.tally.delivered == 3, _LONG_S, "the events")
        assert failing_targets([webhook]) == []


def test_a_target_that_is_gone_is_shown(tmp_path: Path) -> None:
    with receiving() as receiver, a_webhook(receiver, tmp_path, HandClock()) as webhook:
        receiver.answers = [Says(410)]
        webhook.put([an_event()])
        eventually(lambda: webhook.tally.is_stopped, _LONG_S, "the end")
        (found,) = failing_targets([webhook])
        assert found.error.endswith(" answers 410: nothing is sent to it until the next start")


def test_a_target_that_refuses_an_event_is_shown_until_it_takes_another_one(tmp_path: Path) -> None:
    clock = HandClock()
    with receiving() as receiver, a_webhook(receiver, tmp_path, clock) as webhook:
        receiver.answers = [Says(400)] * 3
        webhook.put([an_event()])
        for failures in range(1, 4):
            eventually(lambda: webhook.failures == failures, _LONG_S, "a refusal")  # noqa: B023 - called at once
            clock.now_ms += 31_000
            webhook.put([])
        eventually(lambda: webhook.waiting == 0, _LONG_S, "the event set aside")
        (found,) = failing_targets([webhook])
        assert found.text(clock()).startswith("webhook pager: no event waits: ")
        webhook.put([an_event("other")])
        eventually(lambda: webhook.tally.delivered == 1, _LONG_S, "the next event")
        assert failing_targets([webhook]) == []


def test_the_events_topic_that_fails_is_shown() -> None:
    problems: list[SinkError] = [SinkError("topic events: the leader is away")]

    def send(_: object) -> None:
        if problems:
            raise problems.pop()

    outbox = Outbox("topic events", send, LogLines())
    outbox.put([an_event()])
    outbox.deliver(HandClock()())
    (found,) = failing_targets([outbox])
    assert (found.waiting, found.error) == (1, "topic events: the leader is away")
    assert "wait" in found.text(START_MS)
    outbox.deliver_last(HandClock()())
    assert failing_targets([outbox]) == []
