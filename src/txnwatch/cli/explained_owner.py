"""Adds to an explanation whom to call, what has made the transactional id, and what to know before it is ended.

Apart: it is pure (no I/O, no clock), and explain.py asks the cluster. It is one place for all targets of `explain`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from txnwatch.cli.explanation import Explanation
from txnwatch.state.incidents.event_builder import advice_about, topics_of
from txnwatch.state.model.incident import ExpectedOutcome
from txnwatch.state.model.ownership import ADVICE_MEANS, Advice, IdMaker, Named, OwnerLookup, OwningTeam, Subject
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.values import TopicPartition
from txnwatch.state.model.verdicts import Verdict


def with_owner(explained: Explanation, owners: OwnerLookup, partition: TopicPartition | None = None) -> Explanation:
    """The explanation with the owners; `partition` is the target, if it is one.

    An advice removes a command that ends the transaction: `explain` must not suggest what loses data.
    """
    named = owners.of(_subject(explained, partition))
    advice = _advice(explained, named.application)
    return replace(
        explained,
        owner=named.owner.team if named.owner is not None else None,
        contact=named.owner.contact if named.owner is not None else None,
        application=named.application.text if named.application is not None else None,
        advice=advice,
        next=None if advice is not None and explained.state != Verdict.HANGING else explained.next,
        text=(*explained.text, *_lines(explained, named, advice), *_groups(explained, owners)),
    )


def _subject(explained: Explanation, partition: TopicPartition | None) -> Subject:
    topics = frozenset(topics_of(explained.partitions))
    groups = frozenset((*explained.affected_groups, *explained.waiting_groups))
    if partition is None:
        return Subject(explained.transactional_id, None, topics, groups)
    is_held = explained.producer_id is not None
    return Subject(explained.transactional_id, partition.topic if is_held else None, topics | {partition.topic}, groups)


def _advice(explained: Explanation, application: IdMaker | None) -> Advice | None:
    is_hanging = explained.state == Verdict.HANGING
    is_undecided = (
        explained.expected_outcome == ExpectedOutcome.UNKNOWN
        if is_hanging
        else explained.transaction_state == TransactionState.ONGOING
    )
    return advice_about(application) if is_undecided else None


def _lines(explained: Explanation, named: Named, advice: Advice | None) -> Iterator[str]:
    if named.owner is not None:
        yield f"Call {_who(named.owner)}: found by the {named.owner.found_by.replace('_', ' ')}."
    if named.application is not None:
        yield f"Transactional id {explained.transactional_id!r}: {named.application.text}."
    if advice is not None:
        yield ADVICE_MEANS[advice]


def _who(owner: OwningTeam) -> str:
    return f"{owner.whom_to_call}, {owner.url}" if owner.url is not None else owner.whom_to_call


def _groups(explained: Explanation, owners: OwnerLookup) -> Iterator[str]:
    for group_id in dict.fromkeys((*explained.affected_groups, *explained.waiting_groups)):
        owner = owners.of_group(group_id)
        if owner is not None:
            yield f"Group {group_id}: {_who(owner)}."
