"""The lanes: each partition that something holds, with the transactions on it. Pure: no I/O, no clock."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from txnwatch.page.knowledge import HeldBack, Knowledge, Spans
from txnwatch.page.words import id_for_address, name, owners_of
from txnwatch.state.detection.open_transactions import OWNER_UNKNOWN, UNOWNED
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.ownership import WITHOUT_OWNER, OwningTeam, Subject
from txnwatch.state.model.values import ProducerId, TimestampMs, TopicPartition
from txnwatch.state.model.verdicts import RULE_OF, Family, Verdict, rank
from txnwatch.state.telling.commands import Origin, explain_partition

BEHIND: Final = 3
_OF_ONE_TOPIC: Final = 6
_HEALTHY_BEFORE: Final = 6
_HEALTHY_RANK: Final = len(Verdict)
_PHASE_OF_STATE: Final = {UNOWNED: "unowned", OWNER_UNKNOWN: "open"}
_SpanKey = tuple[str | None, int | None, ProducerId]


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
        (event.topic, event.partition, event.producer_id): event
        for event in reversed(incidents)
        if event.topic is not None
    }
    by_producer = {event.producer_id: event for event in reversed(incidents) if event.topic is None}
    lanes = []
    for at in {*spans.by_partition, *spans.standing}:
        holder, behind = spans.holder(at), spans.behind(at)
        drawn = [_Drawn(held, _incident_of(at, held, by_span, by_producer)) for held in behind[:BEHIND]]
        first = None if holder is None else _Drawn(holder, _incident_of(at, holder, by_span, by_producer))
        lanes.append(_Lane(at, first, drawn, len(behind) - len(drawn)))
    return lanes


class LaneFilter(Protocol):
    """Which lanes are meant."""

    def takes_open(self, at: TopicPartition, held: HeldBack, incident: IncidentEvent | None, team: str) -> bool:
        """Whether a transaction on a partition is meant; `team` is the label of its owner."""


def worst_lanes(
    knowledge: Knowledge, most: int, wanted: LaneFilter | None = None
) -> tuple[dict[str, dict[str, Any]], int]:
    """The rows of the lanes that are shown, the worst first, then the oldest; and how many more there are."""
    lanes = _lanes(knowledge.spans, knowledge.open_incidents)
    if wanted is not None:
        lanes = [lane for lane in lanes if _is_meant(knowledge, lane, wanted)]

    def place(lane: _Lane) -> tuple[int, TimestampMs, TopicPartition]:
        drawn = lane.drawn
        return min(map(_rank, drawn), default=_HEALTHY_RANK), _since_ms(knowledge, drawn), lane.at

    first, further = _alternating(sorted((lane for lane in lanes if place(lane)[0] < _HEALTHY_RANK), key=place))
    healthy = heapq.nsmallest(most, (lane for lane in lanes if place(lane)[0] == _HEALTHY_RANK), key=place)
    shown = [*first, *healthy[:_HEALTHY_BEFORE], *further, *healthy[_HEALTHY_BEFORE:]][:most]
    return {str(lane.at): _lane_row(knowledge, lane) for lane in shown}, len(lanes) - len(shown)


def _is_meant(knowledge: Knowledge, lane: _Lane, wanted: LaneFilter) -> bool:
    """Whether one of the transactions on a partition is meant."""
    owners = ((drawn, _owner_of(knowledge, lane.at, drawn)) for drawn in lane.drawn)
    return any(
        wanted.takes_open(lane.at, drawn.held, drawn.incident, owner.team if owner is not None else WITHOUT_OWNER)
        for drawn, owner in owners
    )


def _owner_of(knowledge: Knowledge, at: TopicPartition, drawn: _Drawn) -> OwningTeam | None:
    """The owner of a transaction: that of its incident, which knows more (groups), if there is one."""
    if drawn.incident is not None:
        return drawn.incident.owner
    transaction = drawn.held.transaction
    topics = frozenset(span.partition.topic for span in transaction.spans)
    return owners_of(knowledge.store.origin).of(Subject(transaction.transactional_id, at.topic, topics)).owner


def _alternating(lanes: Iterable[_Lane]) -> tuple[list[_Lane], list[_Lane]]:
    """The first lanes of each topic and verdict, and the others: a storm leaves room for what it is not about."""
    first, further, seen = list[_Lane](), list[_Lane](), Counter[tuple[str, int]]()
    for lane in lanes:
        kind = lane.at.topic, min(map(_rank, lane.drawn))
        seen[kind] += 1
        (first if seen[kind] <= _OF_ONE_TOPIC else further).append(lane)
    return first, further


def _rank(drawn: _Drawn) -> int:
    return rank(drawn.incident.verdict) if drawn.incident is not None else _HEALTHY_RANK


def _since_ms(knowledge: Knowledge, drawn: Iterable[_Drawn]) -> TimestampMs:
    first = min((held.transaction.since_ms for held, _ in drawn), default=None)
    return first if first is not None else TimestampMs(knowledge.now_ms // 60_000 * 60_000)


def _lane_row(knowledge: Knowledge, lane: _Lane) -> dict[str, Any]:
    """A lane as a row."""
    spans = knowledge.spans
    return {
        "topic": lane.at.topic,
        "partition": lane.at.partition,
        "holder": _holder(knowledge, lane.at, lane.holder) if lane.holder is not None else None,
        "look": to_find(knowledge.store.commands, lane.at) if lane.holder is None else None,
        "behind": [_bar(drawn) for drawn in lane.behind],
        "more": lane.more,
        "more_is_least": knowledge.has_unlisted,
        "last_stable": spans.last_stable(lane.at),
        "end": spans.end(lane.at),
        "hidden": spans.hidden(lane.at),
        "since_ms": _since_ms(knowledge, lane.drawn),
        "rank": min(map(_rank, lane.drawn), default=_HEALTHY_RANK),
    }


def _holder(knowledge: Knowledge, at: TopicPartition, drawn: _Drawn) -> dict[str, Any]:
    owner = _owner_of(knowledge, at, drawn)
    return {**_bar(drawn), "owner": name(owner.name) if owner is not None else None}


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
    incident = by_span.get((partition.topic, partition.partition, producer_id))
    if incident is not None and incident.txn_start_offset == held.start:
        return incident
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
        if incident is not None and RULE_OF[incident.verdict].family is Family.PREPARE
        else None,
    }
