"""Decides whether a hanging transaction may be ended, and by which marker, with the table of rules.py.

A marker names a producer id and an epoch, but no transaction. Anything can happen between the last fresh read and the
append, and speed does not protect the next healthy transaction. These three rules do:

* Never against the outcome. This process found the outcome for the data of one moment. It applies to the data that is
  aborted, because nothing was appended since (same start, epoch, last sequence and last timestamp at the leader). The
  partition's log
  is read once more directly before the marker (sinks/incidents/own_findings.py), and must give the same outcome.
* Never under an epoch that may be used again. The coordinator must have handed out a newer epoch, or another producer
  id, or no longer know the id; then no transaction can begin under the marker's epoch. An idle client is not a dead
  client: after a pause of an hour it continues under its epoch. With transaction.version 0 or 1, its next transactions
  use this epoch too. From version 2 on each end raises the epoch, and the same rule detects that.
* The leader compares epochs when it appends. The request has TransactionVersion 0, for which the leader accepts a
  marker if its epoch is not older than the partition's. If a transaction of a newer epoch has joined the open data in
  the meantime, the leader refuses the marker and no data is harmed.

The marker is written only under the leader epoch of the reading: another leader may have another log.

The marker's coordinator epoch is that of the producer's last marker on the partition, 0 if there is none. With a higher
one, the leader would refuse the coordinator's own markers for ever.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from typing import NamedTuple

from txnwatch.state.abort.case import Case, ProvenHang
from txnwatch.state.abort.rules import REFUSALS
from txnwatch.state.model.ids import CoordinatorEpoch, TopicPartition
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.incident_payload import Refusal
from txnwatch.state.model.ports import MarkerSpec


class AbortSpec(NamedTuple):
    """The marker to write."""

    marker: MarkerSpec


class Refused(NamedTuple):
    """No marker is written; `refusal` is the reason, `detail` explains it."""

    refusal: Refusal
    detail: str


def decide_abort(case: Case) -> AbortSpec | Refused:
    """The marker, or the first refusal of the table.

    Without a fresh read the answer is never a marker.
    """
    refused = objection(case)
    if refused is not None:
        return refused
    for rule in REFUSALS:
        detail = rule.check(case) if rule.needs_reading else None
        if detail is not None:
            return Refused(rule.refusal, detail)
    assert case.found is not None
    row = case.found.producer
    assert row is not None
    reading = case.found.reading
    return AbortSpec(
        MarkerSpec(
            partition=case.proven.candidate.partition,
            producer_id=row.producer_id,
            producer_epoch=row.producer_epoch,
            coordinator_epoch=row.coordinator_epoch or CoordinatorEpoch(0),
            commit=case.policy.commit,
            leader_epoch=reading.leader_epoch if reading is not None else None,
        )
    )


def objection(case: Case) -> Refused | None:
    """The first refusal that needs no fresh read, or None."""
    for rule in REFUSALS:
        detail = None if rule.needs_reading else rule.check(case)
        if detail is not None:
            return Refused(rule.refusal, detail)
    return None


def unless_outcome_changed(shown: ProvenHang, again: ProvenHang, decision: AbortSpec | Refused) -> AbortSpec | Refused:
    """The decision on a second read; a refusal if the outcome is no longer the one that the operator has seen."""
    if again.outcome == shown.outcome or isinstance(decision, Refused):
        return decision
    detail = f"the outcome was {shown.outcome}, and can no longer be read"
    return Refused(Refusal.OUTCOME_UNKNOWN, detail)


def partition_of(incident: IncidentEvent) -> TopicPartition:
    """The partition of an incident about a span."""
    assert incident.topic is not None
    assert incident.partition is not None
    return TopicPartition(incident.topic, incident.partition)
