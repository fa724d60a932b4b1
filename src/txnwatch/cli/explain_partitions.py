"""`explain` for one partition: what holds its last stable offset, and who waits because of it."""

from __future__ import annotations

import time
from dataclasses import replace

from txnwatch.cli.compose import Question
from txnwatch.cli.explain_aborts import AbortsOf, with_past_abort
from txnwatch.cli.explain_connect import with_connect
from txnwatch.cli.explain_names import (
    with_waiting_groups,
)
from txnwatch.cli.explain_positions import nature_lines
from txnwatch.cli.explain_replicas import because_of, with_replicas
from txnwatch.cli.explanation import UNREPLICATED, Explanation, of_partition, open_in
from txnwatch.state.evidence.hurt_groups import GroupsAround, Hold, groups_of
from txnwatch.state.evidence.screening import Search
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.incident import partition_of
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.admin.groups import ClusterGroups
from txnwatch.streaming.admin.replicas import blocked_of
from txnwatch.streaming.client.clock import wall_clock_ms

_LOOKS, _PAUSE_S = 3, 0.3


def of_one_partition(question: Question, partition: TopicPartition) -> Explanation:
    """Explains a partition.

    Raises:
        BrokerError: it cannot be read.
    """
    for look in range(_LOOKS):
        search = question.searcher.search([partition])
        reading = search.readings[partition]
        problem = reading.problem or ("no last stable offset" if reading.last_stable_offset is None else None)
        if problem is not None:
            why = because_of(blocked_of(question.cluster, [partition]))
            raise BrokerError(f"{partition}: {problem}: its owner cannot be determined{why}")
        explained = of_partition(question.origin, partition, search, wall_clock_ms())
        if explained.state != UNREPLICATED:
            break
        if look < _LOOKS - 1:
            time.sleep(_PAUSE_S)  # a transaction may have begun between the two answers of the leader
    question.missing.update({f"{span.partition} producer id {span.producer_id}": why for span, why in search.unproven})
    groups = _groups_around(question, partition, search)
    explained = of_partition(question.origin, partition, search, wall_clock_ms(), groups)
    if not open_in(search):
        explained = replace(
            explained, text=(*explained.text, *nature_lines(question, partition, search.readings[partition]))
        )
    explained = with_waiting_groups(question, partition, explained)
    explained = with_connect(question, explained, [partition.topic], groups.workers)
    if explained.state == UNREPLICATED:
        explained = with_replicas(question.cluster, explained, [partition])
    return with_past_abort(question, explained, AbortsOf(lambda event: partition_of(event) == partition, [partition]))


def _groups_around(question: Question, partition: TopicPartition, search: Search) -> GroupsAround:
    """The groups that the open transactions of a partition hurt; nothing is read if none is open."""
    holds = [Hold(span.start, search.readings[partition]) for span in open_in(search)]
    return groups_of(ClusterGroups(question.cluster), holds, wall_clock_ms())
