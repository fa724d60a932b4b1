"""The two modes of CloudEvents over HTTP, and the signature of Standard Webhooks."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import unquote

import pytest

from support.incidents import an_event, id_of
from txnwatch.push.cloud_events import LONGEST_ATTRIBUTE, binary, signature_headers, structured
from txnwatch.sinks.delivery.encoding import cloud_event_headers, from_bytes

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
