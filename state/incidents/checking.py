"""Checks open incidents again: an end that was missed, the state of the partition, and the affected consumer groups.

Open incidents are read again from time to time, because an end may be missed before a restart, or in a gap. ending.py
and affected_groups.py of state/evidence decide. A missing answer changes nothing that is known. Its reason is reported
once until it changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from txnwatch.state.evidence.affected_groups import UnmovedOffset, look_again
from txnwatch.state.evidence.ending import (
    LOG_SHOWS_MS,
    absences_in_a_row,
    is_end_missed,
    is_unexplained,
    needs_update,
    no_longer_open,
    pause_ms,
    span_end,
    transaction_end,
    unexplained_since,
    with_blocked_reads,
    with_owner,
)
from txnwatch.state.incidents.book import Book
from txnwatch.state.incidents.doubts import Doubts
from txnwatch.state.incidents.life import Happening, NextStep
from txnwatch.state.incidents.wanted import (
    Change,
    DescribeTransactions,
    Plan,
    ReadGroups,
    ReadPartitions,
    ReadWaitingGroups,
    Say,
    ask,
)
from txnwatch.state.model.incident import AffectedGroup, IncidentEvent, Resolution, WaitingGroup, updated
from txnwatch.state.model.ports import PartitionReading, SpanStart
from txnwatch.state.model.transaction import TransactionDescription
from txnwatch.state.model.values import AT_ONCE, FIRST_OFFSET, DurationMs, TimestampMs, TopicPartition, elapsed
from txnwatch.state.text import Said


class Checked(NamedTuple):
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

    _unmoved: dict[TopicPartition, UnmovedOffset] = field(default_factory=dict)
    _affected: dict[TopicPartition, tuple[AffectedGroup, ...]] = field(default_factory=dict)
    _gone: dict[str, TimestampMs] = field(default_factory=dict)
    _absences: dict[TopicPartition, int] = field(default_factory=dict)
    _said: Said[str] = field(default_factory=Said)

    @property
    def is_waiting(self) -> bool:
        """Whether an incident is over, but the log has not shown its end yet."""
        return bool(self._gone)

    def look(self, incidents: Sequence[IncidentEvent], now_ms: TimestampMs) -> Plan[list[Checked]]:
        """Reads open incidents again. An end that the log should show is returned only if the log does not show it."""
        found = yield from self._checked(incidents, now_ms)
        over = [one.incident.incident_id for one in found if is_unexplained(one.resolution)]
        self._gone = unexplained_since(self._gone, over, now_ms)
        since = [(one, self._gone.get(one.incident.incident_id)) for one in found]
        return [one for one, since_ms in since if since_ms is None or is_end_missed(since_ms, now_ms)]

    def _checked(self, incidents: Sequence[IncidentEvent], now_ms: TimestampMs) -> Plan[list[Checked]]:
        names = sorted({name for incident in incidents if (name := incident.transactional_id) is not None})
        owners = (yield from ask(DescribeTransactions(names))) if names else {}
        spans = {one.incident_id: where(one) for one in incidents if one.topic is not None}
        readings = (yield from ask(ReadPartitions(set(spans.values())))) if spans else {}
        self._absences = absences_in_a_row(self._absences, readings)
        checked = [(one, self._end(one, owners, readings, now_ms)) for one in incidents]
        still_open = {spans[one.incident_id] for one, end in checked if end is None and one.incident_id in spans}
        around = yield from self.around(
            {partition: readings[partition] for partition in still_open},
            now_ms,
            incidents,
            [_span_of(one) for one, end in checked if end is None and one.incident_id in spans],
        )
        self._unmoved = {partition: self._unmoved[partition] for partition in still_open & self._unmoved.keys()}
        self._affected = {partition: self._affected[partition] for partition in still_open & self._affected.keys()}
        found = []
        for incident, end in checked:
            partition = spans.get(incident.incident_id)
            if end is not None:
                found.append(Checked(incident, incident, end))
            elif partition is not None:
                now = with_blocked_reads(incident, readings[partition])
                now = around[partition].added_to(now) if partition in around else now
                found.append(Checked(incident, with_owner(now, _owner(incident, owners))))
        return found

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
    ) -> Plan[dict[TopicPartition, Surroundings]]:
        """How long each last stable offset has not moved, the affected groups, and the groups that wait for `spans`."""
        found: dict[TopicPartition, Surroundings] = {}
        readable = {
            at: (one.last_stable_offset, one.high_watermark)
            for at, one in readings.items()
            if one.problem is None and one.last_stable_offset is not None and one.high_watermark is not None
        }
        if not readable:
            return found
        answer = yield from ask(ReadGroups(readable))
        waiting = yield from ask(ReadWaitingGroups([span for span in spans if span.partition in readable]))
        yield from self._report_once(frozenset((*answer.problems, *waiting.problems)))
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

    def _report_once(self, problems: frozenset[str]) -> Plan[None]:
        new, _ = self._said.update(problems)
        for problem in sorted(new):
            yield Say(f"the list of affected groups is incomplete: {problem}")


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


_DOUBLE = "another open incident is about the same transaction"


@dataclass(slots=True)
class OpenChecks:
    """Checks open incidents from time to time; `due_ms` is the time of the next check."""

    book: Book
    doubts: Doubts
    follow_up: FollowUp
    due_ms: TimestampMs = AT_ONCE

    def not_after(self, time_ms: TimestampMs) -> None:
        """Moves the next check to this time, if it is later."""
        self.due_ms = min(self.due_ms, time_ms)

    def check(self, now_ms: TimestampMs) -> Plan[None]:
        """Reads open incidents again if the check is due, and changes or ends them."""
        if now_ms < self.due_ms:
            return
        book, store = self.book, self.book.store
        self.due_ms = now_ms + pause_ms((known.detected_at_ms for known in store.open_incidents), now_ms)
        for incident, now, resolution in (yield from self.follow_up.look(store.left_to_us(now_ms), now_ms)):
            if resolution is not None:
                yield from self._end(incident, Happening.OVER, resolution, now_ms)
            elif (
                needs_update(incident, update := updated(now, now_ms))
                and book.step(incident, Happening.CHANGED) is NextStep.UPDATE
            ):
                yield Change(book.as_found(update), may_wait=True)
        left = store.left_to_us(now_ms)
        for incident in [one for one in left if store.is_double(one)]:
            yield from self._end(incident, Happening.DOUBLED, no_longer_open(now_ms, _DOUBLE), now_ms)
        for incident, resolution in (yield from self.doubts.contradicted(left, now_ms)):
            yield from self._end(incident, Happening.CONTRADICTED, resolution, now_ms)
        if self.follow_up.is_waiting:
            self.due_ms = now_ms + LOG_SHOWS_MS

    def _end(
        self, incident: IncidentEvent, happens: Happening, resolution: Resolution, now_ms: TimestampMs
    ) -> Plan[None]:
        """Ends an incident after a check, if it is still open, and drops the findings about it."""
        book, key = self.book, incident.span
        known = book.store.known[incident.incident_id]
        if book.step(known, happens) is not NextStep.END:
            return
        its_own = book.store.open_span(*key) if key is not None else None
        is_found = book.is_found(incident)
        yield Change(book.end_of(known, resolution, now_ms))
        if key is not None and is_found and its_own is not None and its_own.incident_id == incident.incident_id:
            book.findings.over(key)
