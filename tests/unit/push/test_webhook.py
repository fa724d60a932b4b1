"""A web hook: requests and their signature; order, repeats and restarts, with a receiver that is slow or refuses."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from support.http_receiver import ReceivedRequest, Receiver, Says, receiving
from support.incidents import a_life, an_event, id_of
from support.log_lines import LogLines
from support.push_world import START_MS, HandClock, a_webhook, ids_of
from support.waiting import eventually
from txnwatch.push.message import message_of
from txnwatch.push.webhook import CONSENT_MS, LONGEST_ATTRIBUTE, Webhook, binary, signature_headers, structured
from txnwatch.sinks.delivery.encoding import cloud_event_headers, from_bytes
from txnwatch.sinks.delivery.outbox import MOST_WAITING, DeliveryCounts

_LONG_S = 10.0
LATE_MS = 400_000  # later than every pause


def all_taken(receiver: Receiver, count: int) -> list[str]:
    eventually(lambda: len(receiver.taken) >= count, _LONG_S, f"{count} events")
    return ids_of(receiver.taken)


def passes(webhook: Webhook, clock: HandClock, by_ms: int = LATE_MS) -> None:
    """Moves the clock, and lets the thread see it."""
    clock.now_ms += by_ms
    webhook.put([])


def test_events_arrive_in_order_one_at_a_time(tmp_path: Path) -> None:
    events = [event for number in range(20) for event in a_life(f"incident {number}")]
    with receiving() as receiver, a_webhook(receiver, tmp_path, HandClock()) as webhook:
        receiver.gate.clear()
        webhook.put(events)
        eventually(lambda: receiver.received, _LONG_S, "the first request")
        assert webhook.waiting == len(events)
        assert len(receiver.received) == 1, "the next one waits for the answer"
        receiver.gate.set()
        assert all_taken(receiver, len(events)) == [event.event_id for event in events]
        eventually(lambda: webhook.waiting == 0, _LONG_S, "an empty queue")
        assert webhook.tally == DeliveryCounts(len(events))
    assert {request.path for request in receiver.received} == {"/hook/secret-path"}


@pytest.mark.parametrize("status", [301, 401, 403, 404, 408, 429, 500, 503])
def test_what_may_pass_is_tried_again_and_reported_once(tmp_path: Path, status: int) -> None:
    clock, log = HandClock(), LogLines()
    first, second = an_event("first"), an_event("second")
    with receiving() as receiver, a_webhook(receiver, tmp_path, clock, log) as webhook:
        receiver.answers = [Says(status), Says(status), Says(status)]
        webhook.put([first, second])
        for failures in (1, 2, 3):
            eventually(lambda: webhook.failures == failures, _LONG_S, "a failure")  # noqa: B023 - called at once
            passes(webhook, clock)
        assert all_taken(receiver, 2) == [first.event_id, second.event_id]
        assert ids_of(receiver.received) == [first.event_id] * 4 + [second.event_id]
        eventually(lambda: len(log) == 2, _LONG_S, "both lines")
    assert log[0].startswith(f"warning: webhook pager: 127.0.0.1:{receiver.port} answers {status}")
    assert log[1] == "webhook pager takes events again"
    assert "secret-path" not in "".join(log)


def test_a_receiver_that_is_down_gets_everything_later(tmp_path: Path) -> None:
    clock = HandClock()
    with receiving() as receiver, a_webhook(receiver, tmp_path, clock) as webhook:
        receiver.stop()
        webhook.put(a_life("incident"))
        eventually(lambda: webhook.failures == 1, _LONG_S, "the failure")
        assert webhook.tally.oldest_ms == START_MS
        receiver.start()
        passes(webhook, clock)
        assert all_taken(receiver, 3) == [event.event_id for event in a_life("incident")]


def test_nothing_is_sent_any_more_after_410_until_the_next_start(tmp_path: Path) -> None:
    clock, log, life = HandClock(), LogLines(), a_life("incident")
    with receiving() as receiver:
        receiver.answers = [Says(410)]
        with a_webhook(receiver, tmp_path, clock, log) as webhook:
            webhook.put(life[:1])
            eventually(lambda: webhook.tally.is_stopped, _LONG_S, "the end")
            webhook.put(life[1:])
            passes(webhook, clock)
            webhook.stop(1.0)
            assert len(receiver.received) == 1
            assert webhook.waiting == 3, "an alert about events that are not delivered must not go away"
        assert "answers 410" in log[-1]
        with a_webhook(receiver, tmp_path, clock) as webhook:
            webhook.put(life[:1])
            assert all_taken(receiver, 1) == [life[0].event_id]


@pytest.mark.parametrize("status", [400, 413, 415, 422])
def test_an_event_that_is_refused_three_times_is_set_aside_and_the_next_goes_on(tmp_path: Path, status: int) -> None:
    clock, log = HandClock(), LogLines()
    first, second = an_event("first"), an_event("second")

    def answer(request: ReceivedRequest) -> Says:
        return Says(status if json.loads(request.body)["id"] == first.event_id else 200)

    with receiving() as receiver:
        receiver.usually = answer
        with a_webhook(receiver, tmp_path, clock, log) as webhook:
            webhook.put([first, second])
            for failures in (1, 2, 3):
                eventually(lambda: webhook.failures == failures, _LONG_S, "a refusal")  # noqa: B023 - called at once
                passes(webhook, clock)
            assert all_taken(receiver, 1) == [second.event_id]
            assert webhook.tally.refused == 1
        assert any(f"event {first.event_id} is refused" in line for line in log)
        with a_webhook(receiver, tmp_path, clock) as webhook:
            webhook.put([first, an_event("third")])
            assert all_taken(receiver, 2)[-1] == an_event("third").event_id
        assert ids_of(receiver.received).count(first.event_id) == 3, "also after a restart it is not sent again"


def test_a_restart_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    clock = HandClock(START_MS - 1)
    life, other = a_life("incident"), a_life("while away")
    topic = [*life, *other]
    with receiving() as receiver:
        with a_webhook(receiver, tmp_path, clock) as webhook:
            webhook.put(life[:2])
            all_taken(receiver, 2)
            eventually(lambda: webhook.waiting == 0, _LONG_S, "the position to be kept")
        with a_webhook(receiver, tmp_path, clock) as webhook:
            for event in topic:
                webhook.take_history(event)
            webhook.take_over([life[2], other[2]], {})
            assert all_taken(receiver, 5)
            eventually(lambda: webhook.waiting == 0, _LONG_S, "an empty queue")
    assert ids_of(receiver.received) == [event.event_id for event in topic]


def test_an_event_whose_answer_was_lost_is_sent_again_with_the_same_id(tmp_path: Path) -> None:
    event = an_event()
    with receiving() as receiver:
        receiver.gate.clear()
        with a_webhook(receiver, tmp_path, HandClock()) as webhook:
            webhook.put([event])
            eventually(lambda: receiver.received, _LONG_S, "the request")
            webhook.stop(1.0)  # as a kill: the request is left behind
            receiver.stop()
            receiver.start()
            receiver.gate.clear()
            with a_webhook(receiver, tmp_path, HandClock()) as again:
                again.put([event])
                receiver.gate.set()
                all_taken(receiver, 2)
    assert set(ids_of(receiver.received)) == {event.event_id}


def test_a_first_start_tells_about_open_incidents_only(tmp_path: Path) -> None:
    history, open_now = a_life("long over"), an_event("open")
    clock = HandClock(START_MS + 3_600_000)
    with receiving() as receiver, a_webhook(receiver, tmp_path, clock) as webhook:
        for event in (*history, open_now):
            webhook.take_history(event)
        webhook.take_over([history[-1], open_now], {})
        assert all_taken(receiver, 1) == [open_now.event_id]
        eventually(lambda: webhook.waiting == 0, _LONG_S, "an empty queue")
        assert len(receiver.received) == 1


def test_an_older_event_never_follows_a_newer_one(tmp_path: Path) -> None:
    opened, later, over = a_life("incident")
    with receiving() as receiver, a_webhook(receiver, tmp_path, HandClock()) as webhook:
        webhook.put([later])
        webhook.put([opened, later])
        webhook.put([over, later, opened])
        all_taken(receiver, 2)
        eventually(lambda: webhook.waiting == 0, _LONG_S, "an empty queue")
    assert ids_of(receiver.received) == [later.event_id, over.event_id]


def test_the_end_of_a_waiting_incident_is_new_also_if_the_clock_was_set_back(tmp_path: Path) -> None:
    clock, life = HandClock(START_MS + 3_600_000), a_life("incident")
    with receiving() as receiver, a_webhook(receiver, tmp_path, clock) as webhook:
        receiver.gate.clear()
        webhook.put(life[:1])
        webhook.put(life[1:])
        receiver.gate.set()
        assert all_taken(receiver, 3) == [event.event_id for event in life]


def test_the_queue_of_a_receiver_that_is_down_has_a_bound(tmp_path: Path) -> None:
    opened = an_event()
    with receiving() as receiver, a_webhook(receiver, tmp_path, HandClock()) as webhook:
        receiver.stop()
        webhook.put([replace(opened, sequence=sequence) for sequence in range(1, MOST_WAITING + 500)])
        assert webhook.waiting <= MOST_WAITING


def test_a_missing_token_is_a_failure_that_ends_with_the_token(tmp_path: Path) -> None:
    clock, token = HandClock(), tmp_path / "token"
    with receiving() as receiver, a_webhook(receiver, tmp_path, clock, token_file=token) as webhook:
        webhook.put([an_event()])
        eventually(lambda: webhook.failures == 1, _LONG_S, "the failure")
        assert receiver.received == []
        token.write_text("a-token")
        passes(webhook, clock)
        all_taken(receiver, 1)
    assert receiver.received[0].headers["authorization"] == "Bearer a-token"


def test_a_receiver_that_must_agree_gets_no_event_before(tmp_path: Path) -> None:
    clock, origin = HandClock(), {"webhook-request-origin": "txnwatch.example"}
    agrees = Says(405, {"WebHook-Allowed-Origin": "txnwatch.example", "WebHook-Allowed-Rate": "60"})
    values = {"validate": True, "origin": "txnwatch.example"}
    with receiving() as receiver, a_webhook(receiver, tmp_path, clock, **values) as webhook:
        receiver.answers = [Says(200), Says(200, {"WebHook-Allowed-Origin": "other.example"}), agrees]
        webhook.put([an_event("first"), an_event("second")])
        for failures in (1, 2):
            eventually(lambda: webhook.failures == failures, _LONG_S, "a refusal")  # noqa: B023 - called at once
            passes(webhook, clock)
        eventually(lambda: len(receiver.received) == 4, _LONG_S, "the first event")
        assert [request.method for request in receiver.received] == ["OPTIONS", "OPTIONS", "OPTIONS", "POST"]
        assert all(request.headers.items() >= origin.items() for request in receiver.received)
        eventually(lambda: webhook.waiting == 1, _LONG_S, "the first event to be taken")
        passes(webhook, clock, 999)
        passes(webhook, clock, 2)
        eventually(lambda: webhook.waiting == 0, _LONG_S, "the second event, a second later: 60 a minute")
        receiver.answers = [agrees]
        passes(webhook, clock, CONSENT_MS)
        webhook.put([an_event("third")])
        eventually(lambda: len(receiver.received) == 7, _LONG_S, "the consent of the next day, and the third event")
    assert [request.method for request in receiver.received[4:]] == ["POST", "OPTIONS", "POST"]


HOSTILE = 'a"b%c\n\x1b[31m\u202e<script>\u00fc \U0001f600'
ATTRIBUTES = ("specversion", "id", "source", "type", "subject", "time")


def of_a_transaction(name: str) -> Any:
    return an_event(topic=None, partition=None, topic_id=None, verdict="late", transactional_id=name)


def test_structured_mode_has_the_attributes_of_the_topic_and_the_event() -> None:
    event = an_event()
    request = structured(event)
    found = json.loads(request.body)
    assert dict(request.headers) == {"Content-Type": "application/cloudevents+json; charset=UTF-8"}
    assert found.pop("datacontenttype") == "application/json"
    assert from_bytes(json.dumps(found.pop("data")).encode()) == event
    assert found.pop("message") == message_of(event).as_text("opened"), "an extension of CloudEvents, for people"
    on_topic = cloud_event_headers(event, "application/json")
    assert found == {name: on_topic[f"ce_{name}"] for name in ATTRIBUTES}


def test_binary_mode_has_the_attributes_in_headers_and_the_event_as_the_body() -> None:
    event = an_event()
    request = binary(event)
    headers = dict(request.headers)
    assert headers.pop("Content-Type") == "application/json"
    assert {name: unquote(value) for name, value in headers.items()} == {
        f"ce-{name}": value for name, value in json.loads(structured(event).body).items() if name in ATTRIBUTES
    }
    assert from_bytes(request.body) == event


@pytest.mark.parametrize("name", [HOSTILE, "x" * 32_000, "\u00fc" * 10_000])
def test_a_hostile_name_is_printable_text_of_a_bounded_length_in_both_modes(name: str) -> None:
    event = of_a_transaction(name)
    header = dict(binary(event).headers)["ce-subject"]
    attribute = json.loads(structured(event).body)["subject"]
    assert header.isascii()
    assert not set(header) & set(' "\n\r\x1b')
    assert unquote(header) == attribute
    assert attribute.isprintable()
    assert len(attribute) <= LONGEST_ATTRIBUTE
    assert json.loads(structured(event).body)["data"]["transactional_id"] == name, "the event has the whole name"


def test_a_percent_sign_and_a_quote_are_encoded() -> None:
    header = dict(binary(of_a_transaction('100%"')).headers)["ce-subject"]
    assert header == "100%25%22/4711"


def test_the_signature_is_that_of_the_reference_library() -> None:
    """The values are from the Python package `standardwebhooks`, for the same key, id, time and body."""
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = dict(signature_headers("msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}', [key], 1614265330_000))
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_each_key_signs_so_that_a_receiver_can_change_its_key() -> None:
    old, new = b"o" * 32, b"n" * 32
    both = dict(signature_headers(id_of("x"), b"body", [old, new], 1_000))["webhook-signature"]
    alone = [dict(signature_headers(id_of("x"), b"body", [key], 1_000))["webhook-signature"] for key in (old, new)]
    assert both == " ".join(alone)
    assert signature_headers(id_of("x"), b"body", [], 1_000) == []
