"""Threads for destinations: a micro-batch puts something into a queue, and never waits for a destination.

Law: everything that can block runs in the thread of the destination, and each destination has its own. Each is called
from one thread only, so it sees events in order.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from collections import deque
from collections.abc import Callable, Sequence

from txnwatch.sinks.delivery.outbox import DeliveryCounts, MirrorOutbox
from txnwatch.state.model.errors import SinkError
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.ports import Log
from txnwatch.state.model.values import DurationMs, TimestampMs

_AFTER_A_DEFECT_MS = DurationMs(30_000)
_RETRY_MS = DurationMs(250)  # the outbox decides when a retry is due
_STOP_S = 1.2  # the process ends within 3 s, also while Redis does not answer
WHEN_WOKEN = math.inf


class WorkerThread:
    """Calls `work` when it is woken, and again after the pause in milliseconds that `work` returns."""

    def __init__(self, name: str, work: Callable[[], float], log: Log) -> None:
        self._name = name
        self._work = work
        self._log = log
        self._changed = threading.Condition()
        self._is_woken = True
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name=f"to {name}", daemon=True)

    @property
    def is_stopping(self) -> bool:
        """Whether the thread is to end after the present call."""
        return self._is_stopping

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Makes the thread call `work` now, or again after the present call."""
        with self._changed:
            self._is_woken = True
            self._changed.notify()

    def stop(self, timeout_s: float) -> None:
        """Ends the thread, after one more call if it was woken; leaves it behind if that takes too long."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            pause_ms = self._one_call()
            with self._changed:
                timeout_s = None if math.isinf(pause_ms) else pause_ms / 1000
                self._changed.wait_for(lambda: self._is_woken or self._is_stopping, timeout_s)
                is_over, is_woken, self._is_woken = self._is_stopping, self._is_woken, False
            if is_over:
                if is_woken:
                    self._one_call()
                return

    def _one_call(self) -> float:
        try:
            return self._work()
        except Exception as exc:  # noqa: BLE001 - a defect must not end the deliveries of this destination
            self._log.warning(f"{self._name}: {type(exc).__name__} in its thread: {exc}; it continues later")
            return _AFTER_A_DEFECT_MS


class BackgroundMirror:
    """A MirrorQueue whose outbox runs in a thread. Its methods return at once.

    Values that replace each other (a list, a heartbeat) are offered by a key: only the newest one is written.
    """

    def __init__(self, outbox: MirrorOutbox, now_ms: Callable[[], TimestampMs], log: Log) -> None:
        self._outbox = outbox
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._inbox: deque[IncidentEvent] = deque()
        self._offered: dict[str, Callable[[], object]] = {}
        self._has_looked = self._is_lost = False
        self._thread = WorkerThread(outbox.name, self._work, log)
        self._thread.start()

    @property
    def name(self) -> str:
        """See MirrorQueue."""
        return self._outbox.name

    @property
    def waiting(self) -> int:
        """See MirrorQueue."""
        with self._lock:
            return len(self._inbox) + self._outbox.waiting

    @property
    def failures(self) -> int:
        """See MirrorQueue."""
        return self._outbox.failures

    @property
    def tally(self) -> DeliveryCounts:
        """See MirrorQueue."""
        with self._lock:
            oldest_ms = self._inbox[0].time_ms if self._inbox else None
        found = self._outbox.tally
        return found if found.oldest_ms is not None else found._replace(oldest_ms=oldest_ms)

    def put(self, events: Sequence[IncidentEvent]) -> None:
        """See MirrorQueue."""
        with self._lock:
            self._inbox.extend(events)
        self._thread.wake()

    def deliver(self, _: TimestampMs) -> None:
        """The thread has been woken by `put`."""

    def offer(self, key: str, action: Callable[[], object]) -> None:
        """Runs the action in the thread; replaces an action with the same key that has not begun."""
        with self._lock:
            self._offered[key] = action
        self._thread.wake()

    def has_lost_everything(self) -> bool:
        """The answer to the call before. The first look does not count: the mirror is filled at the start anyway."""
        self.offer("loss", self._look)
        with self._lock:
            was, self._is_lost = self._is_lost, False
        return was

    def _look(self) -> None:
        is_lost = self._outbox.has_lost_everything()
        with self._lock:
            self._is_lost = self._is_lost or (is_lost and self._has_looked)
            self._has_looked = True

    def forget(self, has_ended: Callable[[str], bool], now_ms: TimestampMs) -> None:
        """See MirrorQueue."""
        self.offer("forget", functools.partial(self._outbox.forget, has_ended, now_ms))

    def deliver_last(self, now_ms: TimestampMs) -> None:
        """Ends the thread, with one more attempt for the events that are left."""
        self.offer("last", functools.partial(self._outbox.deliver_last, now_ms))
        self.stop()

    def stop(self) -> None:
        """Ends the thread."""
        self._thread.stop(_STOP_S)

    def _work(self) -> float:
        with self._lock:
            self._outbox.put(self._inbox)
            self._inbox.clear()
            offered, self._offered = self._offered, {}
        self._outbox.deliver(self._now_ms())
        for action in offered.values():
            with contextlib.suppress(SinkError):  # the outbox reports that the destination does not answer
                action()
        return _RETRY_MS if self._outbox.waiting else WHEN_WOKEN
