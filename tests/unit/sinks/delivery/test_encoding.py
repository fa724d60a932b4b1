"""Events as bytes: one schema owns the shape, JSON and Avro have the same content, ids and headers never change."""

from __future__ import annotations

import io
import json
from dataclasses import fields
from typing import Any

import fastavro
import pytest

from support.incidents import an_event, an_update, id_of
from txnwatch.sinks.delivery.encoding import FORMATS, cloud_event_headers, from_bytes, schema, to_avro, to_json
from txnwatch.state.model.errors import BadEventError
from txnwatch.state.model.incident import (
    EndedBy,
    EndKind,
    IncidentEvent,
    Resolution,
    latest,
    resolved,
    span_incident_id,
    transaction_incident_id,
    updated,
)
from txnwatch.state.model.verdicts import Verdict

OPENED = an_event()
RESOLUTION = Resolution(how=EndKind.ABORTED, by=EndedBy.ADMINISTRATOR, marker_offset=120, at_ms=5)
EVENTS = {
    "opened": OPENED,
    "updated": an_update(OPENED, OPENED.time_ms + 1, severity="warning"),
    "resolved": resolved(OPENED, OPENED.time_ms + 2, RESOLUTION),
    "about a transaction": an_event(topic=None, partition=None, topic_id=None, pending_partitions=("orders-1",)),
}


def test_the_schema_has_exactly_the_events_fields_in_their_order() -> None:
    assert [field["name"] for field in schema()["fields"]] == [spec.name for spec in fields(IncidentEvent)]


def test_every_field_of_the_schema_is_documented() -> None:
    assert all(field.get("doc") for field in schema()["fields"])


@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS.keys())
@pytest.mark.parametrize("name", FORMATS)
def test_an_event_survives_its_encoding(name: str, event: IncidentEvent) -> None:
    encode, _ = FORMATS[name]
    assert from_bytes(encode(event)) == event


@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS.keys())
def test_json_is_flat_has_the_schemas_names_and_fits_the_schema(event: IncidentEvent) -> None:
    raw = json.loads(to_json(event))
    assert list(raw) == [field["name"] for field in schema()["fields"]]
    assert fastavro.validate(raw, schema(), raise_errors=True)


def test_avro_is_in_single_object_encoding() -> None:
    encoded = to_avro(OPENED)
    assert encoded[:2] == b"\xc3\x01"
    assert encoded[2:10] == to_avro(EVENTS["resolved"])[2:10], "the fingerprint is the schema's"
    body = fastavro.schemaless_reader(io.BytesIO(encoded[10:]), schema(), None)
    assert isinstance(body, dict)
    assert body["incident_id"] == OPENED.incident_id


def test_a_field_of_a_later_version_is_left_out() -> None:
    raw = {**json.loads(to_json(OPENED)), "a_new_field": 1}
    assert from_bytes(json.dumps(raw).encode()) == OPENED


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b"null", b"hello", b"\xc3\x01short", to_avro(OPENED)[:-3]])
def test_a_record_that_is_not_an_event_is_an_error_that_shows_it(value: bytes) -> None:
    with pytest.raises(BadEventError, match="expected an incident event"):
        from_bytes(value)


def test_cloud_event_headers() -> None:
    headers = cloud_event_headers(OPENED, "application/json")
    assert headers == {
        "ce_specversion": "1.0",
        "ce_id": f"{id_of('incident')}-1",
        "ce_source": "/kafka/cluster",
        "ce_type": "io.txnwatch.hanging.opened.v1",
        "ce_subject": "orders/3/99",
        "ce_time": "2023-11-14T22:13:21.234Z",
        "content-type": "application/json",
    }


def test_ids_are_the_same_for_the_same_and_differ_for_everything_that_matters() -> None:
    span = ("cluster", "topic-id", 3, 4711, 99)
    assert span_incident_id(*span) == span_incident_id(*span) == "739ef50157a7edcac623699387b02b85"
    others = [
        ("x", *span[1:]),
        (*span[:1], "x", *span[2:]),
        (*span[:2], 4, *span[3:]),
        (*span[:3], 1, 99),
        (*span[:4], 1),
    ]
    assert len({span_incident_id(*found) for found in [span, *others]}) == 6  # type: ignore[arg-type]


def test_long_running_and_late_are_one_incident_and_stuck_prepare_is_another() -> None:
    ids = {verdict: transaction_incident_id("c", "id", 1, 2, verdict) for verdict in Verdict}
    assert ids[Verdict.LONG_RUNNING] == ids[Verdict.LATE] != ids[Verdict.STUCK_PREPARE]
    assert transaction_incident_id("c", "id", 1, 3, Verdict.LATE) != ids[Verdict.LATE]


def test_the_latest_event_of_an_incident_is_the_first_one_with_the_highest_sequence() -> None:
    one, other = an_event("one"), an_event("other")
    later = updated(one, one.time_ms + 1)
    dropped = an_update(one, one.time_ms + 2, severity="warning")
    records = [one, other, later, dropped, one]
    assert list(latest(records).values()) == [other, later]


def test_sequences_rise_by_one_and_the_age_continues() -> None:
    second = updated(OPENED, OPENED.open_since_ms + 5_000)
    third = resolved(second, OPENED.open_since_ms + 9_000, RESOLUTION)
    assert [OPENED.sequence, second.sequence, third.sequence] == [1, 2, 3]
    assert [second.age_ms, third.age_ms] == [5_000, 9_000]
    assert (second.is_open, third.is_open, third.event_id) == (True, False, f"{id_of('incident')}-3")


@pytest.mark.parametrize(
    "odd",
    [
        {"sequence": "1"},
        {"evidence": None},
        {"action": {"decision": "abort"}},
        {"open_since_ms": None},
        {"partition": None},
        {"consumer_groups": [{"group_id": "billing"}]},
        {"resolution": "gone"},
        {"topic": 5},
    ],
    ids=str,
)
def test_json_that_has_not_the_schemas_shape_is_no_event(odd: dict[str, Any]) -> None:
    fields = json.loads(to_json(an_event()))
    with pytest.raises(BadEventError, match="expected an incident event"):
        from_bytes(json.dumps({**fields, **odd}).encode())


def test_an_action_of_a_writer_that_knew_fewer_fields_has_them_all() -> None:
    fields = json.loads(to_json(an_event()))
    fields["action"] = {"decision": "abort", "by": "there", "at_ms": 3}
    action = from_bytes(json.dumps(fields).encode()).action
    assert action is not None
    assert (action.decision, action.result, action.refusal, action.detail) == ("abort", None, None, None)
    assert action.initiator == "watch"


@pytest.mark.parametrize(
    ("odd", "problem"),
    [
        ({"evidence": None}, "evidence has an invalid value: 'Expected `object`, got `null`'"),
        ({"status": "\x1b[2J"}, 'status has an invalid value: "Invalid enum value'),
        ({"action": {"decision": "abort", "by": 1, "at_ms": 1}}, "action.by has an invalid value: 'Expected `str`"),
        ({"partition": -7}, "partition has an invalid value: '-7'"),
    ],
)
def test_the_error_names_the_field_and_escapes_the_value(odd: dict[str, Any], problem: str) -> None:
    fields = json.loads(to_json(an_event()))
    with pytest.raises(BadEventError) as refused:
        from_bytes(json.dumps({**fields, **odd}).encode())
    assert problem in str(refused.value)
    assert str(refused.value).isprintable()
