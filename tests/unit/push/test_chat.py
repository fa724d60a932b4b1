"""A chat over HTTP: text for people, a storm as a digest, and no info."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.http_receiver import Receiver, Says, receiving
from support.incidents import a_life, an_event, an_update
from support.push_world import START_MS, HandClock, a_webhook
from support.waiting import eventually
from txnwatch.push.digest import MINUTE_MS
from txnwatch.push.message import message_of
from txnwatch.push.webhook import Webhook

_LONG_S = 10.0
CHAT: dict[str, Any] = {"mode": "chat", "external_url": "https://txnwatch.example"}
INFO: dict[str, Any] = {"verdict": "long_running", "severity": "info", "topic": None, "partition": None}


def texts(receiver: Receiver) -> list[str]:
    return [json.loads(request.body)["text"] for request in receiver.taken]


def delivered(chat: Webhook, count: int) -> None:
    eventually(lambda: chat.tally.delivered == count, _LONG_S, f"{count} events")


def test_a_chat_gets_the_message_and_its_end(tmp_path: Path) -> None:
    life = a_life("incident")
    with receiving() as receiver, a_webhook(receiver, tmp_path, HandClock(), **CHAT) as chat:
        chat.put([life[0], life[-1]])
        delivered(chat, 2)
    messages = [message_of(event, CHAT["external_url"]).as_text(event.status) for event in (life[0], life[-1])]
    assert texts(receiver) == messages
    assert receiver.taken[0].headers["content-type"] == "application/json"


def test_a_storm_is_one_message(tmp_path: Path) -> None:
    with receiving() as receiver, a_webhook(receiver, tmp_path, HandClock(), **CHAT) as chat:
        chat.put(an_event(f"incident {number}", partition=number) for number in range(1_000))
        delivered(chat, 1_000)
        eventually(lambda: chat.waiting == 0, _LONG_S, "an empty queue")
    (text,) = texts(receiver)
    assert text.startswith("[DIGEST] cluster: 1,000 incidents of 1 cause: 1,000 open\n")


def test_a_second_storm_waits_for_its_minute_and_what_is_sent_is_kept(tmp_path: Path) -> None:
    clock, settings = HandClock(), {**CHAT, "messages_per_minute": 2}
    with receiving() as receiver:
        with a_webhook(receiver, tmp_path, clock, **settings) as chat:
            chat.put(an_event(f"first {number}") for number in range(5))
            delivered(chat, 5)
            chat.put(an_event(f"second {number}") for number in range(5))
            assert chat.waiting == 5
            clock.now_ms += MINUTE_MS
            chat.put([])
            delivered(chat, 10)
        with a_webhook(receiver, tmp_path, clock, **settings) as chat:
            chat.put(an_event(f"{part} {number}") for number in range(5) for part in ("first", "second"))
            assert chat.waiting == 0, "each event has its position"
    assert [text.splitlines()[0] for text in texts(receiver)] == [
        "[DIGEST] cluster: 5 incidents of 1 cause: 5 open",
        "[DIGEST] cluster: 5 incidents of 1 cause: 5 open",
    ]


def test_a_chat_that_was_away_gets_one_message_about_all_of_it(tmp_path: Path) -> None:
    clock, settings = HandClock(), {**CHAT, "messages_per_minute": 2}
    with receiving() as receiver, a_webhook(receiver, tmp_path, clock, **settings) as chat:
        receiver.answers = [Says(503)]
        chat.put([an_event("first")])
        eventually(lambda: chat.failures == 1, _LONG_S, "the failure")
        chat.put(an_event(f"next {number}") for number in range(4))
        assert chat.waiting == 5
        clock.now_ms += 40_000
        chat.put([])
        delivered(chat, 5)
    (text,) = texts(receiver)
    assert text.startswith("[DIGEST] cluster: 5 incidents of 1 cause: 5 open\n")


def test_a_chat_gets_no_info_and_what_becomes_worse(tmp_path: Path) -> None:
    first = an_event("incident", **INFO)
    worse = an_update(first, START_MS + 1, verdict="late", severity="warning")
    better = an_update(worse, START_MS + 2, verdict="long_running", severity="info")
    with receiving() as receiver, a_webhook(receiver, tmp_path, HandClock(), **CHAT) as chat:
        chat.put([an_event("only info", **INFO), first])
        assert chat.waiting == 0
        chat.put([worse])
        delivered(chat, 1)
        chat.put([better])
        delivered(chat, 2)
    assert [text.splitlines()[0] for text in texts(receiver)] == [
        "[UPDATED] cluster: payments-\u00fc: Kafka transaction late",
        "[UPDATED] cluster: payments-\u00fc: Kafka transaction long running",
    ]
    assert [text.splitlines()[1] for text in texts(receiver)] == [
        "Changed: now LATE; severity: warning",
        "Changed: now LONG RUNNING; severity: info",
    ]


def test_an_update_says_what_has_changed_also_after_a_restart(tmp_path: Path) -> None:
    first = an_event("incident")
    stopped = [{"group_id": "ledger*", "state": "stopped", "committed_offset": 99, "hidden_lag": 21}]
    second = an_update(first, START_MS + 1, consumer_groups=an_event("x", consumer_groups=stopped).consumer_groups)
    third = an_update(second, START_MS + 2, consumer_groups=(), hidden_records=1_021)
    with receiving() as receiver:
        with a_webhook(receiver, tmp_path, HandClock(), **CHAT) as chat:
            chat.put([first, second])
            delivered(chat, 2)
        with a_webhook(receiver, tmp_path, HandClock(), **CHAT) as chat:
            for event in (first, second, third):
                chat.take_history(event)
            delivered(chat, 1)
    assert [text.splitlines()[1] for text in texts(receiver)][1:] == [
        "Changed: stopped: ledger\\x2a",
        "Changed: no longer stopped or waiting: ledger\\x2a; 1,021 records hidden",
    ]
    assert "Changed" not in texts(receiver)[0]


def test_info_is_told_if_it_is_asked_for(tmp_path: Path) -> None:
    settings = {**CHAT, "least_severity": "info"}
    with receiving() as receiver, a_webhook(receiver, tmp_path, HandClock(), **settings) as chat:
        chat.put([an_event("incident", **INFO)])
        delivered(chat, 1)


def test_a_program_gets_every_event(tmp_path: Path) -> None:
    with receiving() as receiver, a_webhook(receiver, tmp_path, HandClock()) as webhook:
        webhook.put([an_event("info", **INFO), *(an_event(f"incident {number}") for number in range(50))])
        delivered(webhook, 51)
    assert len(receiver.taken) == 51
