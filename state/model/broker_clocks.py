"""What is known of the brokers' clocks, and how old a transaction is at least. Pure.

A verdict that rests on time says "at least so old". A clock that is wrong by an hour must not make it say so of a
record that is a millisecond old; so the age is a lower bound, and it has two sources, of which the larger counts.

  1. Our own eyes. The record stood in the log when its end was listed at `since_ms` (our clock), and the log, read to
     its end at this barrier, shows nothing behind it. So the state has lasted for `now - since_ms`. No broker's clock
     is in it. It is all there is to know of a record whose stamp cannot be compared; that costs one threshold of
     waiting after a start, never a false verdict. A record of a later leader epoch than the end was listed under was
     not there then: the log was cut in between, and written again. It counts from the next listing on.
  2. The clock that stamped it. Two stamps of one clock have a difference that is true however wrong the clock is. A
     record stamped s and listed at c (our clock) was written before c: the clock is ahead of ours by s - c or more.
     With the largest of these the broker's clock shows now at least `now + lowest`, and a record of the same clock
     stamped s is at least `now + lowest - s` old. So a Prepare* that is minutes old when we start is told at once if
     its broker has stamped anything since, in any partition of the log that it leads.

Whose clock: that of the broker which leads the partition of `__transaction_state`. It is one clock for all partitions
that the broker leads, so a quiet partition profits from a busy one. A batch of the log names the leader epoch it was
appended under. A stamp counts only if that is the epoch the partition's end was listed under; a stamp of an earlier
leader is another clock's, and then only our own eyes count. A broker that takes a partition over may be another
machine under the same id: what was known of its clock is forgotten.

The upper bound of a clock needs the opposite, a time before which the record was not there: the moment before T was
asked for at the listing before. That holds only for a range that goes on where everything had been read, of a
partition that was listed both times. It is no part of any age. It shows that a clock was set: where what is told now
and what was known do not meet, what is told now counts, and stamps from before are not compared any more. (A record
that waited long for its replicas looks like that, too; then an age is lower than it could be.) An interval with its
ends the wrong way round says nothing.

An Ongoing transaction has one more true statement. Its coordinator compares the start with its own clock, whoever
stamped the start. So once `now + lowest - start` is past the timeout, the coordinator itself sees it expired; but it
has had no more time to act on that than it has led the partition. That time, too, is a lower bound.

What nothing can tell: a clock that was set forward between a record and the first time anybody watched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from txnwatch.state.model.transaction import CoordinatorView

if TYPE_CHECKING:
    from txnwatch.state.model.facts import Barrier

NOT_LISTED_MS = 2**62  # since when a record stands that was read before any listing that can have shown it
STEP_MS = 1_000  # what is known changes by no less: each change is a write of every bucket
_DRIFT = 1_000  # a clock may gain or lose one part of so many


class Leader(NamedTuple):
    """Who leads a partition of the coordinators' log, under which leader epoch."""

    broker: int
    epoch: int


def was_listed(view: CoordinatorView, barrier: Barrier) -> bool:
    """Whether the record stood in the log, as far as it was read, when the barrier listed its end.

    Below an end that was listed under an epoch lies what was appended by then, until somebody leads under a later one.
    """
    leader = barrier.leaders.get(view.log_partition)
    if leader is None:
        return view.log_partition not in barrier.stale_coordinator
    return view.coordinator_epoch <= leader.epoch


class Reign(NamedTuple):
    """A leader, and when (our clock) it was first listed under its epoch."""

    broker: int
    epoch: int
    since_ms: int


class Clock(NamedTuple):
    """A broker's clock minus ours: at least `lowest_ms`, at most `highest_ms` (None: not known), as of `at_ms`.

    `set_ms` is when (our clock) it was last found to have been set, -1 if never.
    """

    lowest_ms: int
    highest_ms: int | None
    at_ms: int
    set_ms: int = -1

    def now(self, now_ms: int) -> Clock:
        """What is left of it after a while, since clocks drift."""
        drift_ms = max(0, now_ms - self.at_ms) // _DRIFT
        highest_ms = None if self.highest_ms is None else self.highest_ms + drift_ms
        return Clock(self.lowest_ms - drift_ms, highest_ms, max(now_ms, self.at_ms), self.set_ms)

    @property
    def is_possible(self) -> bool:
        """Whether the ends are the right way round."""
        return self.highest_ms is None or self.lowest_ms <= self.highest_ms

    @property
    def presumed_ms(self) -> int:
        """The difference to show: as small as what was told allows."""
        return max(self.lowest_ms, min(0, self.highest_ms or 0))


def both(one: Clock | None, other: Clock) -> Clock:
    """What two records of one clock say together."""
    if one is None:
        return other
    highest = [told.highest_ms for told in (one, other) if told.highest_ms is not None]
    lowest_ms = max(one.lowest_ms, other.lowest_ms)
    return Clock(lowest_ms, min(highest, default=None), max(one.at_ms, other.at_ms), max(one.set_ms, other.set_ms))


def learned(known: Clock | None, told: Clock) -> Clock:
    """What is known of a clock after one batch; small changes are left out."""
    if known is None:
        return told
    former = known.now(told.at_ms)
    now = both(former, told)
    if not now.is_possible:
        return told._replace(set_ms=told.at_ms)
    is_higher = now.lowest_ms - former.lowest_ms >= STEP_MS
    is_lower = now.highest_ms is not None and (
        former.highest_ms is None or former.highest_ms - now.highest_ms >= STEP_MS
    )
    return now if is_higher or is_lower else known


@dataclass(slots=True)
class Clocks:
    """The brokers' clocks, and who leads which partition of the coordinators' log."""

    brokers: dict[int, Clock] = field(default_factory=dict)
    reigns: dict[int, Reign] = field(default_factory=dict)

    def take(self, leaders: Mapping[int, Leader], told: Mapping[int, Clock], now_ms: int) -> bool:
        """Takes in what a barrier tells; whether that changes an age."""
        risen = {
            log_partition: Reign(*leader, now_ms)
            for log_partition, leader in leaders.items()
            if self.reigns.get(log_partition, (-1, -1))[:2] != leader
        }
        for reign in risen.values():
            self.brokers.pop(reign.broker, None)
        self.reigns.update(risen)
        led = {reign.broker for reign in self.reigns.values()}
        clocks = {broker: clock for broker, clock in self.brokers.items() if broker in led}
        for broker, clock in told.items():
            if clock.is_possible:
                clocks[broker] = learned(clocks.get(broker), clock)
        has_changed = bool(risen) or clocks != self.brokers
        self.brokers = clocks
        return has_changed

    def of(self, view: CoordinatorView) -> tuple[Reign, Clock] | None:
        """The leader of a view's log partition and its clock, if both are known."""
        reign = self.reigns.get(view.log_partition)
        clock = self.brokers.get(reign.broker) if reign is not None else None
        return (reign, clock) if reign is not None and clock is not None else None

    def age_ms(self, view: CoordinatorView, now_ms: int) -> int:
        """At least how long a live transaction has been Ongoing, or prepared, at a barrier of our clock `now_ms`."""
        seen_ms = max(0, now_ms - view.since_ms)
        known = self.of(view)
        if known is None:
            return seen_ms
        reign, clock = known
        broker_now_ms = now_ms + clock.now(now_ms).lowest_ms
        is_same_clock = view.coordinator_epoch == reign.epoch and view.since_ms >= clock.set_ms
        stamped_ms = broker_now_ms - view.record_timestamp_ms if is_same_clock else 0
        if view.state.is_prepare:
            return max(seen_ms, stamped_ms)
        led_ms = max(now_ms - max(reign.since_ms, clock.set_ms), stamped_ms)
        return max(seen_ms, min(broker_now_ms - view.start_ms, view.timeout_ms + led_ms))

    def ahead_ms(self, view: CoordinatorView, now_ms: int) -> int:
        """How far the clock of a view's coordinator is presumed to be ahead of ours, for times that are shown."""
        known = self.of(view)
        return known[1].now(now_ms).presumed_ms if known is not None else 0
