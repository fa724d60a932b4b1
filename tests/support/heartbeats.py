"""Heartbeats for tests."""

from __future__ import annotations

from typing import Any

from txnwatch.state.incidents.heartbeat import Heartbeat

NOW_MS = 1_700_000_000_000


def a_heartbeat(**changes: Any) -> Heartbeat:
    """One of a watcher that judged at NOW_MS."""
    values: dict[str, Any] = {
        "instance": "host:/checkpoint",
        "version": "0.9",
        "cluster_id": "cluster",
        "time_ms": NOW_MS,
        "evaluated_ms": NOW_MS,
        "barrier": 812,
        "scanned_partitions": 120,
        "census_partitions": 30,
        "beyond_partitions": 0,
        "beyond_names": (),
        "unproven_partitions": 2,
        "unproven_names": ("orders-1", "orders-2"),
        "furthest_behind": 12,
        "unread_log_partitions": 0,
        "is_coordinator_read": True,
        "coordinator_view": "log",
        "undecided_spans": 0,
        "undecided_names": (),
        "leaderless_names": (),
        "failing_targets": (),
    }
    return Heartbeat(**{**values, **changes})
