"""A heartbeat has the time of its barrier; an invalid one is rejected, and none is an incident."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.heartbeats import NOW_MS, a_heartbeat
from support.incidents import an_event
from txnwatch.sinks.delivery import encoding
from txnwatch.state.incidents.heartbeat import ACTIVE_MS, AHEAD_MS, from_bytes, to_bytes
from txnwatch.state.model.errors import BadEventError
from txnwatch.state.model.incident import is_incident_id


def test_a_heartbeat_survives_its_encoding() -> None:
    beat = a_heartbeat()
    assert from_bytes(to_bytes(beat), beat.key) == beat


def test_the_page_for_consumers_has_each_member() -> None:
    text = (Path(__file__).parents[4] / "docs" / "consumers.md").read_text()
    rows = text.partition("| member | meaning |")[2].partition("\n\n")[0].splitlines()[2:]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(named) == sorted(json.loads(to_bytes(a_heartbeat())))


def test_a_heartbeat_is_no_incident_and_an_incident_no_heartbeat() -> None:
    beat = a_heartbeat()
    assert not is_incident_id(beat.key)
    with pytest.raises(BadEventError):
        encoding.from_bytes(to_bytes(beat))
    with pytest.raises(BadEventError):
        from_bytes(encoding.to_json(an_event()), beat.key)


@pytest.mark.parametrize(
    "changes",
    [
        {"evaluated_ms": 1e30},
        {"evaluated_ms": -1},
        {"barrier": "7"},
        {"instance": None},
        {"instance": "x" * 40_000},
        {"instance": "\ud800"},
        {"unproven_partitions": 1 << 40},
        {"unproven_names": ["orders-1"] * 4},
        {"unproven_names": "orders-1"},
        {"unproven_names": [1]},
        {"unread_log_partitions": -1},
        {"is_coordinator_read": 1},
        {"cluster_id": "a b"},
        {"instance": "another"},
    ],
    ids=str,
)
def test_one_that_cannot_be_is_none(changes: dict[str, Any]) -> None:
    beat = a_heartbeat()
    value = json.dumps({**json.loads(to_bytes(beat)), **changes}).encode()
    with pytest.raises(BadEventError):
        from_bytes(value, beat.key)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_heartbeat_or_none(value: bytes) -> None:
    with pytest.raises(BadEventError):
        from_bytes(value, a_heartbeat().key)


def test_nested_deeper_than_a_decoder_goes_is_none() -> None:
    with pytest.raises(BadEventError):
        from_bytes(b"[" * 60_000, a_heartbeat().key)


def test_a_watcher_that_evaluated_a_moment_ago_is_active() -> None:
    beat = a_heartbeat()
    assert beat.is_active(NOW_MS)
    assert beat.is_active(NOW_MS + ACTIVE_MS)
    assert not beat.is_active(NOW_MS + ACTIVE_MS + 1)
    assert replace(beat, is_coordinator_read=False).is_active(NOW_MS), "it judges, whatever it proves"


def test_a_heartbeat_from_the_future_is_ignored() -> None:
    late = a_heartbeat(evaluated_ms=NOW_MS + AHEAD_MS, time_ms=NOW_MS + AHEAD_MS)
    assert late.is_active(NOW_MS)
    for field in ("evaluated_ms", "time_ms"):
        beat = a_heartbeat(**{field: NOW_MS + AHEAD_MS + 1})
        assert not beat.is_active(NOW_MS)
        assert beat.doubt(NOW_MS) == f"its time is {AHEAD_MS + 1} ms in the future"


def test_a_heartbeat_expires_after_the_retention() -> None:
    beat = a_heartbeat(time_ms=NOW_MS, evaluated_ms=NOW_MS - 50)
    assert not beat.is_expired(1_000, NOW_MS + 999)
    assert beat.is_expired(1_000, NOW_MS + 1_000)


def test_a_heartbeat_without_a_view_is_none() -> None:
    beat = a_heartbeat()
    raw = json.loads(to_bytes(beat))
    del raw["coordinator_view"]
    with pytest.raises(BadEventError):
        from_bytes(json.dumps(raw).encode(), beat.key)
