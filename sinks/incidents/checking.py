"""Checks open incidents again: an end that was missed, the state of the partition, and the affected consumer groups.

It reads through TransactionAdmin and ConsumerGroups; ending.py and affected_groups.py of state/evidence decide. A
missing answer changes nothing that is known. Its reason is reported once until it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from txnwatch.sinks.incidents.claims import Claims
from txnwatch.sinks.incidents.incident_store import IncidentStore
from txnwatch.sinks.incidents.own_findings import Findings
from txnwatch.state.evidence.affected_groups import UnmovedOffset, look_again
from txnwatch.state.evidence.ending import (
    LOG_SHOWS_MS,
    absences_in_a_row,
    is_end_missed,
    is_unexplained,
    needs_update,
    pause_ms,
    span_end,
    transaction_end,
    unexplained_since,
    with_blocked_reads,
    with_owner,
)
from txnwatch.state.model.incident import AffectedGroup, IncidentEvent, Resolution, WaitingGroup, updated
from txnwatch.state.model.ports import ConsumerGroups, FormerOwners, PartitionReading, SpanStart, TransactionAdmin
from txnwatch.state.model.transaction import TransactionDescription
from txnwatch.state.model.values import (
    AT_ONCE,
    FIRST_OFFSET,
    NO_ATTEMPT,
    Attempts,
    DurationMs,
    TimestampMs,
    TopicPartition,
    elapsed,
)
from txnwatch.state.model.verdicts import Reason


class Finding(NamedTuple):
    """The result of a check of one open incident: its resolution, or else the incident with the current values."""

    incident: IncidentEvent
    now: IncidentEvent
    resolution: Resolution | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What blocks the readers of a partition, and who waits for it.

    Attributes:
        consumer_groups: None if the affected groups are not known.
        waiting_groups: by span; a span is missing if the groups that wait for it are not known.
    """

    lso_standing_ms: DurationMs
    consumer_groups: tuple[AffectedGroup, ...] | None = None
    waiting_groups: Mapping[SpanStart, tuple[WaitingGroup, ...]] = field(default_factory=dict)

    def added_to(self, incident: IncidentEvent) -> IncidentEvent:
        """The incident with these values; the groups that it has stay if the current ones are not known."""
        groups = incident.consumer_groups if self.consumer_groups is None else self.consumer_groups
        waiting = self.waiting_groups.get(_span_of(incident), incident.waiting_groups)
        return replace(incident, lso_standing_ms=self.lso_standing_ms, consumer_groups=groups, waiting_groups=waiting)


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
        around = self.around(
            {partition: readings[partition] for partition in still_open},
            now_ms,
            incidents,
            [_span_of(one) for one, end in checked if end is None and one.incident_id in spans],
        )
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
        spans: Iterable[SpanStart] = (),
    ) -> dict[TopicPartition, Surroundings]:
        """How long each last stable offset has not moved, the affected groups, and the groups that wait for `spans`."""
        found: dict[TopicPartition, Surroundings] = {}
        readable = {
            at: (one.last_stable_offset, one.high_watermark)
            for at, one in readings.items()
            if one.problem is None and one.last_stable_offset is not None and one.high_watermark is not None
        }
        if not readable:
            return found
        answer = self.groups.committed_offsets(readable)
        waiting = self.groups.waiting(span for span in spans if span.partition in readable)
        self._report_once(frozenset((*answer.problems, *waiting.problems)))
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
            found[partition] = Surroundings(elapsed(seen.offset.since_ms, now_ms), seen.affected, waiting.groups)
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


def _span_of(incident: IncidentEvent) -> SpanStart:
    start = FIRST_OFFSET if incident.txn_start_offset is None else incident.txn_start_offset
    return SpanStart(where(incident), incident.producer_id, start)


def _owner(incident: IncidentEvent, owners: Mapping[str, TransactionDescription]) -> TransactionDescription | None:
    return owners.get(incident.transactional_id or "")


def _recalled(known: Iterable[IncidentEvent]) -> dict[TopicPartition, UnmovedOffset]:
    """Since when each last stable offset has not moved, by events that were published before a restart."""
    return {
        where(event): UnmovedOffset(event.last_stable_offset, event.time_ms - event.lso_standing_ms)
        for event in known
        if event.topic is not None and event.last_stable_offset is not None and event.lso_standing_ms is not None
    }


# Reads open incidents again from time to time: an end may be missed before a restart, or in a gap.


@dataclass(slots=True)
class OpenChecks:
    """Checks open incidents from time to time; `due_ms` is the time of the next check."""

    claims: Claims
    store: IncidentStore
    findings: Findings
    follow_up: FollowUp
    due_ms: TimestampMs = AT_ONCE

    def not_after(self, time_ms: TimestampMs) -> None:
        """Moves the next check to this time, if it is later."""
        self.due_ms = min(self.due_ms, time_ms)

    def check(self, now_ms: TimestampMs) -> Iterable[IncidentEvent]:
        """Reads open incidents again from time to time: an end may be missed before a restart, or in a gap."""
        if now_ms < self.due_ms:
            return
        self.due_ms = now_ms + pause_ms((known.detected_at_ms for known in self.store.open_incidents), now_ms)
        looked_at = self.store.left_to_us(now_ms)
        for incident, now, resolution in self.follow_up.look(looked_at, now_ms):
            if resolution is not None:
                yield self._end(incident, resolution, now_ms)
            elif needs_update(incident, update := updated(now, now_ms)):
                yield self.store.enter(self.claims.as_found(update))
        for incident, resolution in self.claims.refuted(self.store.left_to_us(now_ms), now_ms):
            if self.store.known[incident.incident_id].is_open:
                yield self._end(incident, resolution, now_ms)
        if self.follow_up.is_waiting:
            self.due_ms = now_ms + LOG_SHOWS_MS

    def _end(self, incident: IncidentEvent, resolution: Resolution, now_ms: TimestampMs) -> IncidentEvent:
        """Ends an incident after a check, and drops the findings about it."""
        key = incident.span
        its_own = self.store.open_span(*key) if key is not None else None
        is_found = self.claims.is_found(incident)
        ended = self.claims.end(self.store.known[incident.incident_id], resolution, now_ms)
        if key is not None and is_found and its_own is not None and its_own.incident_id == incident.incident_id:
            self.findings.over(key)
        return ended


# Names the owner of a hang that no coordinator knows: its transactional id has expired, and the log still has it.
#
# A hang is published without waiting for the name; an `updated` event follows if the coordinators' log has it. The log
# is read once for each incident. If it could not be read to its end, it is read again after growing pauses.


@dataclass(slots=True)
class OwnerNames:
    """Finds the names that are missing in open incidents; without `owners` it finds none."""

    claims: Claims
    store: IncidentStore
    owners: FormerOwners | None = None
    _settled: set[str] = field(default_factory=set)
    _attempts: Attempts = NO_ATTEMPT

    def found(self, now_ms: TimestampMs) -> Iterator[IncidentEvent]:
        """The next events of incidents whose owners are known now."""
        nameless = {one.incident_id: one for one in self.store.open_incidents if self._is_nameless(one)}
        self._settled &= nameless.keys()
        left = [one for one in nameless.values() if one.incident_id not in self._settled]
        if self.owners is None or not left or now_ms < self._attempts.due_ms:
            return
        answer = self.owners.read({one.producer_id for one in left})
        self._attempts = NO_ATTEMPT if answer.problem is None else self._attempts.next(now_ms)
        for incident in left:
            if incident.producer_id in answer.names:
                self._settled.add(incident.incident_id)
                name = answer.names[incident.producer_id]
                if name is not None:
                    yield self.store.enter(
                        self.claims.as_found(updated(replace(incident, transactional_id=name), now_ms))
                    )

    def _is_nameless(self, incident: IncidentEvent) -> bool:
        is_without_owner = incident.transactional_id is None and incident.reason == Reason.NO_TRANSACTIONAL_ID
        return is_without_owner and self.claims.is_found(incident)
