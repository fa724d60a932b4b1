"""Who speaks, by the heartbeats that a watch has heard."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.heartbeats import NOW_MS, a_heartbeat
from support.log_lines import LogLines
from txnwatch.sinks.delivery.event_log import SkippedRecords
from txnwatch.state.incidents.heartbeat import Heartbeat
from txnwatch.state.incidents.speaking import UNHEARD_MS
from txnwatch.state.model.values import DAY_MS, TimestampMs
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
    assert list(listener.events_of(heard, is_history=True)) == []
    assert listener.speaker(GROUP, NOW_MS) == speaker


@pytest.mark.parametrize("apart_ms", [-600_000, 600_000])
def test_a_speaker_whose_clock_is_minutes_apart_is_heard(apart_ms: int) -> None:
    now_ms = NOW_MS
    listener = EventListener(SkippedRecords(LogLines().warning, lambda: now_ms))
    beat = a_heartbeat(topics_digest="digest", speaks=True, time_ms=NOW_MS + apart_ms)
    assert list(listener.events_of([beat])) == []
    now_ms = TimestampMs(NOW_MS + UNHEARD_MS - 1)
    assert listener.speaker(GROUP, now_ms) == beat.instance
    now_ms = TimestampMs(NOW_MS + UNHEARD_MS)
    assert listener.speaker(GROUP, now_ms) is None


def test_a_copy_of_an_earlier_heartbeat_says_nothing() -> None:
    """Its signature is valid: whoever may write the topic can write it again, also in another order."""
    heard: list[Heartbeat] = []
    listener = EventListener(SkippedRecords(LogLines().warning, lambda: NOW_MS), heard.append, is_signed=True)
    first, last = (replace(FIRST, time_ms=NOW_MS - ago_ms) for ago_ms in (10_000, 5_000))
    for beat in (first, last, last, first, last):
        assert list(listener.events_of([beat])) == []
    assert heard == [first, last]


@pytest.mark.parametrize("is_signed", [True, False])
def test_a_speaker_whose_clock_was_set_back_is_shown(*, is_signed: bool) -> None:
    """Without signatures it also keeps others silent: a forger needs no copy."""
    heard: list[Heartbeat] = []
    now_ms = NOW_MS
    listener = EventListener(SkippedRecords(LogLines().warning, lambda: now_ms), heard.append, is_signed=is_signed)
    beats = [FIRST, replace(FIRST, time_ms=NOW_MS - 3_600_000)]
    for beat in beats:
        assert list(listener.events_of([beat])) == []
        now_ms += UNHEARD_MS - 1
    assert listener.speaker(GROUP, now_ms) == "first"
    assert heard == (beats[:1] if is_signed else beats)


def test_a_heartbeat_of_the_future_does_not_hide_the_next_one() -> None:
    heard: list[Heartbeat] = []
    listener = EventListener(SkippedRecords(LogLines().warning, lambda: NOW_MS), heard.append)
    forged = replace(FIRST, time_ms=NOW_MS + DAY_MS)
    assert list(listener.events_of([forged, FIRST])) == []
    assert heard == [forged, FIRST]
