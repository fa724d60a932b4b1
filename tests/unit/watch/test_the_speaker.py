"""Who speaks, by the heartbeats that a watch has heard."""

from __future__ import annotations

import pytest

from support.heartbeats import NOW_MS, a_heartbeat
from support.log_lines import LogLines
from txnwatch.sinks.delivery.event_log import SkippedRecords
from txnwatch.state.incidents.heartbeat import Heartbeat
from txnwatch.state.incidents.speaking import UNHEARD_MS
from txnwatch.watch.listening import EventListener

GROUP = ("cluster", "digest")
FIRST = a_heartbeat(instance="first", topics_digest="digest", speaks=True)
LATER = a_heartbeat(instance="second", topics_digest="digest", speaks=True, time_ms=NOW_MS + 1)

CASES: dict[str, tuple[list[Heartbeat], str | None]] = {
    "nobody is heard": ([], None),
    "one speaks": ([FIRST, a_heartbeat(instance="other", topics_digest="digest", speaks=False)], "first"),
    "the last one that says so": ([LATER, FIRST], "second"),
    "another cluster": ([a_heartbeat(cluster_id="another", topics_digest="digest", speaks=True)], None),
    "other topics": ([a_heartbeat(topics_digest="another", speaks=True)], None),
    "too long ago": ([a_heartbeat(topics_digest="digest", speaks=True, time_ms=NOW_MS - UNHEARD_MS)], None),
}


@pytest.mark.parametrize(("heard", "speaker"), CASES.values(), ids=CASES.keys())
def test_the_speaker_is_the_last_instance_that_says_so(heard: list[Heartbeat], speaker: str | None) -> None:
    listener = EventListener(SkippedRecords(LogLines().warning, lambda: NOW_MS))
    assert list(listener.events_of(heard)) == []
    assert listener.speaker(GROUP, NOW_MS) == speaker
