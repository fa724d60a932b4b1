"""What the page shows at one moment, as the values of its JSON. Pure: no I/O, no clock.

A picture has sections, each a mapping: `status`, `incidents` by id, `lanes` by partition, `order` of both, `others`,
`recent`, `watcher`. So the difference of two pictures is a mapping of changed entries and a list of those that are gone
(`changes`), and the browser makes the next picture of both. Times are epoch milliseconds; an age is never sent, because
the reader counts it.

Every list has a bound, and beside each cut list is how much is missing. If a leader shows a last stable offset, because
it stands or a census has listed it, the holder of the partition is the transaction that begins there, and no other is
named as the holder: if none of the open lists begins there, the holder is not in them. If no such offset is shown,
because nothing is written or no census has listed one yet, it is the lowest start that the lists have.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

from txnwatch.page.store import KnownNow, PageStore, Reach, WatcherRow
from txnwatch.page.truth import CALM, Facts, PageState, PageTruth, judge
from txnwatch.page.words import (
    LONGEST_NAME,
    about_event,
    counted,
    decision,
    groups,
    headline,
    holder,
    name,
    names_of_owners,
    number,
    owner_row,
    owners_of,
    places,
    tag,
    waiting,
    worst_first,
)
from txnwatch.state.detection.open_transactions import OWNER_UNKNOWN, UNOWNED
from txnwatch.state.model.findings import CensusOffsets, OpenTransaction
from txnwatch.state.model.incident import GroupState, IncidentEvent
from txnwatch.state.model.ownership import Subject
from txnwatch.state.model.values import Offset, ProducerId, TimestampMs, TopicPartition
from txnwatch.state.model.verdicts import Severity, Verdict, rank, undetected
from txnwatch.state.telling.commands import Origin, explain_id, explain_partition, look_at
from txnwatch.state.telling.renderings import look_again, sentences, steps_of
from txnwatch.state.telling.statements import StatementKind, Told, how_it_ended, tell
from txnwatch.state.text import printable

LANES: Final = 60
BEHIND: Final = 3
INCIDENTS: Final = 200
RECENT: Final = 20
NAMED: Final = 3
PLACES: Final = 16
_REASON: Final = 300
_AGES_S: Final = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 1 << 20)
_HEALTHY_RANK: Final = len(Verdict)
_PHASE_OF_STATE: Final = {UNOWNED: "unowned", OWNER_UNKNOWN: "open"}

Picture = dict[str, dict[str, Any]]
_SpanKey = tuple[str | None, int | None, ProducerId]


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """Everything that a picture is made of.

    Attributes:
        ends: the end of each scanned partition; empty while it is not known.
        series: the watcher's own figures over time, by name.
    """

    store: PageStore
    seen: KnownNow
    now_ms: TimestampMs
    ends: Mapping[TopicPartition, Offset] = field(default_factory=dict)
    series: Mapping[str, Sequence[float | None]] = field(default_factory=dict)

    @cached_property
    def facts(self) -> Facts:
        """What decides whether the page may be green."""
        seen = self.seen
        verdicts = None if seen.incidents is None else [event.verdict for event in seen.incidents if event.is_open]
        reach = seen.reach
        return Facts(
            now_ms=self.now_ms,
            judged_within_ms=seen.judged_within_ms,
            is_source_read=seen.is_source_read,
            judged_ms=seen.judged_ms,
            access=self.store.access,
            is_ready=seen.is_ready,
            is_log_read=reach.is_log_read if reach is not None else None,
            unproven=reach.unproven if reach is not None else None,
            undecided=reach.undecided_spans if reach is not None else None,
            open_verdicts=verdicts,
            undelivered=seen.undelivered,
        )

    @cached_property
    def truth(self) -> PageTruth:
        """The state of the page."""
        return judge(self.facts)

    @cached_property
    def open_incidents(self) -> Sequence[IncidentEvent]:
        """The open incidents, worst first."""
        return worst_first(event for event in self.seen.incidents or () if event.is_open)

    @cached_property
    def spans(self) -> Spans:
        """The open lists, by partition."""
        return _spans_of(self)


class HeldBack(NamedTuple):
    """One open transaction on one partition."""

    start: Offset
    transaction: OpenTransaction


class Spans(NamedTuple):
    """What the open lists show, and the offsets of their partitions.

    Attributes:
        by_partition: what is open on a partition, the lowest start first.
        by_producer: the partitions on which a producer has open data.
        standing: the last stable offsets that stand, and those that a census has listed.
        scanned: the ends of the scanned partitions.
        listed: what the last census has listed, of the others.
    """

    by_partition: Mapping[TopicPartition, list[HeldBack]]
    by_producer: Mapping[ProducerId, set[TopicPartition]]
    standing: Mapping[TopicPartition, Offset]
    scanned: Mapping[TopicPartition, Offset]
    listed: Mapping[TopicPartition, CensusOffsets]

    def holder(self, at: TopicPartition) -> HeldBack | None:
        """The transaction that holds a partition; None if it is not in the lists."""
        held, stands = self.by_partition.get(at, ()), self.standing.get(at)
        return next((one for one in held if stands is None or one.start == stands), None)

    def last_stable(self, at: TopicPartition) -> Offset | None:
        """The last stable offset that the leader shows, or the lowest start; None if nothing is known."""
        holder = self.holder(at)
        return holder.start if holder is not None else self.standing.get(at)

    def behind(self, at: TopicPartition) -> list[HeldBack]:
        """What is open above the last stable offset. What is below it has ended, and its end is not read yet."""
        stable = self.last_stable(at)
        return [one for one in self.by_partition.get(at, ()) if stable is not None and one.start > stable]

    def end(self, at: TopicPartition) -> Offset | None:
        """The end of a partition; None if it is not known."""
        listed = self.listed.get(at)
        return self.scanned.get(at, listed.end if listed is not None else None)

    def hidden(self, at: TopicPartition) -> int | None:
        """How many records are between the last stable offset and the end; None if one of them is not known."""
        stable, end = self.last_stable(at), self.end(at)
        return max(0, end - stable) if end is not None and stable is not None else None


def _spans_of(known: Knowledge) -> Spans:
    """The open lists of a micro-batch, by partition."""
    seen, found = known.seen, defaultdict[TopicPartition, list[HeldBack]](list)
    by_producer = defaultdict[ProducerId, set[TopicPartition]](set)
    listed = {one.partition: one for bucket in seen.by_census for one in bucket.offsets}
    for transaction in transactions_of(seen):
        for partition, start, _ in transaction.spans:
            if partition not in listed or start >= listed[partition].last_stable:  # else it has ended
                found[partition].append(HeldBack(start, transaction))
                by_producer[transaction.producer_id].add(partition)
    for held in found.values():
        held.sort(key=lambda one: one.start)
    standing = {at: listed[at].last_stable for at in listed.keys() & found.keys()}
    standing |= {blocked.partition: blocked.offset for one in seen.lists for blocked in one.blocked}
    return Spans(found, by_producer, standing, known.ends, listed)


def transactions_of(seen: KnownNow) -> Iterable[OpenTransaction]:
    """All open transactions of the lists."""
    return itertools.chain.from_iterable(one.transactions for one in seen.lists)


def picture_of(known: Knowledge) -> Picture:
    """The whole picture."""
    seen, incidents = known.seen, known.open_incidents
    lanes, more_lanes = worst_lanes(known, LANES)
    by_producer = {one.producer_id: one for one in transactions_of(seen)}
    by_id = {event.incident_id: event for event in incidents}
    shown = incidents[:INCIDENTS]
    return {
        "status": _status(known, incidents),
        "incidents": {event.incident_id: incident_row(known, event) for event in shown},
        "lanes": {
            key: _with_holders_owner(known.store.origin, lane, by_producer, by_id) for key, lane in lanes.items()
        },
        "order": {
            "incidents": [event.incident_id for event in shown],
            "more_incidents": len(incidents) - len(shown),
            "more_by_verdict": dict(Counter(event.verdict for event in incidents[INCIDENTS:])),
            "lanes": list(lanes),
            "more_lanes": more_lanes,
        },
        "others": _others(known, list(lanes.values())),
        "recent": recent(known, RECENT),
        "watcher": {name: list(values) for name, values in known.series.items()},
    }


def _with_holders_owner(
    origin: Origin | None,
    lane: Mapping[str, Any],
    transactions: Mapping[ProducerId, OpenTransaction],
    incidents: Mapping[str, IncidentEvent],
) -> dict[str, Any]:
    """A lane with the name of its holder's owner: that of its incident, which knows more (groups), if there is one."""
    holder = lane["holder"]
    transaction = transactions.get(holder["producer_id"]) if holder is not None else None
    if transaction is None:
        return dict(lane)
    event = incidents.get(holder["incident"] or "")
    if event is not None:
        owner = event.owner
    else:
        topics = frozenset(span.partition.topic for span in transaction.spans)
        owner = owners_of(origin).of(Subject(transaction.transactional_id, lane["topic"], topics)).owner
    return {**lane, "holder": {**holder, "owner": name(owner.name) if owner is not None else None}}


def _status(known: Knowledge, incidents: Sequence[IncidentEvent]) -> dict[str, Any]:
    seen, facts = known.seen, known.facts
    truth = known.truth
    urgent = [event for event in incidents if event.verdict not in CALM]
    reach = seen.reach if seen.reach is not None else Reach()
    lacking = _unproven(reach, facts)
    stopped = {one for event in incidents for one in groups(event, GroupState.STOPPED)}
    at_risk = {one for event in incidents for one in groups(event, GroupState.AT_RISK)} - stopped
    totals = seen.totals
    critical = any(event.severity is Severity.CRITICAL for event in urgent)
    return {
        "state": truth.state,
        "why": truth.why,
        "tone": "critical" if critical else "warning" if truth.state is PageState.INCIDENT else truth.state,
        "headline": headline(
            *(truth, facts, urgent, lacking["unproven_names"], lacking["undecided_names"], seen.problem),
            lambda event: held_places(event, known.spans),
        ),
        "detail": _detail(known, urgent, stopped, at_risk),
        "problem": seen.problem,
        "judged_ms": seen.judged_ms,
        "judged_within_ms": seen.judged_within_ms,
        "barrier": totals.barrier,
        "ready": seen.is_ready,
        "view": known.store.access,
        "partitions": {"scanned": seen.watched.scanned, "census": seen.watched.census, "unproven": facts.unproven},
        **lacking,
        "not_detected": list(undetected(known.store.access)) if known.store.access is not None else None,
        "undelivered": seen.undelivered,
        "stopped_targets": [name(one) for one in seen.stopped],
        "open_incidents": len(urgent),
        "early_warnings": sum(event.severity is Severity.INFO for event in incidents),
        "groups_stopped": len(stopped),
        "groups_at_risk": len(at_risk),
        "open_transactions": totals.open,
        "states": dict(totals.states),
        "oldest_ms": totals.oldest_ms,
        "watchers": [_watcher(one) for one in seen.watchers],
        "worst": urgent[0].incident_id if urgent else None,
        "search_command": _search(known.store.commands),
    }


def _watcher(row: WatcherRow) -> dict[str, Any]:
    """A watcher as a row. Its address is the operator's own; what it says of itself is only text."""
    problem = name(row.problem, _REASON) if row.problem is not None else None
    told = {"instance": row.instance, "version": row.version}
    shown = {key: name(value) if value is not None else None for key, value in told.items()}
    return {**row._asdict(), **shown, "problem": problem}


def _unproven(reach: Reach, facts: Facts) -> dict[str, Any]:
    """What nothing is proven about: the first few partitions, and the first open data with its reasons."""
    return {
        "unproven_names": [str(one) for one in reach.named[:NAMED]],
        "undecided": facts.undecided,
        "undecided_names": [printable(one) for one in reach.undecided[:NAMED]],
        "unread_log_partitions": reach.of_log,
    }


def _search(origin: Origin | None) -> str | None:
    """The command that finds what hangs without a watcher."""
    if origin is None:
        return None
    explain = explain_id(origin, "x").partition(" --transactional-id x")[2]
    return f"txnwatch find-hanging --fail-on-found{explain}"


def _detail(known: Knowledge, urgent: Sequence[IncidentEvent], stopped: set[str], at_risk: set[str]) -> list[str | int]:
    """The line below the headline; numbers are times, as in a headline."""
    seen = known.seen
    total = seen.watched.scanned + seen.watched.census
    parts: list[str | int] = []
    if urgent:
        parts.append(counted(len(urgent), "incident"))
    if stopped or at_risk:
        parts.append(f"{counted(len(stopped), 'group')} stopped, {number(len(at_risk))} at risk")
    if owners := names_of_owners(urgent, NAMED):
        parts.append(f"to call: {owners}")
    if seen.judged_ms is not None:
        parts.append(f"evaluated on {counted(total, 'partition')}")
        parts.append(counted(seen.totals.open, "open transaction"))
    if seen.problem is None:
        away = ((one.url, one.problem) for one in seen.watchers if one.problem is not None)
        parts += [f"{name(url)}: {name(problem, _REASON)}" for url, problem in away]
    ended = [event.time_ms for event in seen.incidents or () if event.resolution is not None]
    if ended and not urgent:
        return [" · ".join(map(str, parts)), " · the last incident ended ", max(ended), " ago"]
    return [" · ".join(map(str, parts))]


def incident_row(known: Knowledge, event: IncidentEvent) -> dict[str, Any]:
    """An incident as a row.

    A command that was read from the events topic is never shown. If the page is unknown, the command only reads. Where
    the open lists show the transaction, its partitions and what it hides now are theirs; else they are those of the
    event.
    """
    spans, held = known.spans, held_places(event, known.spans)
    holding = _holding(event, spans)
    counts = [count for partition in holding if (count := spans.hidden(partition)) is not None]
    hidden = sum(counts) if counts and event.is_open else event.hidden_records
    return {
        "id": event.incident_id,
        "verdict": event.verdict,
        "tag": tag(event),
        "severity": event.severity,
        "places": held[:PLACES],
        "more_places": max(0, len(held) - PLACES),
        "topic": event.topic,
        "partition": event.partition,
        "holder": holder(event),
        "producer_id": event.producer_id,
        "transactional_id": id_for_address(event.transactional_id),
        "since_ms": event.open_since_ms,
        "hidden": hidden,
        "stopped": groups(event, GroupState.STOPPED)[:NAMED],
        "more_stopped": max(0, len(groups(event, GroupState.STOPPED)) - NAMED),
        "at_risk": groups(event, GroupState.AT_RISK)[:NAMED],
        "waiting": waiting(event)[:NAMED],
        "more_waiting": max(0, len(waiting(event)) - NAMED),
        **_to_do(known, event),
        **about_event(known.store.origin, event),
    }


def held_places(event: IncidentEvent, spans: Spans) -> list[str]:
    """The partitions that an incident holds back: its own, or those of its transaction in the open lists."""
    return places(event) or [str(partition) for partition in _holding(event, spans)]


_LONGEST_COMMAND: Final = 1_000


def _to_do(known: Knowledge, event: IncidentEvent) -> dict[str, Any]:
    """What is said about an incident in a row, the steps among it; `look` is the command that only reads."""
    found = told(known, event)
    return {
        **sentences(found, StatementKind.WHY, StatementKind.SAFE),
        "steps": [one._asdict() for one in steps_of(found)],
        "decision": decision(event) if known.truth.state is not PageState.UNKNOWN else None,
        "look": _look(known.store.commands, event),
    }


def told(known: Knowledge, event: IncidentEvent, longest: int = LONGEST_NAME) -> tuple[Told, ...]:
    """What is said about an incident. If the page is unknown, the only step is another look.

    The step is a look too if its command was read from where others may write, or is too long for a page.
    """
    command, look = event.suggested_command, _look(known.store.commands, event)
    if command is not None and (not known.store.is_of_ledger or len(command) > _LONGEST_COMMAND):
        event = replace(event, suggested_command=look if look is not None and len(look) <= _LONGEST_COMMAND else None)
    found = tell(event, lambda foreign: name(foreign, longest))
    return look_again(found, look) if known.truth.state is PageState.UNKNOWN else found


def _look(origin: Origin | None, event: IncidentEvent) -> str | None:
    """The command that only reads; None if the page does not know how the brokers are reached."""
    return look_at(origin, event) if origin is not None else None


def _holding(event: IncidentEvent, spans: Spans) -> list[TopicPartition]:
    """The partitions that the transaction of an incident holds."""
    return [
        partition
        for partition in sorted(spans.by_producer.get(event.producer_id, ()))
        if (held := spans.holder(partition)) is not None
        and held.transaction.producer_id == event.producer_id
        and (event.topic is None or (event.topic, event.partition) == (partition.topic, partition.partition))
    ]


_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._~-")
_LONGEST_IN_ADDRESS: Final = 200


def id_for_address(transactional_id: str | None) -> str | None:
    """The id if it can be a part of a path; None if the address has to have the producer id.

    A browser removes `.` and `..` from a path, and a long id does not fit into the first line of a request.
    """
    if transactional_id is None or len(transactional_id) > _LONGEST_IN_ADDRESS or transactional_id in {"", ".", ".."}:
        return None
    return transactional_id if _PLAIN.issuperset(transactional_id) else None


class _Drawn(NamedTuple):
    """A transaction that is drawn on a partition, and the incident about it."""

    held: HeldBack
    incident: IncidentEvent | None


class _Lane(NamedTuple):
    """A partition that something holds; `more` is how many transactions on it are not drawn."""

    at: TopicPartition
    holder: _Drawn | None
    behind: Sequence[_Drawn]
    more: int

    @property
    def drawn(self) -> Sequence[_Drawn]:
        """All that is drawn on it."""
        return self.behind if self.holder is None else [self.holder, *self.behind]


def _lanes(spans: Spans, incidents: Sequence[IncidentEvent]) -> list[_Lane]:
    """A lane for each partition that something holds."""
    by_span: dict[_SpanKey, IncidentEvent] = {
        (one.topic, one.partition, one.producer_id): one for one in reversed(incidents) if one.topic is not None
    }
    by_producer = {one.producer_id: one for one in reversed(incidents) if one.topic is None}
    found = []
    for at in {*spans.by_partition, *spans.standing}:
        holder, behind = spans.holder(at), spans.behind(at)
        drawn = [_Drawn(one, _incident_of(at, one, by_span, by_producer)) for one in behind[:BEHIND]]
        first = None if holder is None else _Drawn(holder, _incident_of(at, holder, by_span, by_producer))
        found.append(_Lane(at, first, drawn, len(behind) - len(drawn)))
    return found


def worst_lanes(known: Knowledge, most: int) -> tuple[dict[str, dict[str, Any]], int]:
    """The rows of the lanes that are shown, the worst first, then the oldest; and how many more there are."""
    lanes = _lanes(known.spans, known.open_incidents)

    def place(lane: _Lane) -> tuple[int, TimestampMs, TopicPartition]:
        drawn = lane.drawn
        return min(map(_rank, drawn), default=_HEALTHY_RANK), _since_ms(known, drawn), lane.at

    shown = heapq.nsmallest(most, lanes, key=place)
    return {str(lane.at): _lane_row(known, lane) for lane in shown}, len(lanes) - len(shown)


def _rank(drawn: _Drawn) -> int:
    return rank(drawn.incident.verdict) if drawn.incident is not None else _HEALTHY_RANK


def _since_ms(known: Knowledge, drawn: Iterable[_Drawn]) -> TimestampMs:
    first = min((one.held.transaction.since_ms for one in drawn), default=None)
    return first if first is not None else TimestampMs(known.now_ms // 60_000 * 60_000)


def _lane_row(known: Knowledge, lane: _Lane) -> dict[str, Any]:
    """A lane as a row."""
    spans = known.spans
    return {
        "topic": lane.at.topic,
        "partition": lane.at.partition,
        "holder": _bar(lane.holder) if lane.holder is not None else None,
        "look": to_find(known.store.commands, lane.at) if lane.holder is None else None,
        "behind": [_bar(one) for one in lane.behind],
        "more": lane.more,
        "last_stable": spans.last_stable(lane.at),
        "end": spans.end(lane.at),
        "hidden": spans.hidden(lane.at),
        "since_ms": _since_ms(known, lane.drawn),
        "rank": min(map(_rank, lane.drawn), default=_HEALTHY_RANK),
    }


def to_find(origin: Origin | None, at: TopicPartition) -> str | None:
    """The command that finds the holder of a partition that the lists do not have."""
    return explain_partition(origin, at) if origin is not None else None


def _incident_of(
    partition: TopicPartition,
    held: HeldBack,
    by_span: Mapping[_SpanKey, IncidentEvent],
    by_producer: Mapping[ProducerId, IncidentEvent],
) -> IncidentEvent | None:
    producer_id = held.transaction.producer_id
    found = by_span.get((partition.topic, partition.partition, producer_id))
    if found is not None and found.txn_start_offset == held.start:
        return found
    return by_producer.get(producer_id)


def _bar(drawn: _Drawn) -> dict[str, Any]:
    """One transaction on one partition, as a bar."""
    held, incident = drawn
    transaction = held.transaction
    is_prepared = transaction.prepared_ms is not None
    phase = _PHASE_OF_STATE.get(transaction.state, "prepared" if is_prepared else "open")
    if incident is not None:
        phase = str(incident.verdict)
    long = transaction.transactional_id
    return {
        "producer_id": transaction.producer_id,
        "name": name(long) if long is not None else f"producer {transaction.producer_id}",
        "transactional_id": id_for_address(long),
        "phase": phase,
        "rank": _rank(drawn),
        "since_ms": transaction.since_ms,
        "prepared_ms": transaction.prepared_ms,
        "start": held.start,
        "timeout_ms": transaction.timeout_ms,
        "incident": incident.incident_id if incident is not None else None,
        "markers_missing": len(incident.pending_partitions)
        if incident is not None and incident.verdict is Verdict.STUCK_PREPARE
        else None,
    }


def _others(known: Knowledge, lanes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The open transactions that are not drawn: their number, and the ages of those that the lists have."""
    drawn = {bar["producer_id"] for lane in lanes for bar in (lane["holder"], *lane["behind"]) if bar is not None}
    listed = [one for one in transactions_of(known.seen) if one.producer_id not in drawn]
    ages_s = [max(0, known.now_ms - one.since_ms) / 1000 for one in listed]
    bins = [
        [low, high, count]
        for low, high in itertools.pairwise(_AGES_S)
        if (count := sum(low <= age < high for age in ages_s))
    ]
    return {
        "count": max(0, known.seen.totals.open - len(drawn)),
        "listed": len(listed),
        "oldest_ms": min((one.since_ms for one in listed), default=None),
        "ages_s": bins,
    }


def recent(known: Knowledge, limit: int) -> dict[str, Any]:
    """The incidents that ended within a day, the last one first."""
    ended = [event for event in known.seen.incidents or () if event.resolution is not None]
    ended.sort(key=lambda event: -event.time_ms)
    return {"rows": [_recent(event) for event in ended[:limit]], "more": max(0, len(ended) - limit)}


def _recent(event: IncidentEvent) -> dict[str, Any]:
    return {
        "id": event.incident_id,
        "verdict": event.verdict,
        "tag": tag(event),
        "places": places(event)[:NAMED],
        "holder": holder(event),
        "since_ms": event.open_since_ms,
        "ended_ms": event.time_ms,
        "how": how_it_ended(event),
        "hidden": event.hidden_records,
        "owner": owner_row(event.owner),
    }


def changes(before: Picture, after: Picture) -> dict[str, Any]:
    """The difference: `set` has the changed entries of each section, `gone` the removed ones."""
    changed: dict[str, dict[str, Any]] = {}
    gone: dict[str, list[str]] = {}
    for section, entries in after.items():
        known = before[section]
        if new := {key: value for key, value in entries.items() if known.get(key, _ABSENT) != value}:
            changed[section] = new
        if left := [key for key in known if key not in entries]:
            gone[section] = left
    return {"set": changed, "gone": gone}


_ABSENT: Final = object()
