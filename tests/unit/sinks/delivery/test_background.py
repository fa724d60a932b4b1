"""The thread of a destination: a micro-batch never waits for it, and its events keep their order."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from support.incidents import a_life, an_event
from support.log_lines import LogLines
from support.recording_sink import RecordingMirror
from support.waiting import eventually
from txnwatch.sinks.delivery.outbox import BackgroundMirror, MirrorOutbox, WorkerThread
from txnwatch.state.model.errors import SinkError
from txnwatch.state.model.incident import IncidentEvent

_LONG_S = 10.0


class SlowMirror(RecordingMirror):
    """A mirror that takes nothing until its gate is open."""

    def __init__(self) -> None:
        super().__init__("slow")
        self.gate = threading.Event()

    def deliver(self, events: Sequence[IncidentEvent]) -> None:
        assert self.gate.wait(_LONG_S)
        super().deliver(events)


@contextmanager
def in_background(mirror: RecordingMirror, log: LogLines) -> Iterator[BackgroundMirror]:
    outbox = MirrorOutbox(mirror.name, mirror, log, view=mirror)
    background = BackgroundMirror(outbox, lambda: 0, log)
    try:
        yield background
    finally:
        background.stop()


def test_nobody_waits_for_a_mirror_that_does_not_answer() -> None:
    mirror, life = SlowMirror(), a_life("incident")
    with in_background(mirror, LogLines()) as background:
        for event in life:
            background.put([event])
            background.deliver(0)
        background.has_lost_everything()
        background.forget(lambda _: True, 0)
        background.offer("open", lambda: None)
        assert mirror.published == [], "everything has returned, and nothing is delivered"
        assert background.waiting == 3
        mirror.gate.set()
        eventually(lambda: mirror.published == life, _LONG_S, "the events in their order")
        eventually(lambda: background.waiting == 0, _LONG_S, "an empty queue")


def test_the_last_attempt_delivers_what_is_left() -> None:
    mirror = RecordingMirror()
    mirror.is_away = True
    with in_background(mirror, LogLines()) as background:
        background.put([an_event()])
        eventually(lambda: background.failures, _LONG_S, "a failure")
        mirror.is_away = False
        background.deliver_last(0)
        assert [event.event_id for event in mirror.published] == [an_event().event_id]


def test_a_loss_at_the_start_does_not_count_and_a_later_one_counts_once() -> None:
    mirror = RecordingMirror()
    mirror.is_emptied = True
    with in_background(mirror, LogLines()) as background:
        assert not background.has_lost_everything()
        eventually(lambda: not mirror.is_emptied, _LONG_S, "the first look")
        assert not background.has_lost_everything(), "the mirror is filled at the start in any case"
        mirror.is_emptied = True
        eventually(background.has_lost_everything, _LONG_S, "the loss")
        looked = threading.Event()
        background.offer("marker", looked.set)
        assert looked.wait(_LONG_S)
        assert not background.has_lost_everything(), "it is reported once"


def test_of_values_that_replace_each_other_the_newest_is_written() -> None:
    mirror, written = SlowMirror(), []
    with in_background(mirror, LogLines()) as background:
        background.put([an_event()])
        eventually(lambda: background.waiting, _LONG_S, "the delivery to begin")
        done = threading.Event()
        background.offer("first", lambda: None)
        for number in range(100):
            background.offer("list", lambda number=number: written.append(number))  # type: ignore[misc]
        background.offer("done", done.set)
        mirror.gate.set()
        assert done.wait(_LONG_S)
        assert written[-1] == 99
        assert len(written) <= 2, "one may have begun before"


def test_a_value_that_cannot_be_written_ends_nothing() -> None:
    def refuse() -> None:
        raise SinkError("away")

    mirror, log = RecordingMirror(), LogLines()
    with in_background(mirror, log) as background:
        background.offer("open", refuse)
        background.put([an_event()])
        eventually(lambda: mirror.published, _LONG_S, "the event")
    assert list(log) == []


def test_a_heartbeat_that_is_not_taken_is_one_warning_also_without_events() -> None:
    def refuse() -> None:
        raise SinkError("Redis r: away")

    mirror, log = RecordingMirror(), LogLines()
    outbox = MirrorOutbox("Redis r", mirror, log)
    outbox.beat(lambda: None)
    for _ in range(3):
        outbox.beat(refuse)
    away = "warning: Redis r: away; what it shows is not up to date until it answers"
    assert log == [away]
    outbox.beat(lambda: None)
    outbox.beat(lambda: None)
    assert log == [away, "Redis r answers again"]


def test_a_mirror_whose_events_wait_is_not_reported_again_for_its_heartbeat() -> None:
    def refuse() -> None:
        raise SinkError("away")

    mirror, log = RecordingMirror(), LogLines()
    mirror.is_away = True
    outbox = MirrorOutbox("mirror", mirror, log)
    outbox.put([an_event()])
    outbox.deliver(0)
    outbox.beat(refuse)
    assert len(log) == 1


def test_a_defect_is_reported_and_the_thread_goes_on() -> None:
    calls: list[int] = []

    def work() -> float:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("a defect")
        return 1e9

    log = LogLines()
    thread = WorkerThread("target", work, log)
    thread.start()
    eventually(lambda: len(log) == 1, _LONG_S, "the report")
    assert "target: ValueError in its thread: a defect" in log[0]
    thread.wake()
    eventually(lambda: len(calls) == 2, _LONG_S, "the next call")
    thread.stop(_LONG_S)


def test_a_thread_that_was_woken_before_its_end_is_called_once_more() -> None:
    calls: list[int] = []
    begun, gate = threading.Event(), threading.Event()

    def work() -> float:
        calls.append(1)
        begun.set()
        assert gate.wait(_LONG_S)
        return 1e9

    thread = WorkerThread("target", work, LogLines())
    thread.start()
    assert begun.wait(_LONG_S)
    thread.wake()
    gate.set()
    thread.stop(_LONG_S)
    assert len(calls) == 2
