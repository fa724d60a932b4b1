"""`txnwatch explain` after an abort: reads the events topic for who has written a marker, and looks for it in the log.

Law: nothing of the events topic is believed without the partition. A claim costs one look at its marker; the topic is
read once for each command, and only if it exists. Without a claim, the markers near the end of the partition count.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from txnwatch.cli.abort_texts import (
    RECENT_MS,
    MarkerByHand,
    claim_text,
    claims_of,
    in_log,
    is_its_marker,
    is_last_by_hand,
    place_of_claim,
    seen,
    unclaimed_text,
)
from txnwatch.cli.compose import PublishedEvents, Question
from txnwatch.cli.explain_record import owner_of
from txnwatch.cli.explanation import Explanation
from txnwatch.state.evidence.past_ends import PastEnd
from txnwatch.state.model.errors import BadEventError, BrokerError, TxnwatchError
from txnwatch.state.model.incident import IncidentEvent, LatestEvents
from txnwatch.state.model.ports import PartitionReading
from txnwatch.state.model.transaction import Marker
from txnwatch.state.model.values import ProducerId, TimestampMs, TopicPartition
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.lookups import OFFSETS_BELOW, closing_marker, last_markers

_MOST_MARKERS = 3  # whose writers are looked up
_MOST_PARTITIONS = 20  # near whose ends markers are searched for


def read_published(cluster: Cluster, parsed: argparse.Namespace) -> PublishedEvents:
    """The last event of each incident on the events topic of the flags; none if no broker shows such a topic."""
    topic = cluster.known.topics.get(parsed.events_topic)
    if topic is None or topic.is_hidden:
        return PublishedEvents()
    from txnwatch.cli.topic_reading import read_events_topic  # noqa: PLC0415 - only this needs librdkafka

    latest, bad = LatestEvents(), 0
    try:
        for found in read_events_topic(parsed):
            if isinstance(found, IncidentEvent):
                latest.take(found)
            bad += isinstance(found, BadEventError)
    except TxnwatchError as exc:
        return PublishedEvents(tuple(latest.known.values()), str(exc))
    problem = f"{bad} of its records could not be read" if bad else None
    return PublishedEvents(tuple(latest.known.values()), problem)


class AbortsOf(NamedTuple):
    """About which aborts an explanation speaks.

    Attributes:
        is_wanted: which incidents of the events topic.
        partitions: where the log is searched for a marker of an administrator, if the topic tells of none.
        producer_id: only markers of this producer; None for any.
        ends: the ends of the transactions of its id; None if they are to be read.
    """

    is_wanted: Callable[[IncidentEvent], bool]
    partitions: Collection[TopicPartition] = ()
    producer_id: ProducerId | None = None
    ends: Sequence[PastEnd] | None = None


def with_past_abort(question: Question, explained: Explanation, about: AbortsOf) -> Explanation:
    """The explanation with what is known of markers that no coordinator has written, in the last day."""
    now_ms, published = wall_clock_ms(), question.published()
    claims = claims_of(published.events, lambda one: _is_here(question, one) and about.is_wanted(one), now_ms)
    found: list[tuple[str, MarkerByHand | None]] = []
    try:
        readings = ClusterAdmin(question.cluster).read_partitions({place_of_claim(claim) for claim in claims})
        found += [_checked(question.cluster, claim, readings[place_of_claim(claim)]) for claim in claims]
        if not any(marker is not None for _, marker in found):
            found += _unclaimed(question, about, published, now_ms)
    except BrokerError as exc:
        question.missing["the markers of the last day"] = str(exc)
    lines = tuple(dict.fromkeys(line for line, _ in found))
    marker = next((marker for _, marker in found if marker is not None), None)
    return replace(explained, text=(*explained.text, *lines), marker_by_hand=marker)


def _is_here(question: Question, event: IncidentEvent) -> bool:
    """Whether an incident is of this cluster, and of the topic that has its name now."""
    topic = question.cluster.known.topics.get(event.topic or "")
    is_same = topic is not None and topic.topic_id == event.topic_id
    return is_same and event.cluster_id == question.origin.cluster_id


def _checked(cluster: Cluster, claim: IncidentEvent, reading: PartitionReading) -> tuple[str, MarkerByHand | None]:
    """What a claim is worth, by the leader and the log of its partition."""
    start = claim.txn_start_offset
    assert start is not None
    if reading.problem is not None:
        return claim_text(claim, None, problem=str(reading.problem)), None
    row = reading.open_transaction(claim.producer_id)
    if row is not None and row.txn_start_offset == start:
        return claim_text(claim, None, is_open=True), None
    claimed = claim.resolution.marker_offset if claim.resolution is not None else None
    is_far = claimed is not None and claimed - start > OFFSETS_BELOW
    first = claimed if claimed is not None and is_far else start
    marker = closing_marker(cluster, reading.partition, claim.producer_id, start, first)
    is_shown = marker is not None and is_its_marker(claim, marker)
    return claim_text(claim, marker), seen(claim, marker) if marker is not None and is_shown else None


def _unclaimed(
    question: Question, about: AbortsOf, published: PublishedEvents, now_ms: TimestampMs
) -> Iterator[tuple[str, MarkerByHand | None]]:
    """ABORT markers near the ends of the partitions that no decision in the coordinators' log fits."""
    logs = last_markers(question.cluster, list(about.partitions)[:_MOST_PARTITIONS]) if about.partitions else {}
    aborts = [
        (partition, producer_id, markers)
        for partition, of_producers in logs.items()
        for producer_id, markers in of_producers.items()
        if not markers[-1].commit and markers[-1].timestamp_ms >= now_ms - RECENT_MS
        if about.producer_id in {None, producer_id}
    ]
    for partition, producer_id, markers in sorted(aborts, key=_newest_first)[:_MOST_MARKERS]:
        ends, marker = about.ends, markers[-1]
        if ends is None:
            ends = owner_of(question, producer_id).ends
        if is_last_by_hand(ends, markers):
            text = unclaimed_text(partition, producer_id, marker, published.problem)
            yield text, in_log(partition, producer_id, marker)


def _newest_first(found: tuple[TopicPartition, ProducerId, list[Marker]]) -> TimestampMs:
    return TimestampMs(-found[2][-1].timestamp_ms)
