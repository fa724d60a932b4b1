"""The event schema only grows: compared with the form that was published last, tests/golden/incident_event-1.avsc.

Until the first release nothing is published: whoever adds a field before that copies the schema there again.
"""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import fastavro
import pytest

from support.incidents import a_life, an_event, an_update
from support.schema_rules import Schema, violations
from txnwatch.sinks.delivery.encoding import event_of, from_bytes, plain, schema_text, to_avro
from txnwatch.state.model.incident import IncidentEvent

PUBLISHED: Schema = json.loads((Path(__file__).parents[3] / "golden" / "incident_event-1.avsc").read_text())
CURRENT: Schema = json.loads(schema_text())
ACTION = {
    "decision": "abort",
    "refusal": None,
    "result": "verified",
    "detail": None,
    "by": "one",
    "principal": "User:alice",
    "at_ms": 1,
    "marker_producer_epoch": 1,
    "marker_coordinator_epoch": 0,
    "last_stable_offset_before": 1,
    "last_stable_offset_after": 2,
    "initiator": "operator",
}
GROUP = {"group_id": "billing", "state": "stopped", "committed_offset": 99, "hidden_lag": 21}
EVENTS = [
    *a_life("incident"),
    an_update(an_event(action=ACTION, consumer_groups=(GROUP,)), 5, lso_standing_ms=9),
    an_event(expected_outcome="unknown", outcome_doubt="id_expired", outcome_detail="the transactional id has expired"),
]


def test_nothing_that_was_published_is_broken() -> None:
    assert violations(PUBLISHED, CURRENT) == []


def field(schema: Schema, name: str) -> Schema:
    return next(one for one in schema["fields"] if one["name"] == name)


def nested(schema: Schema, name: str) -> Schema:
    kind = field(schema, name)["type"]
    found = kind["items"] if isinstance(kind, dict) and kind["type"] == "array" else kind
    record: Schema = found[1] if isinstance(found, list) else found
    return record


def without(schema: Schema, name: str) -> None:
    schema["fields"] = [one for one in schema["fields"] if one["name"] != name]


def add(schema: Schema, **spec: Any) -> None:
    schema["fields"].append({"name": "new", "type": ["null", "string"], **spec})


FORBIDDEN: dict[str, tuple[Callable[[Schema], object], str]] = {
    "a field is removed": (lambda one: without(one, "reason"), ".reason: removed or renamed"),
    "a field is renamed": (lambda one: field(one, "topic").update(name="subject"), ".topic: removed or renamed"),
    "a type changes": (lambda one: field(one, "sequence").update(type="string"), ".sequence: its type changed"),
    "a type widens": (lambda one: field(one, "sequence").update(type="long"), ".sequence: its type changed"),
    "a union grows": (lambda one: field(one, "reason")["type"].append("int"), ".reason: its type changed"),
    "a field may be null": (
        lambda one: field(one, "status").update(type=["null", "string"]),
        ".status: its type changed",
    ),
    "a default changes": (lambda one: field(one, "reason").update(default="why"), ".reason: its default changed"),
    "a default goes": (lambda one: field(one, "reason").pop("default"), ".reason: its default changed"),
    "a field is added without a default": (add, ".new: added without a default"),
    "the record is renamed": (lambda one: one.update(name="Event"), "is called"),
    "its namespace changes": (lambda one: one.update(namespace="org.other"), "is called"),
    "a field of evidence is removed": (
        lambda one: without(nested(one, "evidence"), "leader"),
        ".evidence.leader: removed",
    ),
    "a type inside resolution changes": (
        lambda one: field(nested(one, "resolution"), "at_ms").update(type="int"),
        ".resolution.at_ms: its type changed",
    ),
    "a field of a group is renamed": (
        lambda one: field(nested(one, "consumer_groups"), "state").update(name="status"),
        ".consumer_groups.state: removed",
    ),
    "an array is none any more": (
        lambda one: field(one, "pending_partitions").update(type="string"),
        ".pending_partitions: its type changed",
    ),
}


@pytest.mark.parametrize(("change", "why"), FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_every_forbidden_change_of_the_schema_is_found(change: Callable[[Schema], object], why: str) -> None:
    broken = copy.deepcopy(CURRENT)
    change(broken)
    assert any(why in found for found in violations(CURRENT, broken))


def grown() -> Schema:
    later = copy.deepcopy(CURRENT)
    add(later, default=None)
    add(nested(later, "evidence"), default=None)
    later["fields"].reverse()
    return later


def test_a_field_may_be_added_with_a_default_and_order_and_docs_may_change() -> None:
    later = grown()
    field(later, "reason").update(doc="Another text.")
    assert violations(CURRENT, later) == []


PAIRS = {
    "published read by current": (PUBLISHED, CURRENT),
    "current read by published": (CURRENT, PUBLISHED),
    "current read by a later one": (CURRENT, grown()),
    "a later one read by current": (grown(), CURRENT),
}


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.status)
@pytest.mark.parametrize(("writer", "reader"), PAIRS.values(), ids=PAIRS.keys())
def test_events_are_read_across_versions(writer: Schema, reader: Schema, event: IncidentEvent) -> None:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(copy.deepcopy(writer)), plain(event))
    body.seek(0)
    schemas = [fastavro.parse_schema(copy.deepcopy(one)) for one in (writer, reader)]
    raw: Any = fastavro.schemaless_reader(body, schemas[0], schemas[1])
    raw["evidence"].pop("new", None)
    assert event_of(raw) == event


def test_single_object_events_of_the_published_schema_are_read() -> None:
    hexadecimal = fastavro.schema.fingerprint(fastavro.schema.to_parsing_canonical_form(PUBLISHED), "CRC-64-AVRO")
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(copy.deepcopy(PUBLISHED)), plain(EVENTS[-1]))
    assert from_bytes(b"\xc3\x01" + bytes.fromhex(hexadecimal) + body.getvalue()) == EVENTS[-1], (
        "keep the former schema beside sinks/delivery/incident_event.avsc"
    )


def test_single_object_events_of_an_unknown_schema_are_never_guessed_at() -> None:
    from txnwatch.state.model.errors import SinkError

    value = bytearray(to_avro(EVENTS[0]))
    value[5] ^= 1
    with pytest.raises(SinkError):
        from_bytes(bytes(value))


def test_the_schema_and_the_value_have_the_same_fields() -> None:
    assert [one["name"] for one in CURRENT["fields"]] == [spec.name for spec in fields(IncidentEvent)]
