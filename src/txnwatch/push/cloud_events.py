"""An incident event as an HTTP request: CloudEvents 1.0, structured or binary, with a signature. Pure.

The attributes are those of the events topic. Their text is made printable, because CloudEvents allows no control
characters in them, and the subject is cut, because servers limit their headers; the event itself has the whole names.

The signature is that of Standard Webhooks: HMAC-SHA256 of the id, the time and the body, so a receiver can check who
sent it, and that it is not an old request. The id is the same at each attempt: by it a receiver drops doubles.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from txnwatch.sinks.delivery.encoding import cloud_event_attributes, to_json
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import TimestampMs
from txnwatch.state.text import printable

JSON: Final = "application/json"
STRUCTURED_TYPE: Final = "application/cloudevents+json; charset=UTF-8"
LONGEST_ATTRIBUTE: Final = 512
Headers = list[tuple[str, str]]


class Request(NamedTuple):
    """The headers and the body of a delivery."""

    headers: Headers
    body: bytes


def structured(event: IncidentEvent) -> Request:
    """Attributes and event in one JSON object."""
    attributes = json.dumps({**_attributes(event), "datacontenttype": JSON}, separators=(",", ":"))
    body = attributes.encode()[:-1] + b',"data":' + to_json(event) + b"}"
    return Request([("Content-Type", STRUCTURED_TYPE)], body)


def binary(event: IncidentEvent) -> Request:
    """Attributes in headers, and the event as the body."""
    headers = [(f"ce-{name}", _encoded(value)) for name, value in _attributes(event).items()]
    return Request([*headers, ("Content-Type", JSON)], to_json(event))


MODES: Final = {"structured": structured, "binary": binary}


def signature_headers(event_id: str, body: bytes, keys: Sequence[bytes], now_ms: TimestampMs) -> Headers:
    """The headers of the signature, one signature for each key; none without keys."""
    if not keys:
        return []
    seconds = str(now_ms // 1000)
    signed = f"{event_id}.{seconds}.".encode() + body
    signatures = [base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode() for key in keys]
    return [
        ("webhook-id", event_id),
        ("webhook-timestamp", seconds),
        ("webhook-signature", " ".join(f"v1,{one}" for one in signatures)),
    ]


def _attributes(event: IncidentEvent) -> dict[str, str]:
    return {name: _cut(printable(value)) for name, value in cloud_event_attributes(event).items()}


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_ATTRIBUTE else f"{text[: LONGEST_ATTRIBUTE - 1]}\u2026"


def _encoded(text: str) -> str:
    """Percent-encoded as the HTTP binding has it: everything but printable ASCII, the blank, the quote and %."""
    return "".join(
        chr(byte) if 0x21 <= byte <= 0x7E and byte not in b'"%' else f"%{byte:02X}" for byte in text.encode()
    )
