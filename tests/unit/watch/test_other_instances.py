"""Whether another instance is there, by the heartbeats on the events topic."""

from __future__ import annotations

from typing import Any

import pytest

from support.heartbeats import NOW_MS, a_heartbeat
from support.log_lines import LogLines
from txnwatch.sinks.delivery.events_topic import SkippedRecords
from txnwatch.state.incidents.heartbeat import ACTIVE_MS, AHEAD_MS
from txnwatch.watch.listening import EventListener

HEARD: dict[str, tuple[dict[str, Any], bool]] = {
    "another one, now": ({}, True),
    "another one, until a moment ago": ({"evaluated_ms": NOW_MS - ACTIVE_MS}, True),
    "another one, a while ago": ({"evaluated_ms": NOW_MS - ACTIVE_MS - 1}, False),
    "this one": ({"instance": "here"}, False),
    "one of another cluster": ({"cluster_id": "another"}, False),
    "one of the future": ({"time_ms": NOW_MS + AHEAD_MS + 1, "evaluated_ms": NOW_MS + AHEAD_MS + 1}, False),
}


@pytest.mark.parametrize(("changes", "expected"), HEARD.values(), ids=HEARD.keys())
def test_another_instance_is_there_if_its_last_heartbeat_is_fresh(changes: dict[str, Any], *, expected: bool) -> None:
    listener = EventListener(SkippedRecords(LogLines().warning, lambda: NOW_MS))
    assert not listener.hears_another("cluster", "here", NOW_MS)
    assert list(listener.events_of([a_heartbeat(instance="here"), a_heartbeat(**changes)])) == []
    assert listener.hears_another("cluster", "here", NOW_MS) is expected
