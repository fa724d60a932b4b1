"""Whether a hanging transaction may be ended, and by which marker: one pure decision over the table of abort_rules.py.

A marker names a producer id and an epoch and no transaction. So between the last fresh read and the append anything
may happen, and what protects the next healthy transaction is not speed but these three:

* Never against the outcome. This process found it for the data of one moment; it is true of the data that is aborted
  because nothing was appended since (same start, epoch and last sequence at the leader). The partition's log is read
  once more right before the marker (sinks/incidents/own_findings.py), and must lead to the same outcome.
* Never an epoch that may be used again. The coordinator has handed out a newer epoch, or another producer id, or
  knows the id no more; then no transaction can begin under the marker's epoch. Idle is not dead: a client that was
  paused for an hour goes on under the epoch it has, and up to transaction.version 1 so does every next transaction.
  From 2 on each end raises the epoch, and the same rule sees just that.
* The leader compares epochs when it appends. The request carries TransactionVersion 0, for which a marker is taken
  if its epoch is not older than the partition's: if a transaction of a newer epoch has reached the partition in
  between, joining the open data, the marker is refused and nothing is harmed.

The marker is written only under the leader epoch of the reading: another leader may have another log.

The marker's coordinator epoch is the one of the producer's last marker there, 0 where it has had none; a higher one
would make the leader refuse the coordinator's own markers for ever.
"""

from __future__ import annotations

from typing import NamedTuple

from txnwatch.state.abort.case import Case
from txnwatch.state.abort.rules import REFUSALS, Refusal
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.ports import MarkerSpec

HOUR_MS = 3_600_000


class AbortSpec(NamedTuple):
    """The marker to write."""

    marker: MarkerSpec


class Refused(NamedTuple):
    """Nothing is to be done, and why; `detail` is in words."""

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
            coordinator_epoch=max(0, row.coordinator_epoch),
            commit=case.policy.commit,
            leader_epoch=reading.leader_epoch if reading is not None else -1,
        )
    )


def objection(case: Case) -> Refused | None:
    """What speaks against it before anything is read afresh."""
    for rule in REFUSALS:
        detail = None if rule.needs_reading else rule.check(case)
        if detail is not None:
            return Refused(rule.refusal, detail)
    return None


def partition_of(incident: IncidentEvent) -> TopicPartition:
    """The partition an incident about a span is about."""
    assert incident.topic is not None
    assert incident.partition is not None
    return TopicPartition(incident.topic, incident.partition)
