"""Bounds on the brokers' clocks, and the minimum age of a transaction. Pure: no I/O, no clock.

A time-based verdict claims "at least this old". A clock that is wrong by an hour must not cause this claim about a
record that is a millisecond old. So the age is a lower bound. It has two sources, and the larger value counts.

  1. Our own observation. The record was in the log when its end was listed at `since_ms` (our clock), and the log, read
     to its end at this barrier, has no later record of the transaction. So the state has lasted for `now - since_ms`.
     No broker clock is involved. It is the only source for a record whose timestamp cannot be compared; this costs one
     threshold of waiting after a start, never a false verdict. A record with a later leader epoch than the listed end
     was not in the log then: the log was truncated in between and written again. Its age counts from the next listing
     on. So does the age of each record where a leader may lose its tail and keep its epoch.
  2. The clock that stamped the record. The difference of two stamps of one clock is true, however wrong the clock is. A
     record stamped s and listed at c (our clock) was written before c: the clock is ahead of ours by s - c or more.
     With the largest of these values (`lowest`) the broker's clock now shows at least `now + lowest`, and a record of
     the same clock stamped s is at least `now + lowest - s` old. So a Prepare* that is minutes old at our start is
     reported at once, if its broker has stamped anything since, in any partition of the log that it leads.

Which clock: that of the broker that leads the partition of `__transaction_state`. It is one clock for all partitions
that the broker leads, so an idle partition benefits from a busy one. A batch of the log has the leader epoch under
which it was appended. A stamp counts only if the end of the partition was listed under the same epoch. A stamp of an
earlier leader is from another clock, and then only our own observation counts. A broker that takes over a partition may
be another machine with the same id: the bounds of its clock are dropped.

The upper bound of a clock needs the opposite, a time before which the record was not in the log: the moment before T
was requested at the previous listing. This holds only for a range that continues a complete reading, of a partition
that was listed both times. The upper bound is not part of any age. It shows that a clock was set: if the new interval
and the known interval do not overlap, the new one counts, and earlier stamps are no longer compared. (A record that
waited long for its replicas looks the same; then an age is lower than it could be.) An interval whose lower bound is
above its upper bound is ignored.

A leader that may lose its tail and keep its epoch (decision 0049) can append a record after the listing, at an offset
below the listed end. The stamp of such a record gives a lower bound that is too high. So the bounds that such a leader
shows are held until the next listing, and count if that listing has the same connection. An upper bound is right in any
case. If it shows that the clock was set back, the known bounds are dropped at once.

An Ongoing transaction allows one more true statement. Its coordinator compares the start with the coordinator's own
clock, whoever stamped the start. So once `now + lowest - start` is above the timeout, the coordinator itself sees the
transaction as expired. But it has had no more time to act on it than it has led the partition. That time, too, is a
lower bound.

If our own clock is set, the barrier names by how much, and all these times are moved (detection/bucket.py).

What cannot be detected: a clock that was set forward between a record and the start of the first watch, and our own
clock if it is set while no watch runs and the machine is restarted meanwhile.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from txnwatch.state.model.clocks import Clock, Leader, both
from txnwatch.state.model.facts import Barrier
from txnwatch.state.model.transaction import CoordinatorView, ProducerState
from txnwatch.state.model.values import (
    NO_TIME,
    BarrierNumber,
    BrokerId,
    CoordinatorEpoch,
    DurationMs,
    TimestampMs,
    TopicPartition,
    elapsed,
)

STEP_MS = DurationMs(1_000)  # smaller changes are ignored, because each change is a write of every bucket
RESERVE_MS = DurationMs(2_000)  # a due time stays right while the lower bound of a clock rises by at most this much


def was_listed(view: CoordinatorView, barrier: Barrier) -> bool:
    """Whether the record was in the log, as far as it was read, when the barrier listed the end of the log.

    An end listed under a leader epoch covers only records that were appended under this epoch or an earlier one.
    """
    log = view.log
    leader = barrier.leaders.get(log)
    if leader is None:
        return log not in barrier.stale_coordinator
    return view.coordinator_epoch is None or view.coordinator_epoch <= leader.epoch


def first_listed_ms(view: CoordinatorView, barrier: Barrier) -> TimestampMs | None:
    """When the end above a record was listed that is new in the batch of the barrier; None if that is not certain.

    Where a leader may lose its tail and keep its epoch (decision 0049), a record below a listed end may have been
    appended after the listing.
    """
    leader = barrier.leaders.get(view.log)
    is_certain = was_listed(view, barrier) and not (leader is not None and leader.connection)
    return barrier.coordinator_listed_ms if is_certain else None


def dated(producer: ProducerState, barrier: Barrier) -> ProducerState:
    """Sets `since_ms` of a view that was read before the barrier, at the first listing that certainly shows it."""
    view = producer.view
    if view is None or view.since_ms is not None or not was_listed(view, barrier):
        return producer
    return replace(producer, view=replace(view, since_ms=barrier.coordinator_listed_ms))


class Leadership(NamedTuple):
    """The reign of a leader, and when it was listed first: our clock, and the barrier.

    `set_ms` is when its clock had been set, if the bounds of the clock were dropped since.
    """

    leader: Leader
    since_ms: TimestampMs
    since: BarrierNumber
    set_ms: TimestampMs | None = None

    @property
    def broker(self) -> BrokerId:
        """The broker that leads the partition."""
        return self.leader.broker

    @property
    def epoch(self) -> CoordinatorEpoch:
        """Its leader epoch."""
        return self.leader.epoch

    def with_ours_set(self, by_ms: DurationMs) -> Leadership:
        """The same after our clock was set by so much."""
        set_ms = None if self.set_ms is None else self.set_ms + by_ms
        return self._replace(since_ms=self.since_ms + by_ms, set_ms=set_ms)


def learned(before: Clock | None, listed: Clock) -> Clock:
    """The bounds of a clock after one batch; changes below STEP_MS are ignored."""
    if before is None:
        return listed
    former = before.now(listed.at_ms)
    now = both(former, listed)
    if not now.is_possible:
        return listed._replace(set_ms=listed.at_ms)
    is_higher = now.lowest_ms - former.lowest_ms >= STEP_MS
    is_lower = now.highest_ms is not None and (
        former.highest_ms is None or former.highest_ms - now.highest_ms >= STEP_MS
    )
    return now if is_higher or is_lower else before


class Clocks(Struct, array_like=True):
    """The brokers' clocks, and the leader of each partition of the coordinators' log.

    `held` has the bounds of leaders that may have restarted since the listing.
    """

    brokers: dict[BrokerId, Clock] = field(default_factory=dict)
    reigns: dict[TopicPartition, Leadership] = field(default_factory=dict)
    held: dict[BrokerId, Clock] = field(default_factory=dict)

    def take(self, barrier: Barrier) -> set[TopicPartition]:
        """Adds the data of a barrier; returns the log partitions with a new reign."""
        for log in barrier.stale_coordinator - barrier.leaders.keys():
            if log in self.reigns and self.reigns[log].leader.connection:
                # Without an answer, nothing shows that the leader has not restarted.
                self.held.pop(self.reigns.pop(log).broker, None)
        risen = {
            log: Leadership(leader, barrier.coordinator_listed_ms, barrier.number)
            for log, leader in barrier.leaders.items()
            if (reign := self.reigns.get(log)) is None or reign.leader != leader
        }
        dropped = {reign.broker for reign in risen.values()}
        if dropped:
            self._keep_set_times(dropped)
        self.reigns.update(risen)
        kept = {reign.broker for reign in self.reigns.values()} - dropped
        self.brokers = {broker: clock for broker, clock in self.brokers.items() if broker in kept}
        for broker in self.held.keys() & kept:
            self.brokers[broker] = learned(self.brokers.get(broker), self.held[broker])
        self.held = {}
        may_keep_its_epoch = {leader.broker for leader in barrier.leaders.values() if leader.connection}
        for broker, clock in barrier.clocks.items():
            if not clock.is_possible:
                continue
            before = self.brokers.get(broker)
            now = learned(before, clock)
            if broker not in may_keep_its_epoch:
                self.brokers[broker] = now
            elif now is not before:
                self._hold(broker, before, clock)
        return set(risen)

    def _hold(self, broker: BrokerId, before: Clock | None, clock: Clock) -> None:
        """Keeps bounds for the next listing. Known bounds that the upper bound contradicts are dropped."""
        self.held[broker] = clock
        if before is not None and clock.highest_ms is not None and clock.highest_ms < before.now(clock.at_ms).lowest_ms:
            del self.brokers[broker]
            for log in self.led_by({broker}):
                self.reigns[log] = self.reigns[log]._replace(set_ms=clock.at_ms)

    def _keep_set_times(self, dropped: Container[BrokerId]) -> None:
        """Keeps the time at which a clock was set, although its bounds are dropped: earlier stamps do not count."""
        for log, reign in self.reigns.items():
            clock = self.brokers.get(reign.broker) if reign.broker in dropped else None
            if clock is not None and clock.set_ms is not None:
                self.reigns[log] = reign._replace(set_ms=clock.set_ms)

    def led_by(self, brokers: Container[BrokerId]) -> set[TopicPartition]:
        """The log partitions that one of these brokers leads."""
        return {log for log, reign in self.reigns.items() if reign.broker in brokers}

    def of(self, view: CoordinatorView) -> tuple[Leadership, Clock] | None:
        """The leader of a view's log partition and its clock, if both are known."""
        return self._of_log(view.log)

    def _of_log(self, log: TopicPartition) -> tuple[Leadership, Clock] | None:
        reign = self.reigns.get(log)
        clock = self.brokers.get(reign.broker) if reign is not None else None
        return (reign, clock) if reign is not None and clock is not None else None

    def age_ms(self, view: CoordinatorView, now_ms: TimestampMs) -> DurationMs:
        """The minimum time that a live transaction has been Ongoing, or prepared, at `now_ms` of our clock."""
        seen_ms = NO_TIME if view.since_ms is None else elapsed(view.since_ms, now_ms)
        reign_and_clock = self.of(view)
        if reign_and_clock is None:
            return seen_ms
        reign, clock = reign_and_clock
        broker_now_ms = now_ms + clock.now(now_ms).lowest_ms
        set_ms = clock.set_ms if clock.set_ms is not None else reign.set_ms
        valid_ms = max(reign.since_ms, set_ms) if set_ms is not None else reign.since_ms
        is_unset = set_ms is None or view.since_ms is None or view.since_ms >= set_ms
        is_same_clock = view.coordinator_epoch == reign.epoch and is_unset
        stamped_ms = broker_now_ms - view.record_timestamp_ms if is_same_clock else NO_TIME
        if view.state.is_prepare or view.start_ms is None:
            return max(seen_ms, stamped_ms)
        led_ms = max(now_ms - valid_ms, stamped_ms)
        return max(seen_ms, min(broker_now_ms - view.start_ms, view.timeout_ms + led_ms))

    def ahead_ms(self, log: TopicPartition, now_ms: TimestampMs) -> DurationMs:
        """How far the clock of a log partition's leader is presumed to be ahead of ours; for times that are shown."""
        reign_and_clock = self._of_log(log)
        return reign_and_clock[1].now(now_ms).presumed_ms if reign_and_clock is not None else NO_TIME
