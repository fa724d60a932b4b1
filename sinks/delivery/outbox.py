"""The queues of undelivered events, one for each destination: in order, kept while it does not answer, with backoff.

A micro-batch waits for the events topic. For every other destination it only puts something into a queue, and never
waits. The list of open transactions (`OpenList`) is no event and has no queue: only its last value counts.

Law: everything that can block runs in the thread of such a destination, and each has its own. Each is called from one
thread only, so it sees events in order.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from txnwatch.state.model.errors import SinkError
from txnwatch.state.model.findings import Finding, OpenTransaction, OpenTransactions
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.pauses import Attempts, Every
from txnwatch.state.model.ports import EventsTopicWriter, Log, Mirror, OpenIncidentsView
from txnwatch.state.model.values import AT_ONCE, DurationMs, TimestampMs
from txnwatch.state.text import Said, duration_text, printable

_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = DurationMs(1_000), DurationMs(30_000)
_FORGET_PAUSE_MS = DurationMs(600_000)
_AT_A_TIME = 500


class DeliveryCounts(NamedTuple):
    """What became of the events of one destination.

    Attributes:
        delivered: events that it has taken.
        refused: events that were set aside, because it refuses them.
        oldest_ms: the time of the oldest event that is not delivered; None if there is none.
        is_stopped: whether it wants no more events.
        error: why the last attempt failed; None if it did not.
    """

    delivered: int
    refused: int = 0
    oldest_ms: TimestampMs | None = None
    is_stopped: bool = False
    error: str | None = None


class Outbox:
    """Delivers to one destination and never raises. While it does not answer, retries come after growing pauses.

    Attributes:
        name: the destination's name in messages and metrics.
        failures: deliveries that failed.
    """

    def __init__(self, name: str, send: Callable[[Sequence[IncidentEvent]], None], log: Log) -> None:
        self.name = name
        self._send = send
        self._log = log
        self._waiting: deque[IncidentEvent] = deque()
        self._attempts = Attempts(_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS)
        self._said = Said[str]()
        self.failures = 0
        self._delivered = 0
        self._error: str | None = None

    @property
    def waiting(self) -> int:
        """The number of undelivered events."""
        return len(self._waiting)

    @property
    def tally(self) -> DeliveryCounts:
        """What became of the events."""
        try:
            oldest_ms = self._waiting[0].time_ms
        except IndexError:  # the thread of a mirror may have emptied the queue
            oldest_ms = None
        return DeliveryCounts(self._delivered, oldest_ms=oldest_ms, error=self._error)

    def put(self, events: Iterable[IncidentEvent]) -> None:
        """Adds events at the end of the queue."""
        self._waiting.extend(events)

    def deliver(self, now_ms: TimestampMs) -> list[IncidentEvent]:
        """Delivers queued events until one delivery fails; returns those that the destination took."""
        taken: list[IncidentEvent] = []
        if not self._waiting or not self._attempts.is_due(now_ms):
            return taken
        try:
            while self._waiting:
                part = [self._waiting[position] for position in range(min(_AT_A_TIME, len(self._waiting)))]
                self._send(part)
                taken.extend(self._waiting.popleft() for _ in part)
                self._delivered += len(part)
        except SinkError as exc:
            self.failures += 1
            self._error = str(exc)
            if self._said.is_new("delivery"):
                self._log.warning(f"{exc}; {self.waiting} events are kept and delivered later")
            self._attempts.put_off(now_ms)
        else:
            self._error = None
            if self._said.is_over("delivery"):
                self._log.info(f"{self.name} works again: all kept events are delivered")
            self._attempts.end()
        return taken

    def deliver_last(self, now_ms: TimestampMs) -> None:
        """Tries to deliver once more, before the destination is closed."""
        self._attempts.due_ms = AT_ONCE
        self.deliver(now_ms)


class TopicOutbox(Outbox):
    """The queue of the events topic."""

    def __init__(self, topic: EventsTopicWriter, log: Log) -> None:
        super().__init__(topic.name, topic.publish, log)

    @property
    def waiting_incidents(self) -> set[str]:
        """The ids of incidents with undelivered events."""
        return {event.incident_id for event in self._waiting}

    def clear(self) -> list[IncidentEvent]:
        """Drops the queued events, and returns them."""
        left, self._waiting = list(self._waiting), deque()
        return left

    def withdraw(self, event: IncidentEvent) -> list[IncidentEvent]:
        """Drops queued events of the same incident that are not newer than this event, and returns them."""
        queued, self._waiting = self._waiting, deque()
        dropped: list[IncidentEvent] = []
        for waiting in queued:
            is_dropped = waiting.incident_id == event.incident_id and waiting.sequence <= event.sequence
            (dropped if is_dropped else self._waiting).append(waiting)
        return dropped


MOST_WAITING: Final = 10_000


class QueueBound:
    """Keeps a queue short while its destination does not answer.

    A queue with more events than `most` keeps the first and the last event of each incident, which are its opening and
    its end, or its latest state. A queue with more than twice as many keeps only the last one. So the length is at most
    the number of incidents that the ledger knows, or `most`.
    """

    def __init__(self, most: int = MOST_WAITING) -> None:
        self._most = self._longest = most

    def applied(self, waiting: deque[IncidentEvent]) -> deque[IncidentEvent]:
        """The queue, shortened if it has become too long."""
        if len(waiting) <= self._longest:
            return waiting
        waiting = _kept(waiting, keeps_first=True)
        if len(waiting) > 2 * self._most:
            waiting = _kept(waiting, keeps_first=False)
        self._longest = max(self._most, len(waiting) * 5 // 4)  # so that not every further event costs a look at all
        return waiting


def _kept(waiting: deque[IncidentEvent], *, keeps_first: bool) -> deque[IncidentEvent]:
    left = Counter(event.incident_id for event in waiting)
    seen: set[str] = set()
    kept: deque[IncidentEvent] = deque()
    for event in waiting:
        left[event.incident_id] -= 1
        is_first = event.incident_id not in seen
        seen.add(event.incident_id)
        if not left[event.incident_id] or (is_first and keeps_first):
            kept.append(event)
    return kept


class MirrorQueue(Protocol):
    """What a micro-batch needs of the way to a mirror, and the metrics of it; no method raises."""

    @property
    def name(self) -> str:
        """The name of the destination in messages and metrics."""

    @property
    def waiting(self) -> int:
        """The number of undelivered events."""

    @property
    def failures(self) -> int:
        """How many deliveries have failed."""

    @property
    def tally(self) -> DeliveryCounts:
        """What became of the events."""

    def put(self, events: Sequence[IncidentEvent]) -> None:
        """Adds events at the end of the queue."""

    def take_over(self, events: Sequence[IncidentEvent], since_ms: Mapping[str, TimestampMs], /) -> None:
        """This instance begins to speak: takes the latest event of each known incident; see wanted.TakeOver.

        `since_ms` has after which time the end of an incident was written, by the clock of this process. The time in
        the event is of another clock.
        """

    def others_told(self) -> None:
        """Another instance has told what is on the topic until now; see wanted.OthersTold."""

    def deliver(self, now_ms: TimestampMs, /) -> object:
        """Delivers queued events, or has them delivered."""

    def deliver_last(self, now_ms: TimestampMs, /) -> None:
        """Tries to deliver once more, before the destination is closed."""

    def has_lost_everything(self) -> bool:
        """See OpenIncidentsView."""

    def forget(self, has_ended: Callable[[str], bool], now_ms: TimestampMs) -> None:
        """See OpenIncidentsView."""


class FailingTarget(NamedTuple):
    """A destination that does not take its events now.

    Attributes:
        oldest_ms: the time of the oldest event that waits; None if none does.
        error: why the last attempt failed.
    """

    name: str
    waiting: int
    oldest_ms: TimestampMs | None
    error: str

    def text(self, now_ms: TimestampMs) -> str:
        """On one line."""
        if self.oldest_ms is None:
            return printable(f"{self.name}: no event waits: {self.error}")
        count = f"{self.waiting:,} event{' waits' if self.waiting == 1 else 's wait'}"
        for_ms = duration_text(now_ms - self.oldest_ms)
        return printable(f"{self.name}: {count}, the oldest for {for_ms}: {self.error}")


def failing_targets(outboxes: Iterable[Outbox | MirrorQueue]) -> list[FailingTarget]:
    """The destinations whose last attempt failed."""
    tallies = ((outbox, outbox.tally) for outbox in outboxes)
    return [
        FailingTarget(outbox.name, outbox.waiting, tally.oldest_ms, tally.error)
        for outbox, tally in tallies
        if tally.error is not None
    ]


class MirrorOutbox(Outbox):
    """The queue of a mirror; `view` is given if the mirror shows the open incidents."""

    def __init__(self, name: str, mirror: Mirror, log: Log, view: OpenIncidentsView | None = None) -> None:
        super().__init__(name, mirror.deliver, log)
        self._view = view
        self._forgetting = Every(_FORGET_PAUSE_MS)
        self._bound = QueueBound()

    def put(self, events: Iterable[IncidentEvent]) -> None:
        """Adds events at the end of the queue, and keeps it short."""
        super().put(events)
        self._waiting = self._bound.applied(self._waiting)

    def take_over(self, events: Iterable[IncidentEvent], _: Mapping[str, TimestampMs]) -> None:
        """See MirrorQueue. A mirror holds the state of each incident: what it has already changes nothing."""
        self.put(events)

    def others_told(self) -> None:
        """See MirrorQueue: this instance fills the mirror in any case when it takes over."""

    def has_lost_everything(self) -> bool:
        """See OpenIncidentsView; False for a mirror without a view. A refusal is reported once."""
        if self._view is None:
            return False
        try:
            is_empty = self._view.has_lost_everything()
        except SinkError as exc:
            self._report(exc, "after a loss of its data it stays empty")
            return False
        self._said.is_over("view")
        return is_empty

    def forget(self, has_ended: Callable[[str], bool], now_ms: TimestampMs) -> None:
        """See OpenIncidentsView; called only every 10 minutes, because a mirror that does not answer costs time."""
        if self._view is not None and self._forgetting.take(now_ms):
            try:
                self._view.forget(has_ended)
            except SinkError as exc:
                self._report(exc, "incidents that ended meanwhile stay open there")

    def beat(self, write: Callable[[], object]) -> None:
        """Writes a heartbeat. It comes every few seconds, so it shows that a mirror is away before an event does."""
        try:
            write()
        except SinkError as exc:
            if "delivery" not in self._said.problems and self._said.is_new("heartbeat"):
                self._log.warning(f"{exc}; what it shows is not up to date until it answers")
        else:
            if self._said.is_over("heartbeat"):
                self._log.info(f"{self.name} answers again")

    def _report(self, exc: SinkError, result: str) -> None:
        if self._said.is_new("view", str(exc)):
            self._log.warning(f"{exc}: {result}")


# Publishes the list of open transactions: at most once a second if it has changed, every 20 s if it has not.
#
# The list is not an event. A list that could not be published is not kept, because the next one has everything again.

SHOWN = 1_000
_PAUSE_MS, _UNCHANGED_PAUSE_MS, _AWAY_PAUSE_MS = DurationMs(1_000), DurationMs(20_000), DurationMs(30_000)


class OpenList:
    """Publishes the oldest open transactions; never raises.

    `show` replaces the published list. After a SinkError it is not called for 30 s; the outbox reports the failure.
    """

    def __init__(self, show: Callable[[Sequence[OpenTransaction]], None]) -> None:
        self._show = show
        self._shown: tuple[OpenTransaction, ...] | None = None
        self._changed, self._unchanged = Every(_PAUSE_MS), Every(_UNCHANGED_PAUSE_MS)
        self._away = Every(_AWAY_PAUSE_MS)

    def on_batch(self, emitted: Sequence[Finding], now_ms: TimestampMs) -> None:
        """Publishes the list after a micro-batch, if it is due."""
        if not (self._changed.is_due(now_ms) and self._away.is_due(now_ms)):
            return
        transactions = (
            transaction
            for finding in emitted
            if isinstance(finding, OpenTransactions)
            for transaction in finding.transactions
        )
        oldest = tuple(
            sorted(transactions, key=lambda transaction: (transaction.since_ms, transaction.producer_id))[:SHOWN]
        )
        if oldest == self._shown and not self._unchanged.is_due(now_ms):
            return
        try:
            self._show(oldest)
        except SinkError:
            self._shown = None
            self._away.begin(now_ms)
            return
        self._shown = oldest
        self._changed.begin(now_ms)
        self._unchanged.begin(now_ms)


# The threads in which mirrors, and other destinations, are called.

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
        tally = self._outbox.tally
        return tally if tally.oldest_ms is not None else tally._replace(oldest_ms=oldest_ms)

    def put(self, events: Sequence[IncidentEvent]) -> None:
        """See MirrorQueue."""
        with self._lock:
            self._inbox.extend(events)
        self._thread.wake()

    def take_over(self, events: Sequence[IncidentEvent], _: Mapping[str, TimestampMs]) -> None:
        """See MirrorOutbox."""
        self.put(events)

    def others_told(self) -> None:
        """See MirrorOutbox."""

    def deliver(self, _: TimestampMs) -> None:
        """The thread has been woken by `put`."""

    def offer(self, key: str, action: Callable[[], object]) -> None:
        """Runs the action in the thread; replaces an action with the same key that has not begun."""
        with self._lock:
            self._offered[key] = action
        self._thread.wake()

    def beat(self, write: Callable[[], object]) -> None:
        """Writes a heartbeat in the thread, in place of one that was not written yet; a failure is reported once."""
        self.offer("heartbeat", functools.partial(self._outbox.beat, write))

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
