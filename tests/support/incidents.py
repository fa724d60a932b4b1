"""Incident events for tests: one that is whole, and the life of an incident."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import msgspec

from txnwatch.state.model.incident import (
    EndedBy,
    EndKind,
    Evidence,
    IncidentEvent,
    Resolution,
    is_incident_id,
    resolved,
    updated,
)
from txnwatch.state.model.values import TimestampMs

OPEN_SINCE_MS = 1_700_000_000_000
OWNER_VALUE = {
    "team": "checkout",
    "name": "Checkout",
    "contact": "#checkout-oncall",
    "url": "https://teams.example/checkout",
    "ref": "group:default/checkout",
    "found_by": "transactional_id",
}
APPLICATION_VALUE = {
    "framework": "Flink",
    "name": "dwh",
    "parts": ({"name": "prefix", "value": "dwh\x1b[2J"}, {"name": "subtask", "value": "4"}),
    "rule": "<prefix>-<subtask>-<number>",
    "certainty": "possible",
    "also": ("Faust",),
}


def id_of(name: str) -> str:
    """An incident's id for a name that a test can be read by."""
    return name if is_incident_id(name) else hashlib.sha256(name.encode()).hexdigest()[:32]


def an_event(incident_id: str = "incident", **changes: Any) -> IncidentEvent:
    """The event that opens an incident about a hanging span, of plain or typed values; every kind of value is in it."""
    values: dict[str, Any] = {
        "incident_id": id_of(incident_id),
        "sequence": 1,
        "status": "opened",
        "verdict": "hanging",
        "reason": "already_completed",
        "severity": "critical",
        "cluster_id": "cluster",
        "topic": "orders",
        "partition": 3,
        "topic_id": "Zm9vYmFyYmF6cXV4MTIzNA",
        "producer_id": 4711,
        "producer_epoch": 2,
        "transactional_id": "payments-\u00fc",
        "coordinator_id": 1,
        "coordinator_epoch": None,
        "transaction_state": "CompleteAbort",
        "txn_start_offset": 99,
        "open_since_ms": OPEN_SINCE_MS,
        "open_since_clock": "observed",
        "last_write_ms": OPEN_SINCE_MS - 5,
        "transaction_timeout_ms": None,
        "age_ms": 1_234,
        "overdue_ms": None,
        "last_stable_offset": 99,
        "high_watermark": 120,
        "hidden_records": 21,
        "is_lso_blocker": True,
        "cleanup_policy": "compact",
        "pending_partitions": (),
        "evidence": an_evidence(),
        "expected_outcome": "abort",
        "suggested_command": "kafka-transactions.sh --bootstrap-server 'b:9092' abort",
        "detected_at_ms": OPEN_SINCE_MS + 1_234,
        "detection_latency_ms": 800,
        "time_ms": OPEN_SINCE_MS + 1_234,
        **changes,
    }
    return msgspec.convert(msgspec.to_builtins(values), IncidentEvent)


def an_evidence(**changes: Any) -> Evidence:
    """Evidence with every field of the schema."""
    values: dict[str, Any] = {
        "complete": True,
        "first_barrier": 7,
        "second_barrier": 8,
        "data_listed_ms": OPEN_SINCE_MS + 500,
        "coordinator_listed_ms": OPEN_SINCE_MS + 501,
        "confirmed_ms": OPEN_SINCE_MS + 1_200,
        "leader": 1,
        "leader_epoch": 0,
        "end_before": 120,
        "end_after": 120,
        "last_sequence": 20,
        "coordinator_producer_id": 4711,
        "coordinator_producer_epoch": 2,
        "coordinator_partitions": ("orders-4", "orders-5"),
        "joined_at_offset": None,
        "joined_by_epoch": None,
        "coordinator_log": "1@77",
        **changes,
    }
    return Evidence(**values)


def an_update(event: IncidentEvent, now_ms: int, **changes: Any) -> IncidentEvent:
    """The next event, with changed fields; they are not checked."""
    return updated(replace(event, **changes), TimestampMs(now_ms))


def a_life(incident_id: str, *, cluster_id: str = "cluster", open_since_ms: int = OPEN_SINCE_MS) -> list[IncidentEvent]:
    """Opened, updated, resolved."""
    opened = an_event(incident_id, cluster_id=cluster_id, open_since_ms=open_since_ms)
    later = an_update(opened, opened.time_ms + 1_000, severity="warning")
    resolution = Resolution(how=EndKind.ABORTED, by=EndedBy.ADMINISTRATOR, marker_offset=120, at_ms=3)
    return [opened, later, resolved(later, opened.time_ms + 2_000, resolution)]
