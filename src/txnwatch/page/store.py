"""What the page knows: references to what the driver has anyway, replaced after each micro-batch.

Law: a micro-batch pays for one tuple of references. It encodes nothing, copies no list of transactions, and takes no
lock that a viewer can hold. The page thread reads attributes of `PageStore`, and each of them is replaced as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from txnwatch.state.incidents.event_builder import Origin
from txnwatch.state.model.findings import BucketCount, Finding, OpenTransactions
from txnwatch.state.model.incident import IncidentEvent, IncidentStatus
from txnwatch.state.model.values import NO_TIME, CoordinatorAccess, DurationMs, TimestampMs, elapsed
from txnwatch.watch.coverage import MissingEvidence

LIVES: Final = 200  # incidents whose events are kept
EVENTS_OF_ONE: Final = 20
LATENCIES: Final = 500


class Watched(NamedTuple):
    """The numbers of partitions that are scanned and that only a census watches."""

    scanned: int
    census: int


NOT_WATCHED: Final = Watched(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEnd:
    """The end of a micro-batch.

    Attributes:
        judged_ms: when the last barrier was evaluated, by our clock; None before the first one.
        batch_ms: from the listing of that barrier to its end.
        counts: of each bucket at that barrier.
        lists: the open list of each bucket.
        incidents: the last event of each incident that is open, or ended less than a day ago.
        undelivered: events that the events topic has not taken.
    """

    judged_ms: TimestampMs | None = None
    batch_ms: DurationMs = NO_TIME
    counts: Sequence[BucketCount] = ()
    lists: Sequence[OpenTransactions] = ()
    incidents: Sequence[IncidentEvent] | None = None
    evidence: MissingEvidence | None = None
    is_ready: bool = False
    watched: Watched = NOT_WATCHED
    undelivered: int | None = None


@dataclass(slots=True)
class PageStore:
    """The references; the driver's thread writes, the page's thread reads.

    Attributes:
        origin: what the commands of this watch share; None until the cluster is known.
        access: how the coordinators' view is known.
        instance: the name of this watch.
        seen: the last micro-batch.
        lives: the events of the latest incidents since this process was started, oldest first.
        latencies_ms: from the hang to the event, of the last incidents.
        on_change: is called after each micro-batch, in the driver's thread; must not wait.
    """

    instance: str = ""
    origin: Origin | None = None
    access: CoordinatorAccess | None = None
    seen: BatchEnd = field(default_factory=BatchEnd)
    lives: dict[str, tuple[IncidentEvent, ...]] = field(default_factory=dict)
    latencies_ms: tuple[DurationMs, ...] = ()
    on_change: Callable[[], None] = lambda: None

    def take(self, emitted: Sequence[Finding], found: BatchEnd, now_ms: TimestampMs) -> None:
        """Takes the output of a micro-batch; without an evaluated barrier, the former one stays the last."""
        counts = tuple(finding for finding in emitted if isinstance(finding, BucketCount))
        if counts:
            lists = tuple(finding for finding in emitted if isinstance(finding, OpenTransactions))
            batch_ms = elapsed(counts[0].data_listed_ms, now_ms)
            found = replace(found, judged_ms=now_ms, batch_ms=batch_ms, counts=counts, lists=lists)
        else:
            last = self.seen
            found = replace(
                found, judged_ms=last.judged_ms, batch_ms=last.batch_ms, counts=last.counts, lists=last.lists
            )
        self.seen = found
        self.on_change()

    def take_event(self, event: IncidentEvent) -> None:
        """Takes an event of this watch; the end of its micro-batch follows."""
        lives = dict(self.lives)
        life = lives.pop(event.incident_id, ())
        lives[event.incident_id] = (*life[1 - EVENTS_OF_ONE :], event)
        if len(lives) > LIVES:
            del lives[next(iter(lives))]
        self.lives = lives
        if event.status is IncidentStatus.OPENED:
            self.latencies_ms = (*self.latencies_ms[1 - LATENCIES :], event.detection_latency_ms)
