"""Incident events as bytes: flat JSON, or Avro single-object encoding; one Avro schema defines both.

The third encoding, Confluent framing, needs a registry: sinks/delivery/registry.py.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

import fastavro
import msgspec
from fastavro.schema import fingerprint, to_parsing_canonical_form

from txnwatch.state.events.heartbeat import CONTENT_TYPE, EVENT_TYPE, Heartbeat
from txnwatch.state.events.value_rules import problem_of
from txnwatch.state.model.errors import BadEventError, SkipReason
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.quantities import TimestampMs
from txnwatch.state.text.outside_json import read_json

SPEC_VERSION: Final = "1.0"
_SINGLE_OBJECT_MAGIC: Final = b"\xc3\x01"
_SHOWN: Final = 200
MAX_BYTES: Final = 4 * 1024 * 1024  # brokers accept 1 MiB by default

CONFLUENT_MAGIC: Final = b"\x00"


class Encoding(NamedTuple):
    """How events become a record's value, and the content type of the value."""

    encode: Callable[[IncidentEvent], bytes]
    content_type: str


@cache
def schema_text() -> str:
    """The schema as it is published."""
    return (files("txnwatch.sinks.delivery") / "incident_event.avsc").read_text()


@cache
def schema() -> dict[str, Any]:
    """The parsed schema."""
    parsed = fastavro.parse_schema(json.loads(schema_text()))
    assert isinstance(parsed, dict)
    return parsed


@cache
def _single_object_header() -> bytes:
    return _header_of(schema_text())


def _header_of(text: str) -> bytes:
    hexadecimal = fingerprint(to_parsing_canonical_form(json.loads(text)), "CRC-64-AVRO")
    return _SINGLE_OBJECT_MAGIC + bytes.fromhex(hexadecimal)


@cache
def _writers() -> dict[bytes, Any]:
    """The schemas that events may have been written with, by header; old schemas stay in the package."""
    texts = [path.read_text() for path in files("txnwatch.sinks.delivery").iterdir() if path.name.endswith(".avsc")]
    return {_header_of(text): fastavro.parse_schema(json.loads(text)) for text in texts}


def to_json(event: IncidentEvent) -> bytes:
    """The event as one line of JSON with the schema's field names."""
    return json.dumps(plain(event), separators=(",", ":")).encode()


def to_avro(event: IncidentEvent) -> bytes:
    """The event in Avro single-object encoding: marker, schema fingerprint, body."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, schema(), plain(event))
    return _single_object_header() + body.getvalue()


def from_bytes(value: bytes) -> IncidentEvent:
    """An event from either encoding.

    Raises:
        BadEventError: the value is neither JSON nor Avro of a known schema, or not valid for an event.
    """
    if value[:1] == CONFLUENT_MAGIC:
        message = "found Confluent framing: set --schema-registry-url, so that its schema can be read"
        raise BadEventError(SkipReason.UNDECODABLE, message)
    check_size(value)
    try:
        raw = _avro(value) if value.startswith(_SINGLE_OBJECT_MAGIC) else read_json(value)
    except Exception as exc:  # invalid Avro can raise anything
        why = f"expected an incident event in JSON or Avro, found {value[:40]!r}...: {str(exc)[:_SHOWN]}"
        raise BadEventError(SkipReason.UNDECODABLE, why) from exc
    return event_of(raw)


def check_size(value: bytes) -> None:
    """Checks the size before the value is decoded.

    Raises:
        BadEventError: it is too large for an event.
    """
    if len(value) > MAX_BYTES:
        message = f"expected an incident event of at most {MAX_BYTES} bytes, found {len(value)}"
        raise BadEventError(SkipReason.TOO_LARGE, message)


def _avro(value: bytes) -> Any:  # noqa: ANN401 - any decoded value
    size = len(_single_object_header())
    body = io.BytesIO(value[size:])
    raw = fastavro.schemaless_reader(body, _writers()[value[:size]], schema())
    if body.read(1):
        raise ValueError("found extra bytes after the event")
    return raw


def event_of(raw: Any) -> IncidentEvent:  # noqa: ANN401 - any decoded value
    """An event from its fields.

    Fields of a later version are left out. Fields that an earlier version lacks get their defaults.

    Raises:
        BadEventError: it does not have the types of the model (state/model/incident.py), or a value is not valid for an
            event (state/events/value_rules.py).
    """
    try:
        event = msgspec.convert(raw, IncidentEvent)
    except (msgspec.ValidationError, UnicodeEncodeError) as exc:  # half of a surrogate pair cannot be compared
        raise BadEventError(SkipReason.INVALID, f"expected an incident event: {_mismatch(str(exc))}") from exc
    problem = problem_of(event)
    if problem is not None:
        raise BadEventError(SkipReason.INVALID, f"expected an incident event: {problem}")
    return event


def _mismatch(problem: str) -> str:
    """The message of msgspec, with the name of the field first; it can contain text of another writer."""
    reason, _, path = problem.partition(" - at `$")
    field = path.strip(".`")
    return f"{field} has an invalid value: {reason[:_SHOWN]!a}" if field else ascii(reason[:_SHOWN])


def cloud_event_headers(event: IncidentEvent, content_type: str) -> dict[str, str | bytes | None]:
    """CloudEvents 1.0, Kafka binding, binary mode."""
    return {
        "ce_specversion": SPEC_VERSION,
        "ce_id": event.event_id,
        "ce_source": f"/kafka/{event.cluster_id}",
        "ce_type": event.event_type,
        "ce_subject": event.subject,
        "ce_time": _rfc3339(event.time_ms),
        "content-type": content_type,
    }


def heartbeat_headers(heartbeat: Heartbeat) -> dict[str, str | bytes | None]:
    """The same headers for a watcher's heartbeat."""
    return {
        "ce_specversion": SPEC_VERSION,
        "ce_id": f"{heartbeat.key}-{heartbeat.time_ms}",
        "ce_source": f"/kafka/{heartbeat.cluster_id}",
        "ce_type": EVENT_TYPE,
        "ce_subject": heartbeat.instance,
        "ce_time": _rfc3339(heartbeat.time_ms),
        "content-type": CONTENT_TYPE,
    }


def _rfc3339(time_ms: TimestampMs) -> str:
    seconds, millis = divmod(time_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{millis:03d}Z"


def plain(event: IncidentEvent) -> dict[str, Any]:
    """The event as plain values, with the names of its fields: JSON, and a record of the Avro schema."""
    raw: dict[str, Any] = msgspec.to_builtins(event)
    return raw


FORMATS: Final = {
    "json": Encoding(to_json, "application/json"),
    "avro": Encoding(to_avro, "application/avro"),
}
