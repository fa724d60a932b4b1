"""Compares the published end of a hang with the data that its closing marker closed.

FALSE END: an incident ended as committed or aborted, and after the read that confirmed it, data of a newer producer
epoch joined its data, and it has not hung since: a later transaction has absorbed it.
NOT ABSORBED: an incident ended as absorbed, all the data that its marker closed belongs to one transaction, and it has
never hung. (The next transaction need not write: it has absorbed the data if it has added the partition.)

What an unclean election has taken from the log since is not judged. Of data of one epoch the first rule says nothing:
the log does not show whose it is. Nor does it judge a scan that reads the marker after a census has not shown the span:
for such a scan nothing joins it (`_followed` in detection/span.py).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from simulation.encoding import Data, Mark
from simulation.owners import Owner
from simulation.partition import DataPartition
from simulation.world import SpanId, World
from txnwatch.state.model.findings import Finding, SpanEnded
from txnwatch.state.model.incident import EndKind, IncidentEvent, partition_of
from txnwatch.state.model.values import TopicPartition

BETWEEN_LOOKS = "absorbed after it was confirmed"


class ClosedBatch(NamedTuple):
    """Data of the producer of an incident."""

    offset: int
    leader_epoch: int
    producer_epoch: int


@dataclass
class SpanEnds:
    """Judges the ends of hangs in a world, from the moment at which it is made."""

    world: World
    written: dict[tuple[str, int, int], int] = field(default_factory=dict)  # the tick, by topic id, offset and epoch
    scanned_late: set[tuple[TopicPartition, int, int]] = field(default_factory=set)  # also by the marker's offset

    def __post_init__(self) -> None:
        wrote_in = self.world.owners.wrote_in

        def noted(owner: Owner | None, at: DataPartition, offset: int, producer_id: int) -> None:
            self.written[f"{at.topic_id} {at.partition}", offset, at.epoch] = self.world.tick
            wrote_in(owner, at, offset, producer_id)

        self.world.owners.wrote_in = noted  # type: ignore[method-assign]

    def read(self, emitted: Iterable[Finding]) -> None:
        """Notes the ends of a batch that a scan has read after a census."""
        for one in emitted:
            if isinstance(one, SpanEnded) and one.marker is not None and one.span.census_absent_at is not None:
                self.scanned_late.add((one.partition, one.producer_id, one.marker.offset))

    def wrong(self, event: IncidentEvent) -> Iterator[str]:
        """What is wrong with the end in an event that a watcher publishes."""
        world, end = self.world, event.resolution
        log = world.data.get(partition_of(event)) if event.topic is not None else None
        if end is None or end.marker_offset is None or log is None or log.topic_id != event.topic_id:
            return
        start = event.txn_start_offset or 0
        span = _closed_data(log, event.producer_id, start, end.marker_offset)
        if not span:
            return
        name = SpanId(log.partition, log.topic_id, event.producer_id, start)
        joined = self._joined(log, event, name, span)
        is_late = (log.partition, event.producer_id, end.marker_offset) in self.scanned_late
        if joined is not None and end.how is not EndKind.ABSORBED and not is_late:
            yield f"FALSE END: {event.subject} is {end.how} by {end.by}, and {joined} has joined its data"
        world.seen[BETWEEN_LOOKS] += joined is not None and not is_late
        has_hung = any(name.is_part_of(real) for real in (*world.hanging, *world.was_hanging, *world.reopened))
        owners = set(world.owners.of(log, event.producer_id, start, end.marker_offset))
        if end.how is EndKind.ABSORBED and not has_hung and len(owners) == 1 and None not in owners:
            yield f"NOT ABSORBED: {event.subject}: all its data is of {owners}, and it never hung"

    def _joined(
        self, log: DataPartition, event: IncidentEvent, name: SpanId, span: list[ClosedBatch]
    ) -> ClosedBatch | None:
        """The first data of the newest epoch, if it is newer than what was confirmed and has never hung."""
        end_before = event.evidence.end_before
        read_to = end_before if end_before is not None else span[0].offset + 1
        newest = max(span, key=lambda one: (one.producer_epoch, -one.offset))
        confirmed = [one.producer_epoch for one in span if one.offset < read_to]
        if newest.offset < read_to or newest.producer_epoch <= max(confirmed, default=newest.producer_epoch):
            return None
        since = self.written[f"{log.topic_id} {log.partition}", newest.offset, newest.leader_epoch]
        return newest if self._last_hung(name) <= since else None

    def _last_hung(self, name: SpanId) -> int:
        """The last tick at which the span hung."""
        known = (real for real in {*self.world.hanging, *self.world.was_hanging} if name.is_part_of(real))
        ends = [end for real in known for _, end, _ in self.world.was_hanging.get(real, ())]
        hangs = any(name.is_part_of(real) for real in self.world.hanging)
        return sys.maxsize if hangs else max(ends, default=0)


def _closed_data(log: DataPartition, producer_id: int, start: int, marker_offset: int) -> list[ClosedBatch]:
    """The data from the start up to its marker; nothing if the log no longer has both, or has a marker between them."""
    own = [entry for entry in log.entries if isinstance(entry.body, Data | Mark)]
    own = [entry for entry in own if entry.body.producer_id == producer_id and start <= entry.offset <= marker_offset]
    if not own or own[0].offset != start or own[-1].offset != marker_offset or not isinstance(own[-1].body, Mark):
        return []
    found = [
        ClosedBatch(one.offset, one.leader_epoch, one.body.producer_epoch)
        for one in own[:-1]
        if isinstance(one.body, Data)
    ]
    return found if len(found) == len(own) - 1 else []
