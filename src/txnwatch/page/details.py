"""The answers about one incident, one partition and one transactional id. Pure: no I/O, no clock.

What is not known is null, never an invented value: after a restart between the two looks of a proof, the first one has
its barrier and no time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from txnwatch.page.audited import causes
from txnwatch.page.incident_rows import PLACES, held_places, incident_row, recent, told
from txnwatch.page.knowledge import HeldBack, Knowledge, Spans, transactions_of
from txnwatch.page.lanes import to_find, worst_lanes
from txnwatch.page.words import about_client, holder, id_for_address, name, number, owner_of_group, places, worst_first
from txnwatch.state.model.findings import OpenTransaction
from txnwatch.state.model.incident import AffectedGroup, GroupState, IncidentEvent, is_incident_id
from txnwatch.state.model.values import BarrierNumber, Offset, ProducerId, TimestampMs, TopicPartition
from txnwatch.state.model.verdicts import Verdict
from txnwatch.state.telling.changes import moment
from txnwatch.state.telling.commands import explain_id, read_events
from txnwatch.state.telling.ends import end_of_listed, whether_text
from txnwatch.state.telling.renderings import sentences
from txnwatch.state.telling.statements import StatementKind

LISTED: Final = 300
ENDED: Final = 200
_MOST: Final = 512
_LONGEST: Final = 1_000
_SAID: Final = (StatementKind.HOLDS, StatementKind.HURT, StatementKind.OUTCOME, StatementKind.ENDS)


def incident(knowledge: Knowledge, incident_id: str) -> dict[str, Any] | None:
    """One incident that is open or ended less than a day ago; None if it is not known."""
    event = next((event for event in knowledge.seen.incidents or () if event.incident_id == incident_id), None)
    if event is None:
        return None
    life, now = knowledge.store.lives.get(incident_id), incident_row(knowledge, event)
    return {
        **now,
        "status": event.status,
        "runbook": event.verdict,
        **sentences(told(knowledge, event, _LONGEST), *_SAID),
        "life": [moment._asdict() for moment in life.moments] if life is not None else [],
        "life_is_whole": life is not None and life.is_whole,
        "proof": _proof(event),
        "waits": _waits(knowledge, event, now),
        "next_holder": _next_holder(knowledge, event),
        "facts": _facts(event),
        "ended_ms": event.time_ms if event.resolution is not None else None,
        "causes": causes(knowledge, event),
    }


def ask_for_id(knowledge: Knowledge, transactional_id: str) -> str | None:
    """The command that asks the brokers about a transactional id; None if it is not known how they are reached."""
    origin = knowledge.store.commands
    fits = origin is not None and 0 < len(transactional_id) <= _LONGEST
    return explain_id(origin, transactional_id) if origin is not None and fits else None


def forgotten(knowledge: Knowledge, incident_id: str) -> str | None:
    """The command that reads the events of an incident that is not known here; None if it is not the id of one."""
    origin = knowledge.store.commands
    return read_events(origin, incident_id) if origin is not None and is_incident_id(incident_id) else None


def _proof(event: IncidentEvent) -> dict[str, Any] | None:
    """The two looks and the fresh read of a hang; None for a verdict that needs no two looks."""
    seen = event.evidence
    if event.topic is None or seen.second_barrier is None:
        return None
    place, start = places(event)[0], number(event.txn_start_offset or 0)
    who = f"producer {event.producer_id}, epoch {event.producer_epoch}"
    first = (
        f"{place} was read to its listed end. {who}, has data open from {start}.",
        "The coordinators' log was read to its listed end after it. No live transaction holds the data.",
    )
    second = (
        f"{place} was read to a later end. No marker came, and the same data is open.",
        "The coordinators' log was read again.",
    )
    return {
        "looks": [
            _look(
                seen.first_barrier,
                seen.first_data_listed_ms,
                seen.first_coordinator_listed_ms,
                first,
                "No owner. One look proves nothing.",
            ),
            _look(
                seen.second_barrier,
                seen.data_listed_ms,
                seen.coordinator_listed_ms,
                second,
                "Still open, still no owner.",
            ),
        ],
        "fresh_read": _fresh_read(event, start),
        "opened_ms": event.detected_at_ms,
        "start_offset": event.txn_start_offset,
        "place": place,
        "producer_id": event.producer_id,
    }


def _look(
    barrier: BarrierNumber | None,
    data_listed_ms: TimestampMs | None,
    log_listed_ms: TimestampMs | None,
    text: Sequence[str],
    gives: str,
) -> dict[str, Any]:
    return {
        "barrier": barrier,
        "data_listed_ms": data_listed_ms,
        "log_listed_ms": log_listed_ms,
        "text": list(text),
        "gives": gives,
    }


def _fresh_read(event: IncidentEvent, start: str) -> dict[str, Any]:
    seen = event.evidence
    asked = (
        f"The coordinator, broker {event.coordinator_id}, was asked" if event.coordinator_id is not None else "Asked"
    )
    holds = ", ".join(map(name, seen.coordinator_partitions[:3])) or "no partition"
    ends = f"The end was {number(seen.end_before or 0)} before this read, {number(seen.end_after or 0)} after it"
    shows = f"The leader, broker {seen.leader} in epoch {seen.leader_epoch}, shows it open from {start}"
    return {
        "confirmed_ms": seen.confirmed_ms,
        "leader": seen.leader,
        "leader_epoch": seen.leader_epoch,
        "end_before": seen.end_before,
        "end_after": seen.end_after,
        "text": [
            f"{shows}. {ends}.",
            f"{asked}: {holder(event)} is {event.transaction_state or 'not known'} and holds {holds}.",
        ],
        "gives": "Confirmed." if seen.complete else "Not complete.",
    }


def _waits(knowledge: Knowledge, event: IncidentEvent, row: Mapping[str, Any]) -> dict[str, Any]:
    """What stands behind the transaction: partitions, hidden records as in its row, groups and the log cleaner."""
    return {
        "holder": holder(event),
        "producer_id": event.producer_id,
        "places": held_places(event, knowledge.spans)[:PLACES],
        "last_stable": event.last_stable_offset,
        "hidden": row["hidden"],
        "hidden_is_least": row["hidden_is_least"],
        "hidden_at_ms": row["hidden_at_ms"],
        "groups": [
            {**_group(knowledge.spans, event, group), "owner": owner_of_group(knowledge.store.origin, group.group_id)}
            for group in event.consumer_groups[:32]
        ],
        "more_groups": max(0, len(event.consumer_groups) - 32),
        "waiting": [
            {"name": name(group.group_id), "partitions": [name(at) for at in group.partitions[:4]]}
            for group in event.waiting_groups[:32]
        ],
        "more_waiting": max(0, len(event.waiting_groups) - 32),
        "cleaner": event.cleanup_policy is not None and "compact" in event.cleanup_policy,
    }


def _lag(stable: Offset | None, committed: Offset | None) -> int | None:
    """How far a group is behind what it can read; None if it has committed nothing."""
    return None if committed is None else max(0, (committed if stable is None else stable) - committed)


def _group(spans: Spans, event: IncidentEvent, group: AffectedGroup) -> dict[str, Any]:
    """How far a group is behind: up to the end of now if it stands; else as its incident had it, with that time."""
    at = TopicPartition(event.topic, event.partition or 0) if event.topic is not None else None
    committed = group.committed_offset
    is_live = at is not None and event.is_open and group.state is GroupState.STOPPED and committed is not None
    end = spans.end(at) if is_live and at is not None else None
    return {
        "name": name(group.group_id),
        "state": group.state,
        "behind": max(0, end - committed) if end is not None and committed is not None else group.hidden_lag,
        "behind_at_ms": event.time_ms if end is None else None,
    }


def _next_holder(knowledge: Knowledge, event: IncidentEvent) -> dict[str, Any] | None:
    """Who holds the partition next if this transaction is ended; None if the lists do not show anyone."""
    if event.topic is None or event.partition is None or event.resolution is not None:
        return None
    at = TopicPartition(event.topic, event.partition)
    held = knowledge.spans.by_partition.get(at, [])
    after = [span for span in held if span.start > (event.txn_start_offset or 0)]
    return _holding(knowledge, at, after[0]) if after else None


def _holding(knowledge: Knowledge, at: TopicPartition, held: HeldBack) -> dict[str, Any]:
    """An open transaction on a partition; `phase` is the verdict of its incident, None if there is none."""
    verdict = _verdict_on(knowledge, at, held)
    ends = whether_text(end_of_listed(held.transaction, verdict, knowledge.now_ms))
    return {"start": held.start, **row(held.transaction), "phase": verdict, "ends": ends}


def row(transaction: OpenTransaction) -> dict[str, Any]:
    """An open transaction as a row."""
    long = transaction.transactional_id
    return {
        "producer_id": transaction.producer_id,
        "name": name(long) if long is not None else f"producer {transaction.producer_id}",
        "transactional_id": id_for_address(long),
        "state": transaction.state,
        "since_ms": transaction.since_ms,
        "prepared_ms": transaction.prepared_ms,
        "timeout_ms": transaction.timeout_ms,
        "partitions": [str(span.partition) for span in transaction.spans[:16]],
        "more_partitions": max(0, len(transaction.spans) - 16),
    }


def _facts(event: IncidentEvent) -> list[list[str | int | None]]:
    """Names and values; a number is a time."""
    facts: Sequence[tuple[str, str | int | None]] = (
        ("reason", event.reason),
        ("expected outcome", str(event.expected_outcome)),
        ("open since", event.open_since_ms),
        ("last write, by the client's clock", event.last_write_ms),
        ("timeout", f"{event.transaction_timeout_ms} ms" if event.transaction_timeout_ms is not None else None),
        ("state at the coordinator", event.transaction_state),
        ("coordinator", f"broker {event.coordinator_id}" if event.coordinator_id is not None else None),
        ("producer", f"{event.producer_id}, epoch {event.producer_epoch}"),
        ("start offset", number(event.txn_start_offset) if event.txn_start_offset is not None else None),
        ("last stable offset", number(event.last_stable_offset) if event.last_stable_offset is not None else None),
        ("record in the coordinators' log", event.evidence.coordinator_log),
        ("transactional id", event.transactional_id and name(event.transactional_id, _LONGEST)),
    )
    return [[label, value] for label, value in facts if value is not None]


def partition(knowledge: Knowledge, at: TopicPartition) -> dict[str, Any]:
    """One partition: what is open there, and who reads it."""
    spans = knowledge.spans
    held, lowest = spans.by_partition.get(at, []), spans.last_stable(at)
    incidents = [event for event in knowledge.open_incidents if at in spans.held_by(event) or _is_at(event, at)]
    is_listed, is_watched, topics = spans.holder(at) is not None, knowledge.is_watched(at), knowledge.seen.topics
    must_look = is_watched is not True or (lowest is not None and not is_listed)
    readings = (event.evidence for event in incidents if _is_at(event, at))
    confirmed = next((read for read in readings if read.leader is not None and read.confirmed_ms is not None), None)
    return {
        "topic": at.topic,
        "partition": at.partition,
        "is_watched": is_watched,
        "partitions_watched": topics.get(at.topic, 0) if topics is not None else None,
        "watched": _watched(spans, at),
        "leader": confirmed.leader if confirmed is not None else None,
        "leader_ms": confirmed.confirmed_ms if confirmed is not None else None,
        "is_unproven": knowledge.seen.reach is None or knowledge.seen.reach.lacks(at) is not False,
        "last_stable": lowest,
        "end": spans.end(at),
        "hidden": spans.hidden(at),
        "holder_is_listed": is_listed,
        "look": to_find(knowledge.store.commands, at) if must_look else None,
        "holders": [_holding(knowledge, at, span) for span in held[:LISTED]],
        "more": max(0, len(held) - LISTED),
        "more_is_least": knowledge.has_unlisted,
        "incidents": [incident_row(knowledge, event) for event in incidents],
        "groups": [
            {
                **_group(spans, event, group),
                "committed": group.committed_offset,
                "lag": _lag(event.last_stable_offset, group.committed_offset),
            }
            for event in incidents
            for group in event.consumer_groups[:32]
        ],
    }


def _watched(spans: Spans, at: TopicPartition) -> str:
    """How a partition is watched, as far as its offsets show it."""
    if at in spans.scanned:
        return "scanned"
    return "by census; the offsets are those of the last one" if at in spans.listed else "by census, or not at all"


def _verdict_on(knowledge: Knowledge, at: TopicPartition, held: HeldBack) -> Verdict | None:
    """The verdict of the incident about this data; None if there is none."""
    events = (event for event in knowledge.open_incidents if event.producer_id == held.transaction.producer_id)
    return next((event.verdict for event in events if event.topic is None or _is_at(event, at)), None)


def _is_at(event: IncidentEvent, at: TopicPartition) -> bool:
    return event.topic == at.topic and event.partition == at.partition


def producer(knowledge: Knowledge, producer_id: ProducerId) -> dict[str, Any] | None:
    """What is open under a producer id, and its incidents; None if nothing is known of it."""
    return _client(
        knowledge,
        [transaction for transaction in transactions_of(knowledge.seen) if transaction.producer_id == producer_id],
        [event for event in knowledge.seen.incidents or () if event.producer_id == producer_id],
    )


def transactional_id(knowledge: Knowledge, wanted: str) -> dict[str, Any] | None:
    """What is open under a transactional id, and its incidents; None if nothing is known of it."""
    return _client(
        knowledge,
        [transaction for transaction in transactions_of(knowledge.seen) if transaction.transactional_id == wanted],
        [event for event in knowledge.seen.incidents or () if event.transactional_id == wanted],
    )


def _client(
    knowledge: Knowledge, transactions: list[OpenTransaction], incidents: list[IncidentEvent]
) -> dict[str, Any] | None:
    if not transactions and not incidents:
        return None
    both: list[OpenTransaction | IncidentEvent] = [*transactions, *incidents]
    named = next((entry.transactional_id for entry in both if entry.transactional_id is not None), None)
    return {
        "name": name(named, _LONGEST) if named is not None else None,
        "length": len(named) if named is not None else None,
        "producer_ids": sorted({entry.producer_id for entry in both}),
        **about_client(knowledge.store.origin, transactions, worst_first(incidents), knowledge.now_ms),
        "row": next((incident_row(knowledge, event) for event in worst_first(incidents) if event.is_open), None),
        "open": [{**row(transaction), "spans": _spans(transaction)} for transaction in transactions],
        "incidents": [
            {
                "id": event.incident_id,
                "verdict": event.verdict,
                "is_open": event.is_open,
                "since_ms": event.open_since_ms,
                "at_ms": event.time_ms,
                "places": places(event)[:3],
                "pending": list(event.pending_partitions[:_MOST]),
                "text": moment(event, None if event.is_open else event, name),
            }
            for event in worst_first(incidents)
        ],
    }


def _spans(transaction: OpenTransaction) -> list[dict[str, Any]]:
    return [
        {"topic": at.topic, "partition": at.partition, "start": start, "since_ms": since_ms}
        for at, start, since_ms in transaction.spans[:_MOST]
    ]


def oldest(knowledge: Knowledge, limit: int = LISTED) -> dict[str, Any]:
    """The oldest open transactions, and how many more are open."""
    transactions = sorted(
        transactions_of(knowledge.seen), key=lambda transaction: (transaction.since_ms, transaction.producer_id)
    )
    rows = [row(transaction) for transaction in transactions[:limit]]
    return {"rows": rows, "more": max(len(transactions), knowledge.seen.totals.open) - len(rows)}


def partitions(knowledge: Knowledge) -> dict[str, Any]:
    """The partitions that something holds, worst first."""
    lanes, more = worst_lanes(knowledge, _MOST)
    return {
        "rows": [
            {
                "topic": lane["topic"],
                "partition": lane["partition"],
                "holder": lane["holder"],
                "since_ms": lane["since_ms"],
                "hidden": lane["hidden"],
                "more": lane["more"] + len(lane["behind"]),
                "more_is_least": lane["more_is_least"],
            }
            for lane in lanes.values()
        ],
        "more": more,
    }


def ended(knowledge: Knowledge) -> dict[str, Any]:
    """The incidents that ended within a day; more of them than a picture has."""
    return recent(knowledge, ENDED)


def number_below(text: str, end: int) -> int | None:
    """The number in a text; None if it is none, or not below `end`. Python reads no number of thousands of digits."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(end))
    return int(text) if is_number and int(text) < end else None
