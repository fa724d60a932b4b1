"""How an incident changes and ends: when it gets an update, whether it is over, and how it ended. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from msgspec.structs import replace as with_changes

from txnwatch.state.model.facts import TransactionEnd
from txnwatch.state.model.findings import SpanEnd, SpanEnded, TransactionMoved
from txnwatch.state.model.incident import (
    EndedBy,
    EndKind,
    ExpectedOutcome,
    GroupState,
    IncidentEvent,
    Resolution,
    transaction_incident_id,
)
from txnwatch.state.model.ports import ABSENCES_OF_A_DELETED_TOPIC, PartitionReading
from txnwatch.state.model.transaction import (
    ClosingMarker,
    CoordinatorView,
    DescribedTransaction,
    Marker,
    NotDescribed,
    Span,
    TransactionDescription,
    TransactionState,
    UnknownTransactionalId,
)
from txnwatch.state.model.values import NO_BARRIER, DurationMs, ProducerEpoch, TimestampMs, TopicPartition
from txnwatch.state.model.verdicts import RULE_OF, Family, Verdict
from txnwatch.state.text import cut

# Who wrote a marker, and whether a span is over, from fresh reads. There is no result without evidence.
#
# Only the epochs identify the writer of a marker. A coordinator ends transactions under a raised producer epoch (always
# since transaction.version 2; before that, when it aborts by itself). An administrator's marker must repeat the epoch
# of the partition. So a raised epoch is the coordinator's. The same epoch is the administrator's if no coordinator can
# have written it: no id owns the producer id, or the id has begun no transaction since the span was proven. A later
# transaction of the same epoch (versions 0 and 1) may have absorbed the data: then the writer is unknown. `txnwatch` is
# the result only for a marker that this process has written and verified (state/incidents/abort_protocol.py). A marker
# names no author, so after a restart, and in another instance, it counts as an administrator's.
#
# "No later transaction began" needs no clock of ours: the view with which the span was proven and the description after
# the marker have the same start. Both times are the coordinators'.


def ended_by(
    marker: Marker,
    incident: IncidentEvent,
    owner: TransactionDescription | None,
    proven_with: CoordinatorView | None,
    ours: Marker | None = None,
) -> EndedBy:
    """Who wrote the marker that ended a hanging span.

    Args:
        marker: the marker.
        incident: the incident about the span.
        owner: the transactional id as described after the marker, None for no answer.
        proven_with: the last view of the coordinator with which this process has proven the span, None for none.
        ours: the marker with which this process is proven to have ended the span, None for none.
    """
    if ours is not None and (ours.offset, ours.commit) == (marker.offset, marker.commit):
        return EndedBy.TXNWATCH
    if marker.producer_epoch > incident.producer_epoch:
        return EndedBy.COORDINATOR
    if RULE_OF[incident.verdict].is_past_timeout:
        return EndedBy.UNKNOWN  # a coordinator may own it, and up to transaction.version 1 it ends it with this epoch
    if incident.transactional_id is None:
        return EndedBy.ADMINISTRATOR
    return EndedBy.ADMINISTRATOR if _cannot_have_written(owner, incident, proven_with) else EndedBy.UNKNOWN


def _cannot_have_written(
    owner: TransactionDescription | None, incident: IncidentEvent, proven_with: CoordinatorView | None
) -> bool:
    """Whether no coordinator can have written a marker of the same epoch."""
    match owner:
        case None | NotDescribed():
            return False
        case UnknownTransactionalId():
            return True
    if owner.is_live:
        return False
    if owner.producer_id != incident.producer_id or owner.start_ms is None:
        return True
    return proven_with is not None and not proven_with.is_live and owner.start_ms == proven_with.start_ms


def _span_is_over(reading: PartitionReading, incident: IncidentEvent) -> str | None:
    """Why a span is certainly no longer open, None while it is open or this is not known."""
    if reading.problem is not None:
        return None
    if reading.topic_id != incident.topic_id:
        return "the topic was re-created"
    row = reading.open_transaction(incident.producer_id)
    start = incident.txn_start_offset
    if row is None:
        # A marker above the high watermark ends the span in the leader's memory and can still be lost. A span that
        # begins above it is lost with its marker, or never existed.
        stable = reading.last_stable_offset
        is_stable = stable is not None and (start is None or start < stable)
        end = reading.high_watermark
        is_beyond = start is not None and end is not None and end <= start
        return "the partition's leader no longer has the transaction open" if is_stable or is_beyond else None
    return None if row.txn_start_offset == incident.txn_start_offset else "another transaction is open there now"


def is_held(incident: IncidentEvent, owner: TransactionDescription) -> bool:
    """Whether a live transaction of the producer holds the partition; then its marker will end the span."""
    if not isinstance(owner, DescribedTransaction) or not owner.is_live:
        return False
    if incident.topic is None or incident.partition is None:
        return False
    partition = TopicPartition(incident.topic, incident.partition)
    return owner.producer_id == incident.producer_id and partition in owner.partitions


def is_same_transaction(owner: TransactionDescription, incident: IncidentEvent) -> bool:
    """Whether the coordinator still has the same transaction in the same state."""
    if not isinstance(owner, DescribedTransaction):
        return False
    is_one = owner.producer_id == incident.producer_id and owner.state == incident.transaction_state
    begins_with_decision = RULE_OF[incident.verdict].family is Family.PREPARE
    return is_one and (begins_with_decision or owner.start_ms == incident.open_since_ms)


# How an incident ends: its resolution, by what ended its subject.

_END_OF = {ExpectedOutcome.COMMIT: EndKind.COMMITTED, ExpectedOutcome.ABORT: EndKind.ABORTED}
_ABORTED_BY = {
    EndedBy.CLIENT: "its client aborted it",
    EndedBy.COORDINATOR: "its coordinator aborted it, at its timeout or for a new InitProducerId",
    EndedBy.UNKNOWN: "its client or its coordinator aborted it, which the log does not show",
}
_ONE_OF_SEVERAL = "several markers of its producer follow it, and which one ended it is not known"
_NOT_SEEN = {
    SpanEnd.MARKER: _ONE_OF_SEVERAL,
    SpanEnd.ABSORBED: _ONE_OF_SEVERAL,
    SpanEnd.CENSUS: "the partition's leader no longer has the transaction open",
}
_CLAIMED = "txnwatch announced a marker, but this process cannot prove that this marker closed the transaction"


def span_resolution(
    ended: SpanEnded,
    incident: IncidentEvent,
    owner: TransactionDescription | None,
    now_ms: TimestampMs,
    proven_with: CoordinatorView | None = None,
    ours: Marker | None = None,
) -> Resolution:
    """The resolution of an incident about a span, by what ended it; see `ended_by`.

    The span may be another one of the same producer, if the end of the incident's own span was not seen.
    """
    if is_another(ended.span, incident):
        return no_longer_open(now_ms, f"its producer began other data there at offset {ended.span.start_offset}")
    marker = ended.marker
    match ended.how:
        case SpanEnd.MARKER if marker is not None:
            by = ended_by(marker, incident, owner, proven_with, ours)
            is_claimed = by is EndedBy.ADMINISTRATOR and incident.action is not None and incident.action.is_marker
            return closed_by_marker(marker, by, now_ms, _CLAIMED if is_claimed else None)
        case SpanEnd.ABSORBED if marker is not None:
            return absorbed(marker, now_ms)
        case SpanEnd.PARTITION_GONE:
            return partition_gone(now_ms)
        case SpanEnd.TRUNCATED:
            return _end(EndKind.TRUNCATED, EndedBy.UNKNOWN, now_ms, "the log was truncated below the open data")
        case how:
            return no_longer_open(now_ms, _NOT_SEEN[how])


def with_marker(ended: SpanEnded, closing: ClosingMarker) -> SpanEnded:
    """The end by a marker that was read from the partition later than by the state."""
    is_absorbed = ended.span.absorbed or is_joined(ended.span.epoch, closing)
    return with_changes(ended, how=SpanEnd.ABSORBED if is_absorbed else SpanEnd.MARKER, marker=closing.marker)


def is_joined(epoch: ProducerEpoch, closing: ClosingMarker) -> bool:
    """Whether data of a newer epoch joined data of `epoch` that was open, before the marker that closed both.

    Then the older data belonged to no live transaction (see `Joined`): a later one has absorbed it, whoever wrote the
    marker. A scan decides it so too (`_joined` in detection/span.py). Data of the same epoch proves nothing.
    """
    return closing.data_epoch is not None and closing.data_epoch > epoch


def is_of_earlier_data(span: Span, incident: IncidentEvent) -> bool:
    """Whether a span that has ended began before the incident's data: then it has ended before that data was written.

    The start of a span is an upper bound, and a producer has one open transaction on a partition. Another instance may
    have published the next incident already.
    """
    return incident.txn_start_offset is not None and span.start_offset < incident.txn_start_offset


def is_another(span: Span, incident: IncidentEvent) -> bool:
    """Whether the span certainly began elsewhere than the incident's data; otherwise its start is an upper bound."""
    has_seen_begin = span.began_after != NO_BARRIER
    return has_seen_begin and incident.txn_start_offset not in {None, span.start_offset}


def transaction_resolution(moved: TransactionMoved, now_ms: TimestampMs) -> Resolution:
    """The resolution of an incident about a transaction, by the end of this transaction.

    The latest state of its id may be of a later transaction, so it shows no end.
    """
    before, view = moved.candidate_view, moved.view
    if moved.end is not None:
        return _end(_END_OF[decided_outcome(moved.end.state)], moved.end.by, now_ms, _ending(moved.end, before))
    if view.transactional_id == before.transactional_id and view.state is TransactionState.DEAD:
        return no_longer_open(now_ms, "the coordinator no longer has the id")
    if (view.transactional_id, view.start_ms) == (before.transactional_id, before.start_ms) and view.is_live:
        return _end(EndKind.MOVED_ON, EndedBy.COORDINATOR, now_ms, f"the coordinator has it in state {view.state}")
    return no_longer_open(now_ms, f"the id is {view.state} now, and the log does not show how this transaction ended")


def _ending(end: TransactionEnd, before: CoordinatorView) -> str:
    """Who ended a transaction and when, for people."""
    where = f"{end.state} at {before.log_partition}@{end.log_offset} of the coordinators' log"
    if end.state.outcome == ExpectedOutcome.COMMIT:
        return f"its client committed it: {where}"
    aborted = f"{_ABORTED_BY[end.by]}: {where}"
    if end.open_for_ms is None:
        return aborted
    return f"{aborted}, {end.open_for_ms} ms after its start, with a timeout of {before.timeout_ms} ms"


def _is_being_ended(incident: IncidentEvent, owner: DescribedTransaction) -> bool:
    """Whether the coordinator has decided about a transaction that was Ongoing, and has not completed it."""
    is_one = owner.producer_id == incident.producer_id and owner.start_ms == incident.open_since_ms
    return is_one and owner.state.is_prepare and RULE_OF[incident.verdict].family is Family.ONGOING


def _described_end(incident: IncidentEvent, owner: DescribedTransaction, now_ms: TimestampMs) -> Resolution | None:
    """The resolution by the answer of the coordinator, if it shows how this transaction ended, and not a later one.

    The start names the transaction: one that is aborted while it is empty has a start of its own. The epoch does not:
    old clients keep it, and a decision whose append has failed is followed by the other one.
    """
    outcome = decided_outcome(owner.state)
    if outcome not in _END_OF or not _has_its_start(incident, owner):
        return None
    # An incident about a decision has the epoch of that decision, which does not show who has raised it.
    is_unraised = RULE_OF[incident.verdict].family is Family.ONGOING and owner.producer_epoch == incident.producer_epoch
    by = EndedBy.CLIENT if outcome == ExpectedOutcome.COMMIT or is_unraised else EndedBy.UNKNOWN
    return _end(_END_OF[outcome], by, now_ms, f"the coordinator has it in state {owner.state}")


def _has_its_start(incident: IncidentEvent, owner: DescribedTransaction) -> bool:
    """Whether the producer's transaction at the coordinator is that of the incident, by its start.

    The id of an incident has the start of its transaction. `open_since_ms` is that start, or the time of the decision.
    """
    if owner.producer_id != incident.producer_id:
        return False
    if RULE_OF[incident.verdict].family is Family.ONGOING:
        return owner.start_ms == incident.open_since_ms
    name, verdict = owner.transactional_id, incident.verdict
    named = transaction_incident_id(incident.cluster_id, name, owner.producer_id, owner.start_ms, verdict)
    return incident.incident_id == named


def partition_gone(now_ms: TimestampMs) -> Resolution:
    """The resolution of an incident whose partition no longer exists."""
    return _end(EndKind.PARTITION_GONE, EndedBy.ADMINISTRATOR, now_ms, "the topic was deleted or re-created")


def refuted(now_ms: TimestampMs, owner: DescribedTransaction) -> Resolution:
    """The resolution of an incident that a fresh read contradicts: a live transaction holds the span."""
    detail = f"{cut(owner.transactional_id)} is {owner.state} and holds the partition: its coordinator will end it"
    return _end(EndKind.REFUTED, EndedBy.COORDINATOR, now_ms, detail)


def absorbed(marker: Marker, now_ms: TimestampMs) -> Resolution:
    """The resolution of data that was committed or aborted together with a later transaction."""
    detail = f"{_end_kind(marker)} together with a later transaction of the same producer"
    return _end(EndKind.ABSORBED, EndedBy.NEXT_TRANSACTION, now_ms, detail, marker)


def no_longer_open(now_ms: TimestampMs, detail: str) -> Resolution:
    """The resolution of an incident that is over, but whose end was not seen."""
    return _end(EndKind.NO_LONGER_OPEN, EndedBy.UNKNOWN, now_ms, detail)


def given_up(now_ms: TimestampMs, detail: str) -> Resolution:
    """The resolution of an abort by hand that is over without an end of the transaction, or without knowing of one."""
    return _end(EndKind.GIVEN_UP, EndedBy.UNKNOWN, now_ms, detail)


def _end(
    how: EndKind, by: EndedBy, now_ms: TimestampMs, detail: str | None = None, marker: Marker | None = None
) -> Resolution:
    offset = marker.offset if marker is not None else None
    return Resolution(how=how, by=by, marker_offset=offset, detail=detail, at_ms=now_ms)


def _end_kind(marker: Marker) -> EndKind:
    return EndKind.COMMITTED if marker.commit else EndKind.ABORTED


def closed_by_marker(marker: Marker, by: EndedBy, now_ms: TimestampMs, detail: str | None = None) -> Resolution:
    """The resolution of a span that a marker has closed."""
    return _end(_end_kind(marker), by, now_ms, detail, marker)


def decided_outcome(state: TransactionState | None) -> ExpectedOutcome:
    """The outcome that a coordinator has decided; UNKNOWN if it has decided none."""
    outcome = state.outcome if state is not None else None
    return ExpectedOutcome(outcome) if outcome is not None else ExpectedOutcome.UNKNOWN


# Decides, from a fresh read, whether an open incident is over.
#
# Law:
#   * Without an answer nothing ends.
#   * No age and no comparison of our clock with another one ends or refutes an incident: what the answer says does.
#   * Brokers learn of changes at different times, and each read asks another one. So one absence of a partition proves
#     nothing; several in a row prove that it is deleted.
#   * Open incidents are read again once a minute, and earlier after an opening: affected groups show only in a second
#     read.
#
# Pure: no I/O, no clock.

LOOK_AGAIN_MS: Final = DurationMs(60_000)
SECOND_LOOK_MS: Final = DurationMs(10_000)


def transaction_end(
    incident: IncidentEvent, owner: TransactionDescription | None, now_ms: TimestampMs
) -> Resolution | None:
    """The end of an incident about a transaction: its coordinator no longer has this transaction in this state.

    What the coordinator has now may be a later transaction, which shows no end. Nor is Prepare* an end.
    """
    if isinstance(owner, UnknownTransactionalId):
        return no_longer_open(now_ms, "the coordinator no longer has the id")
    if not isinstance(owner, DescribedTransaction) or _is_being_ended(incident, owner):
        return None
    if not is_same_transaction(owner, incident):
        end = _described_end(incident, owner, now_ms)
        return end or no_longer_open(now_ms, f"the coordinator has the id in state {owner.state}")
    return None


def span_end(
    incident: IncidentEvent, reading: PartitionReading, absences: int, now_ms: TimestampMs
) -> Resolution | None:
    """The end of an incident about a span; `absences` counts the reads in a row that did not find its partition.

    A live transaction that holds the span is no end: its marker is. Whether it is the span's own or the next one of its
    producer would follow only from two clocks, ours and the coordinator's.
    """
    if absences >= ABSENCES_OF_A_DELETED_TOPIC:
        return partition_gone(now_ms)
    over = _span_is_over(reading, incident)
    return no_longer_open(now_ms, over) if over is not None else None


def with_owner(incident: IncidentEvent, owner: TransactionDescription | None) -> IncidentEvent:
    """An open incident with what the owner's coordinator returns now; only of a hanging span.

    If a live transaction of the producer holds the span, its marker will end it: then no command is suggested.
    """
    if incident.verdict != Verdict.HANGING or owner is None or isinstance(owner, NotDescribed):
        return incident
    state = owner.state if isinstance(owner, DescribedTransaction) else None
    command = None if is_held(incident, owner) else incident.suggested_command
    return replace(incident, transaction_state=state, suggested_command=command)


def pause_ms(detected_ms: Iterable[TimestampMs], now_ms: TimestampMs) -> DurationMs:
    """The pause before open incidents are read again; `detected_ms` is when each of them was found."""
    is_young = any(now_ms - at_ms < SECOND_LOOK_MS for at_ms in detected_ms)
    return SECOND_LOOK_MS if is_young else LOOK_AGAIN_MS


# What several reads of an incident show.
#
# Law: if a span is over, its log should show how it ended. Only if the incident is still open `LOG_SHOWS_MS` later, its
# end was missed.

LOG_SHOWS_MS: Final = DurationMs(5_000)


def absences_in_a_row(
    before: Mapping[TopicPartition, int], readings: Mapping[TopicPartition, PartitionReading]
) -> dict[TopicPartition, int]:
    """How often in a row each partition was absent, after another read of all of them."""
    absent = (partition for partition, reading in readings.items() if reading.is_absent)
    return {partition: before.get(partition, 0) + 1 for partition in absent}


def is_unexplained(end: Resolution | None) -> bool:
    """Whether the incident is over, and nothing shows how it ended."""
    return end is not None and end.how is EndKind.NO_LONGER_OPEN


def unexplained_since(
    before: Mapping[str, TimestampMs], unexplained: Iterable[str], now_ms: TimestampMs
) -> dict[str, TimestampMs]:
    """Since when each of these incidents is over without an explanation."""
    return {incident_id: before.get(incident_id, now_ms) for incident_id in unexplained}


def is_end_missed(since_ms: TimestampMs, now_ms: TimestampMs) -> bool:
    """Whether the log would have shown the end by now."""
    return now_ms - since_ms >= LOG_SHOWS_MS


# When an open incident gets an update event: the rule that keeps events few.
#
# An update reports a change after which somebody would act differently: the owner, the expected outcome, the severity,
# ten times as many hidden records, a decision, a group that has stopped or waits for its committed offsets, a command
# that no longer fits. Ages, offsets and small changes cause no event; they are in the next one.

_MAGNITUDE: Final = 10
Rule = Callable[[IncidentEvent, IncidentEvent], bool]


def _more_hidden(before: IncidentEvent, now: IncidentEvent) -> bool:
    if now.hidden_records is None:
        return False
    return now.hidden_records >= _MAGNITUDE * max(1, before.hidden_records or 0)


def _newly_stopped(before: IncidentEvent, now: IncidentEvent) -> bool:
    return bool(_stopped(now) - _stopped(before))


def _stopped(event: IncidentEvent) -> set[str]:
    return {group.group_id for group in event.consumer_groups if group.state == GroupState.STOPPED}


def _newly_waiting(before: IncidentEvent, now: IncidentEvent) -> bool:
    return bool({group.group_id for group in now.waiting_groups} - {group.group_id for group in before.waiting_groups})


RULES: Final[dict[str, Rule]] = {
    "the owner became known": lambda before, now: before.transactional_id is None and now.transactional_id is not None,
    "the expected outcome changed": lambda before, now: before.expected_outcome != now.expected_outcome,
    "the verdict has changed": lambda before, now: (before.verdict, before.severity) != (now.verdict, now.severity),
    "ten times as many records are hidden": _more_hidden,
    "the action changed": lambda before, now: before.action != now.action,
    "a consumer group has stopped": _newly_stopped,
    "a consumer group waits for pending offsets": _newly_waiting,
    "the suggested command changed": lambda before, now: before.suggested_command != now.suggested_command,
}


def needs_update(before: IncidentEvent, now: IncidentEvent) -> bool:
    """Whether the current values need an event, compared with the last event."""
    return any(rule(before, now) for rule in RULES.values())
