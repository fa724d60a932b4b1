"""docs/events.md: the fields of an incident event, from the Avro schema."""

from __future__ import annotations

import json
from pathlib import Path

from page_links import link_pages

from txnwatch.state.events.heartbeat import EVENT_TYPE


def incident_events_page(root: Path, generated: str) -> str:
    """docs/events.md."""
    schema = json.loads((root / "sinks" / "delivery" / "incident_event.avsc").read_text())
    return "\n".join(
        [
            "# Incident events",
            "",
            generated,
            str(schema["doc"]),
            "The Avro schema is [`incident_event.avsc`](../sinks/delivery/incident_event.avsc). A JSON event has the",
            "same fields. The record's key is `incident_id`. The headers are CloudEvents 1.0 in binary mode: `ce_id`",
            "(the incident id and the sequence; it is the same each time that an event is published), `ce_type`",
            "(`io.txnwatch.<verdict>.<status>.v1`), `ce_source` (`/kafka/<cluster id>`), `ce_subject`, `ce_time`,",
            "`ce_specversion` and `content-type`. [Consuming incidents](consumers.md) describes how to read the",
            "events, and the keys in Redis.",
            "",
            "The topic also contains two other kinds of records:",
            "",
            "- A tombstone (a record without a value) is written `--events-retention-ms` after the end of an incident.",
            "- A watcher's heartbeat has a key that begins with `txnwatch.heartbeat:`, the `ce_type`",
            f"  `{EVENT_TYPE}` and a JSON value. It is not an incident.",
            "",
            "A value may end with a signature (in JSON the member `signature`): see",
            "[Who may write to the events topic](consumers.md#who-may-write-to-the-events-topic). The id of an",
            "incident has 32 digits (0-9 and a-f). If a record that is not a heartbeat has another key, or an invalid",
            "value in a field, txnwatch has not written it.",
            "",
            *_fields(schema, "## Fields"),
        ]
    )


def _fields(record: dict[str, object], heading: str) -> list[str]:
    lines = [heading, "", "| field | type | meaning |", "|---|---|---|"]
    nested: list[str] = []
    fields = record["fields"]
    assert isinstance(fields, list)
    for field in fields:
        kind = field["type"]
        parts = kind if isinstance(kind, list) else [kind]
        parts = [part["items"] if isinstance(part, dict) and part["type"] == "array" else part for part in parts]
        inner = next((part for part in parts if isinstance(part, dict)), None)
        if inner is not None:
            nested.extend(_fields(inner, f"## `{field['name']}`"))
        lines.append(f"| `{field['name']}` | {_type(kind)} | {link_pages(field['doc'])} |")
    return [*lines, "", *nested]


def _type(kind: object) -> str:
    if isinstance(kind, list):
        return ", ".join(_type(part) for part in kind)
    if isinstance(kind, dict):
        return f"array of {_type(kind['items'])}" if kind["type"] == "array" else str(kind["type"])
    return str(kind)
