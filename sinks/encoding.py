"""Incident events as bytes: flat JSON, or Avro single-object encoding; one Avro schema owns the shape of both.

The third encoding, Confluent framing, needs a registry: sinks/registry.py.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form

from txnwatch.state.errors import SinkError
from txnwatch.state.incident import IncidentEvent

SPEC_VERSION: Final = "1.0"
_SINGLE_OBJECT_MAGIC: Final = b"\xc3\x01"
_ARRAYS: Final = ("pending_partitions", "consumer_groups")
_FIELDS: Final = tuple(spec.name for spec in fields(IncidentEvent))

CONFLUENT_MAGIC: Final = b"\x00"


class Encoding(NamedTuple):
    """How events become a record's value, and the content type that says so."""

    encode: Callable[[IncidentEvent], bytes]
    content_type: str


@cache
def schema_text() -> str:
    """The schema as it is published."""
    return (files("txnwatch.sinks") / "incident_event.avsc").read_text()


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
    """The schemas events may have been written with, by header; a former one stays in the package when it changes."""
    texts = [path.read_text() for path in files("txnwatch.sinks").iterdir() if path.name.endswith(".avsc")]
    return {_header_of(text): fastavro.parse_schema(json.loads(text)) for text in texts}


def to_json(event: IncidentEvent) -> bytes:
    """The event as one line of JSON with the schema's field names."""
    return json.dumps(asdict(event), separators=(",", ":")).encode()


def to_avro(event: IncidentEvent) -> bytes:
    """The event in Avro single-object encoding: marker, schema fingerprint, body."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, schema(), plain(event))
    return _single_object_header() + body.getvalue()


def from_bytes(value: bytes) -> IncidentEvent:
    """An event as either encoding wrote it.

    Raises:
        SinkError: neither JSON nor our Avro, or of a schema we do not know.
    """
    try:
        raw: Any
        if value[:1] == CONFLUENT_MAGIC:
            raise SinkError("found Confluent framing: expected --schema-registry-url, to ask for its schema")
        if value.startswith(_SINGLE_OBJECT_MAGIC):
            size = len(_single_object_header())
            raw = fastavro.schemaless_reader(io.BytesIO(value[size:]), _writers()[value[:size]], schema())
        else:
            raw = json.loads(value)
        return event_of(raw)
    except (ValueError, LookupError, TypeError, AttributeError, EOFError) as exc:
        raise SinkError(f"expected an incident event in JSON or Avro, found {value[:40]!r}...: {exc}") from exc


def event_of(raw: Mapping[str, Any]) -> IncidentEvent:
    """An event from its fields; fields of a later version are left out, those that an earlier one lacks have defaults.

    Raises:
        ValueError, TypeError: it has not the schema's shape, on which everybody behind this relies.
    """
    fastavro.schemaless_writer(io.BytesIO(), schema(), dict(raw))  # checks a value five times as fast as `validate`
    known = {name: raw[name] for name in _FIELDS if name in raw}
    known.update({name: tuple(known[name]) for name in _ARRAYS if name in known})
    if known.get("action") is not None:
        known["action"] = {**_defaults_of("Action"), **known["action"]}
    event = IncidentEvent(**known)
    if (event.topic is None) is not (event.partition is None):
        raise ValueError(f"found topic {event.topic} with partition {event.partition}: expected both or neither")
    return event


@cache
def _defaults_of(record: str) -> dict[str, Any]:
    """What a record inside an event has where its writer did not know a field."""
    kinds = (kind for field in schema()["fields"] if isinstance(field["type"], list) for kind in field["type"])
    (found,) = (kind for kind in kinds if isinstance(kind, dict) and kind["name"].endswith(record))
    return {field["name"]: field["default"] for field in found["fields"] if "default" in field}


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


def _rfc3339(time_ms: int) -> str:
    seconds, millis = divmod(time_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{millis:03d}Z"


def plain(event: IncidentEvent) -> dict[str, Any]:
    """The event as the schema's record."""
    raw = asdict(event)
    return {**raw, **{name: list(raw[name]) for name in _ARRAYS}}


FORMATS: Final = {
    "json": Encoding(to_json, "application/json"),
    "avro": Encoding(to_avro, "application/avro"),
}
