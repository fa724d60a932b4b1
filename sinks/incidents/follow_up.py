"""Checks open incidents again: an end that was missed, the state of the partition, and the affected consumer groups.

It reads through TransactionAdmin and ConsumerGroups; end_check.py and affected_groups.py of state/evidence decide. A
missing answer changes nothing that is known. Its reason is reported once until it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from txnwatch.state.evidence.affected_groups import UnmovedOffset, look_again
from txnwatch.state.evidence.blocked_reads import with_blocked_reads
from txnwatch.state.evidence.end_check import (
    absences_in_a_row,
    is_end_missed,
    is_unexplained,
    span_end,
    transaction_end,
    unexplained_since,
    with_owner,
)
from txnwatch.state.model.description import TransactionDescription
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.incident_payload import AffectedGroup, Resolution
from txnwatch.state.model.ports import ConsumerGroups, PartitionReading, TransactionAdmin
from txnwatch.state.model.quantities import DurationMs, TimestampMs, elapsed


class Finding(NamedTuple):
    """The result of a check of one open incident: its resolution, or else the incident with the current values."""

    incident: IncidentEvent
    now: IncidentEvent
    resolution: Resolution | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What blocks the readers of a partition; `consumer_groups` is None if the affected groups are not known."""

    lso_standing_ms: DurationMs
    consumer_groups: tuple[AffectedGroup, ...] | None = None

    def added_to(self, incident: IncidentEvent) -> IncidentEvent:
        """The incident with these values; the groups that it has stay if the current ones are not known."""
        groups = incident.consumer_groups if self.consumer_groups is None else self.consumer_groups
        return replace(incident, lso_standing_ms=self.lso_standing_ms, consumer_groups=groups)


@dataclass(slots=True)
class FollowUp:
    """Checks open incidents. It remembers each partition's last stable offset, and since when it has not moved."""

    admin: TransactionAdmin
    groups: ConsumerGroups
    report: Callable[[str], None]
    _unmoved: dict[TopicPartition, UnmovedOffset] = field(default_factory=dict)
    _affected: dict[TopicPartition, tuple[AffectedGroup, ...]] = field(default_factory=dict)
    _gone: dict[str, TimestampMs] = field(default_factory=dict)
    _absences: dict[TopicPartition, int] = field(default_factory=dict)
    _problems: frozenset[str] = frozenset()

    @property
    def is_waiting(self) -> bool:
        """Whether an incident is over, but the log has not shown its end yet."""
        return bool(self._gone)

    def look(self, incidents: Sequence[IncidentEvent], now_ms: TimestampMs) -> Iterator[Finding]:
        """Reads open incidents again. An end that the log should show is returned only if the log does not show it."""
        found = list(self._findings(incidents, now_ms))
        over = [one.incident.incident_id for one in found if is_unexplained(one.resolution)]
        self._gone = unexplained_since(self._gone, over, now_ms)
        for one in found:
            since_ms = self._gone.get(one.incident.incident_id)
            if since_ms is None or is_end_missed(since_ms, now_ms):
                yield one

    def _findings(self, incidents: Sequence[IncidentEvent], now_ms: TimestampMs) -> Iterator[Finding]:
        owners = self._owners(incidents)
        spans = {one.incident_id: where(one) for one in incidents if one.topic is not None}
        readings = self.admin.read_partitions(set(spans.values())) if spans else {}
        self._absences = absences_in_a_row(self._absences, readings)
        checked = [(one, self._end(one, owners, readings, now_ms)) for one in incidents]
        still_open = {spans[one.incident_id] for one, end in checked if end is None and one.incident_id in spans}
        around = self.around({partition: readings[partition] for partition in still_open}, now_ms, incidents)
        self._unmoved = {partition: self._unmoved[partition] for partition in still_open & self._unmoved.keys()}
        self._affected = {partition: self._affected[partition] for partition in still_open & self._affected.keys()}
        for incident, end in checked:
            partition = spans.get(incident.incident_id)
            if end is not None:
                yield Finding(incident, incident, end)
            elif partition is not None:
                now = with_blocked_reads(incident, readings[partition])
                now = around[partition].added_to(now) if partition in around else now
                yield Finding(incident, with_owner(now, _owner(incident, owners)))

    def _end(
        self,
        incident: IncidentEvent,
        owners: Mapping[str, TransactionDescription],
        readings: Mapping[TopicPartition, PartitionReading],
        now_ms: TimestampMs,
    ) -> Resolution | None:
        owner = _owner(incident, owners)
        if incident.topic is None:
            return transaction_end(incident, owner, now_ms)
        partition = where(incident)
        return span_end(incident, owner, readings[partition], self._absences.get(partition, 0), now_ms)

    def around(
        self,
        readings: Mapping[TopicPartition, PartitionReading],
        now_ms: TimestampMs,
        known: Sequence[IncidentEvent] = (),
    ) -> dict[TopicPartition, Surroundings]:
        """How long each partition's last stable offset has not moved, and the affected groups."""
        found: dict[TopicPartition, Surroundings] = {}
        readable = {
            at: (one.last_stable_offset, one.high_watermark)
            for at, one in readings.items()
            if one.problem is None and one.last_stable_offset is not None and one.high_watermark is not None
        }
        if not readable:
            return found
        answer = self.groups.committed_offsets(readable)
        self._report_once(frozenset(answer.problems))
        before = {**_recalled(known), **self._unmoved}
        affected_before = {where(one): one.consumer_groups for one in known if one.topic is not None} | self._affected
        for partition, (stable, end) in readable.items():
            seen = look_again(
                before.get(partition),
                affected_before.get(partition, ()),
                stable,
                end,
                answer.offsets.get(partition, ()),
                now_ms,
                is_complete=not answer.problems,
            )
            self._unmoved[partition] = seen.offset
            found[partition] = Surroundings(elapsed(seen.offset.since_ms, now_ms), seen.affected)
            if seen.affected is not None:
                self._affected[partition] = seen.affected
        return found

    def _report_once(self, problems: frozenset[str]) -> None:
        for problem in sorted(problems - self._problems):
            self.report(f"the list of affected groups is incomplete: {problem}")
        self._problems = problems

    def _owners(self, incidents: Iterable[IncidentEvent]) -> dict[str, TransactionDescription]:
        names = sorted({name for incident in incidents if (name := incident.transactional_id) is not None})
        return self.admin.describe_transactions(names) if names else {}


def where(incident: IncidentEvent) -> TopicPartition:
    """The partition of an incident."""
    assert incident.topic is not None
    assert incident.partition is not None
    return TopicPartition(incident.topic, incident.partition)


def _owner(incident: IncidentEvent, owners: Mapping[str, TransactionDescription]) -> TransactionDescription | None:
    return owners.get(incident.transactional_id or "")


def _recalled(known: Iterable[IncidentEvent]) -> dict[TopicPartition, UnmovedOffset]:
    """Since when each last stable offset has not moved, by events that were published before a restart."""
    return {
        where(event): UnmovedOffset(event.last_stable_offset, event.time_ms - event.lso_standing_ms)
        for event in known
        if event.topic is not None and event.last_stable_offset is not None and event.lso_standing_ms is not None
    }
