"""Decides, from a fresh read, whether an open incident is over.

Law:
  * Without an answer nothing ends.
  * Brokers learn of changes at different times, and each read asks another one. So one absence of a partition proves
    nothing; several in a row prove that it is deleted.
  * If a span is over, its log should show how it ended. Only if the incident is still open `LOG_SHOWS_MS` later, its
    end was missed.
  * Open incidents are read again once a minute, and earlier after an opening: affected groups show only in a second
    read.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from txnwatch.state.evidence import incident_end
from txnwatch.state.evidence.resolution import is_held, is_refuted, is_same_transaction, span_is_over
from txnwatch.state.model.description import (
    DescribedTransaction,
    NotDescribed,
    TransactionDescription,
    UnknownTransactionalId,
)
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.incident_payload import EndKind, Resolution
from txnwatch.state.model.ports import ABSENCES_OF_A_DELETED_TOPIC, PartitionReading
from txnwatch.state.model.quantities import DurationMs, TimestampMs
from txnwatch.state.model.verdicts import Verdict

LOG_SHOWS_MS: Final = DurationMs(5_000)
LOOK_AGAIN_MS: Final = DurationMs(60_000)
SECOND_LOOK_MS: Final = DurationMs(10_000)


def transaction_end(
    incident: IncidentEvent, owner: TransactionDescription | None, now_ms: TimestampMs
) -> Resolution | None:
    """The end of an incident about a transaction: its coordinator no longer has this transaction in this state.

    What the coordinator has now may be a later transaction, which shows no end.
    """
    if isinstance(owner, UnknownTransactionalId):
        return incident_end.no_longer_open(now_ms, "the coordinator no longer has the id")
    if isinstance(owner, DescribedTransaction) and not is_same_transaction(owner, incident):
        found = incident_end.described_end(incident, owner, now_ms)
        return found or incident_end.no_longer_open(now_ms, f"the coordinator has the id in state {owner.state}")
    return None


def span_end(
    incident: IncidentEvent,
    owner: TransactionDescription | None,
    reading: PartitionReading,
    absences: int,
    now_ms: TimestampMs,
) -> Resolution | None:
    """The end of an incident about a span; `absences` counts the reads in a row that did not find its partition."""
    if absences >= ABSENCES_OF_A_DELETED_TOPIC:
        return incident_end.partition_gone(now_ms)
    over = span_is_over(reading, incident)
    if over is not None:
        return incident_end.no_longer_open(now_ms, over)
    is_hanging = incident.verdict == Verdict.HANGING
    if is_hanging and isinstance(owner, DescribedTransaction) and is_refuted(incident, owner):
        return incident_end.refuted(now_ms, owner)
    return None


def with_owner(incident: IncidentEvent, owner: TransactionDescription | None) -> IncidentEvent:
    """An open incident with what the owner's coordinator returns now; only of a hanging span.

    If the producer's next transaction holds the span, its marker will end it: then no command is suggested.
    """
    if incident.verdict != Verdict.HANGING or owner is None or isinstance(owner, NotDescribed):
        return incident
    state = owner.state if isinstance(owner, DescribedTransaction) else None
    command = None if is_held(incident, owner) else incident.suggested_command
    return replace(incident, transaction_state=state, suggested_command=command)


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


def pause_ms(detected_ms: Iterable[TimestampMs], now_ms: TimestampMs) -> DurationMs:
    """The pause before open incidents are read again; `detected_ms` is when each of them was found."""
    is_young = any(now_ms - at_ms < SECOND_LOOK_MS for at_ms in detected_ms)
    return SECOND_LOOK_MS if is_young else LOOK_AGAIN_MS
