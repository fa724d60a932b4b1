"""Checks open incidents again: an end that was missed, the state of the partition, and the affected consumer groups.

It reads through TransactionAdmin and ConsumerGroups; resolution.py and affected_groups.py of state/evidence decide. A
missing answer changes nothing that is known. Its reason is reported once until it changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from txnwatch.sinks.incidents import event_builder
from txnwatch.state.evidence import incident_end
from txnwatch.state.evidence.affected_groups import UnmovedOffset, affected_groups, observe, with_unanswered
from txnwatch.state.evidence.resolution import is_held, is_refuted, is_same_transaction, span_is_over
from txnwatch.state.model.description import (
    DescribedTransaction,
    NotDescribed,
    TransactionDescription,
    UnknownTransactionalId,
)
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.incident_payload import AffectedGroup, EndKind, Resolution
from txnwatch.state.model.ports import (
    ABSENCES_OF_A_DELETED_TOPIC,
    ConsumerGroups,
    PartitionReading,
    TransactionAdmin,
)
from txnwatch.state.model.quantities import DurationMs, TimestampMs, elapsed
from txnwatch.state.model.verdicts import Verdict

LOG_SHOWS_MS = DurationMs(5_000)


class Finding(NamedTuple):
    """The result of a check of one open incident: its resolution, or else the current values of its fields."""

    incident: IncidentEvent
    resolution: Resolution | None = None
    changes: Mapping[str, Any] = {}

    @property
    def is_missed(self) -> bool:
        """Whether it is over, and nothing shows how it ended."""
        return self.resolution is not None and self.resolution.how is EndKind.NO_LONGER_OPEN


@dataclass(slots=True)
class FollowUp:
    """Checks open incidents. It remembers each partition's last stable offset, and since when it has not moved."""

    admin: TransactionAdmin
    groups: ConsumerGroups
    report: Callable[[str], None]
    _unmoved: dict[TopicPartition, UnmovedOffset] = field(default_factory=dict)
    _affected: dict[TopicPartition, tuple[AffectedGroup, ...]] = field(default_factory=dict)
    _gone: dict[str, TimestampMs] = field(default_factory=dict)
    _absences: Counter[TopicPartition] = field(default_factory=Counter)
    _problems: frozenset[str] = frozenset()

    @property
    def is_waiting(self) -> bool:
        """Whether an incident is over, but the log has not shown its end yet."""
        return bool(self._gone)

    def look(self, incidents: Sequence[IncidentEvent], now_ms: TimestampMs) -> Iterator[Finding]:
        """Reads open incidents again.

        If an incident is over at one read, the log should show how it ended. Only if it is still open here at another
        read, `LOG_SHOWS_MS` later, its end was missed.
        """
        found = list(self._findings(incidents, now_ms))
        over = {one.incident.incident_id for one in found if one.is_missed}
        self._gone = {incident_id: self._gone.get(incident_id, now_ms) for incident_id in over}
        for one in found:
            if not one.is_missed or now_ms - self._gone[one.incident.incident_id] >= LOG_SHOWS_MS:
                yield one

    def _findings(self, incidents: Sequence[IncidentEvent], now_ms: TimestampMs) -> Iterator[Finding]:
        spans = {one.incident_id: where(one) for one in incidents if one.topic is not None}
        owners = self._owners(incidents)
        readings = self.admin.read_partitions(set(spans.values())) if spans else {}
        self._count_absences(readings)
        is_over = {
            one.incident_id: span_is_over(readings[spans[one.incident_id]], one)
            for one in incidents
            if one.incident_id in spans
        }
        still_open = {partition for incident_id, partition in spans.items() if is_over[incident_id] is None}
        around = self.around({partition: readings[partition] for partition in still_open}, now_ms, incidents)
        self._unmoved = {partition: self._unmoved[partition] for partition in still_open & self._unmoved.keys()}
        self._affected = {partition: self._affected[partition] for partition in still_open & self._affected.keys()}
        for incident in incidents:
            owner = owners.get(incident.transactional_id or "")
            if incident.incident_id not in spans:
                yield from _transaction(incident, owner, now_ms)
            elif self._absences[spans[incident.incident_id]] >= ABSENCES_OF_A_DELETED_TOPIC:
                yield Finding(incident, incident_end.partition_gone(now_ms))
            elif (why := is_over[incident.incident_id]) is not None:
                yield Finding(incident, incident_end.no_longer_open(now_ms, why))
            elif isinstance(owner, DescribedTransaction) and _is_refuted(incident, owner):
                yield Finding(incident, incident_end.refuted(now_ms, owner))
            else:
                partition = spans[incident.incident_id]
                changes = event_builder.surroundings(incident, readings[partition]) | around.get(partition, {})
                yield Finding(incident, None, changes | _owner(incident, owner))

    def _count_absences(self, readings: Mapping[TopicPartition, PartitionReading]) -> None:
        """Brokers learn of changes at different times, and each read asks another one: one absence proves nothing."""
        before = self._absences
        absent = (partition for partition, reading in readings.items() if reading.is_absent)
        self._absences = Counter({partition: before[partition] + 1 for partition in absent})

    def around(
        self,
        readings: Mapping[TopicPartition, PartitionReading],
        now_ms: TimestampMs,
        known: Sequence[IncidentEvent] = (),
    ) -> dict[TopicPartition, dict[str, Any]]:
        """How long each partition's last stable offset has not moved, and the affected groups, as event fields."""
        found: dict[TopicPartition, dict[str, Any]] = {}
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
            # An incomplete answer does not clear the groups that it lacks.
            groups, is_complete = answer.offsets.get(partition, ()), not answer.problems
            is_seen = bool(groups) or is_complete
            seen = groups if is_seen else None
            offset = observe(before.get(partition), stable, end, seen, now_ms, is_complete=is_complete)
            self._unmoved[partition] = offset
            found[partition] = {"lso_standing_ms": elapsed(offset.since_ms, now_ms)}
            if is_seen:
                affected = affected_groups(offset, end, groups, now_ms)
                if not is_complete:
                    affected = with_unanswered(affected, affected_before.get(partition, ()), groups)
                self._affected[partition] = found[partition]["consumer_groups"] = affected
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


def _transaction(
    incident: IncidentEvent, owner: TransactionDescription | None, now_ms: TimestampMs
) -> Iterator[Finding]:
    if isinstance(owner, UnknownTransactionalId):
        yield Finding(incident, incident_end.no_longer_open(now_ms, "the coordinator no longer has the id"))
    elif isinstance(owner, DescribedTransaction) and not is_same_transaction(owner, incident):
        has = f"has the id in state {owner.state}"
        yield Finding(incident, incident_end.no_longer_open(now_ms, f"the coordinator {has}"))


def _is_refuted(incident: IncidentEvent, owner: DescribedTransaction) -> bool:
    return incident.verdict == Verdict.HANGING and is_refuted(incident, owner)


def _owner(incident: IncidentEvent, owner: TransactionDescription | None) -> dict[str, Any]:
    """The fields about the owner of a hanging span.

    If the producer's next transaction holds the span, its marker will end it: then no command is suggested.
    """
    if incident.verdict != Verdict.HANGING or owner is None or isinstance(owner, NotDescribed):
        return {}
    state = owner.state if isinstance(owner, DescribedTransaction) else None
    return {"transaction_state": state} | ({"suggested_command": None} if is_held(incident, owner) else {})


def _recalled(known: Iterable[IncidentEvent]) -> dict[TopicPartition, UnmovedOffset]:
    """Since when each last stable offset has not moved, by events that were published before a restart."""
    return {
        where(event): UnmovedOffset(event.last_stable_offset, event.time_ms - event.lso_standing_ms)
        for event in known
        if event.topic is not None and event.last_stable_offset is not None and event.lso_standing_ms is not None
    }
