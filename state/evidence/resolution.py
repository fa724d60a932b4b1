"""How an incident ends, and who ended it, from fresh reads. Pure; there is no result without evidence.

Only the epochs identify the writer of a marker. A coordinator ends transactions under a raised producer epoch (always
since transaction.version 2; before that, when it aborts by itself). An administrator's marker must repeat the epoch of
the partition. So a raised epoch is the coordinator's. The same epoch is the administrator's if no coordinator can have
written it: no id owns the producer id, or the id's last transaction began before the data was written. A later
transaction of the same epoch (versions 0 and 1) may have absorbed the data: then the writer is unknown. `txnwatch` is
the result only for a marker that this process has written and verified (state/abort/protocol.py). A marker names no
author, so after a restart, and in another instance, it counts as an administrator's.
"""

from __future__ import annotations

from txnwatch.state.model.description import (
    DescribedTransaction,
    NotDescribed,
    TransactionDescription,
    UnknownTransactionalId,
)
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.incident_payload import EndedBy
from txnwatch.state.model.ports import PartitionReading
from txnwatch.state.model.quantities import DurationMs, TimestampMs
from txnwatch.state.model.transaction import Marker
from txnwatch.state.model.verdicts import RULE_OF, Family

EARLY_MS = DurationMs(5_000)  # how much two clocks may differ


def ended_by(
    marker: Marker, incident: IncidentEvent, owner: TransactionDescription | None, ours: Marker | None = None
) -> EndedBy:
    """Who wrote the marker that ended a hanging span.

    Args:
        marker: the marker.
        incident: the incident about the span.
        owner: the transactional id as described after the marker, None for no answer.
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
    return EndedBy.ADMINISTRATOR if _cannot_have_written(owner, incident) else EndedBy.UNKNOWN


def _cannot_have_written(owner: TransactionDescription | None, incident: IncidentEvent) -> bool:
    """Whether no coordinator can have written a marker of the same epoch."""
    match owner:
        case None | NotDescribed():
            return False
        case UnknownTransactionalId():
            return True
    if owner.is_live:
        return False
    has_not_begun_since = owner.start_ms is None or owner.start_ms <= incident.open_since_ms
    return owner.producer_id != incident.producer_id or has_not_begun_since


def span_is_over(reading: PartitionReading, incident: IncidentEvent) -> str | None:
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


def is_refuted(incident: IncidentEvent, owner: TransactionDescription) -> bool:
    """Whether the live transaction that holds the span began before it; then it owns the span, and nothing hangs."""
    if not isinstance(owner, DescribedTransaction) or not is_held(incident, owner):
        return False
    return owner.start_ms is not None and owner.start_ms <= incident.open_since_ms


def is_premature(owner: TransactionDescription, incident: IncidentEvent, now_ms: TimestampMs) -> bool:
    """Whether a transaction reported as overdue certainly is not: its coordinator has it, within its timeout."""
    if not isinstance(owner, DescribedTransaction) or not is_same_transaction(owner, incident):
        return False
    if owner.start_ms is None:
        return False
    return now_ms + EARLY_MS < owner.start_ms + owner.timeout_ms


def is_same_transaction(owner: TransactionDescription, incident: IncidentEvent) -> bool:
    """Whether the coordinator still has the same transaction in the same state."""
    if not isinstance(owner, DescribedTransaction):
        return False
    is_one = owner.producer_id == incident.producer_id and owner.state == incident.transaction_state
    begins_with_decision = RULE_OF[incident.verdict].family is Family.PREPARE
    return is_one and (begins_with_decision or owner.start_ms == incident.open_since_ms)
