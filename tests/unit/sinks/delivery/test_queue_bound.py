"""The length of a mirror's queue: bounded, and what is left out is what a later event of the incident replaces."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from support.incidents import a_life, an_event
from support.log_lines import LogLines
from support.recording_sink import RecordingMirror
from txnwatch.sinks.delivery.outbox import MOST_WAITING, MirrorOutbox, QueueBound
from txnwatch.state.model.incident import IncidentEvent


def ids(events: deque[IncidentEvent]) -> list[str]:
    return [event.event_id for event in events]


def test_a_short_queue_stays_as_it_is() -> None:
    queue = deque(a_life("one") + a_life("other"))
    assert QueueBound(6).applied(queue) is queue


def test_the_updates_between_the_first_and_the_last_event_of_an_incident_are_left_out() -> None:
    first, second = a_life("one"), a_life("other")
    queue = deque(event for pair in zip(first, second, strict=True) for event in pair)
    kept = QueueBound(5).applied(queue)
    assert ids(kept) == [one.event_id for one in (first[0], second[0], first[2], second[2])], "in their order"


def test_only_the_last_event_of_each_incident_is_left_if_there_are_twice_too_many() -> None:
    lives = [a_life(f"incident {number}") for number in range(5)]
    kept = QueueBound(4).applied(deque(event for life in lives for event in life))
    assert ids(kept) == [life[2].event_id for life in lives]


def test_updates_for_ever_keep_a_queue_at_its_bound() -> None:
    outbox = MirrorOutbox("recording", RecordingMirror(), LogLines())
    opened = an_event()
    longest = 0
    for sequence in range(1, 4 * MOST_WAITING):
        outbox.put([replace(opened, sequence=sequence)])
        longest = max(longest, outbox.waiting)
    assert longest == MOST_WAITING
