"""Gives an event its owner, what has made its transactional id, and what to know before its transaction is ended.

Law: nothing here is read by a decision. An owner is found by the table of this process: of an event of another writer,
the owner in it is replaced.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from txnwatch.state.model.incident import ExpectedOutcome, IncidentEvent
from txnwatch.state.model.ownership import FLINK, Advice, IdMaker, OwnerLookup, Subject
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.values import TopicPartition
from txnwatch.state.model.verdicts import RULE_OF


def named(event: IncidentEvent, owners: OwnerLookup) -> IncidentEvent:
    """The event with the owner of its transaction."""
    owner, application = owners.of(subject_of(event))
    return replace(event, owner=owner, application=application, advice=_advice(event, application))


def subject_of(event: IncidentEvent) -> Subject:
    """What the owner of an event's transaction is found by."""
    participants = (*event.evidence.coordinator_partitions, *event.pending_partitions)
    affected = {group.group_id for group in event.consumer_groups}
    return Subject(
        event.transactional_id,
        event.topic,
        frozenset(topics_of(participants)) | ({event.topic} if event.topic is not None else frozenset()),
        frozenset(affected | {group.group_id for group in event.waiting_groups}),
    )


def topics_of(partitions: Iterable[str]) -> Iterable[str]:
    """The topics of partitions that are given as text."""
    return (TopicPartition.parse(one).topic for one in partitions)


def _advice(event: IncidentEvent, application: IdMaker | None) -> Advice | None:
    if RULE_OF[event.verdict].needs_marker:
        is_undecided = event.expected_outcome is ExpectedOutcome.UNKNOWN
    else:
        is_undecided = event.topic is None and event.transaction_state is TransactionState.ONGOING
    return advice_about(application) if is_undecided and event.is_open else None


def advice_about(application: IdMaker | None) -> Advice | None:
    """What to know before a transaction without an outcome is ended."""
    return Advice.RESUME_FLINK_JOB if application is not None and application.framework == FLINK else None
