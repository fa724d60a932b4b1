"""`txnwatch explain` after an abort: who has written a marker, by the events topic, and what the partition's log shows.

Law: nothing of the events topic is believed without the partition, because anyone who may write the topic can claim an
abort. A claim is compared with the marker in the log, and the text says which of the two says what. A claim costs one
look at its marker; the topic is read once for each command, and only if it exists. Without a claim, the markers near
the end of the partition count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from txnwatch.cli.compose import Question
from txnwatch.cli.explanation import Explanation, MarkerByHand
from txnwatch.cli.output import utc
from txnwatch.cli.past_ids import owner_of
from txnwatch.state.evidence.past_ends import PastEnd, ended_with, ends_on
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.incident import (
    Action,
    Decision,
    IncidentEvent,
    Initiator,
    PublishedEvents,
    latest,
    partition_of,
    start_of,
)
from txnwatch.state.model.ports import PartitionReading
from txnwatch.state.model.transaction import Marker
from txnwatch.state.model.values import DurationMs, ProducerId, TimestampMs, TopicPartition
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.lookups import OFFSETS_BELOW, closing_marker, last_markers

RECENT_MS: Final = DurationMs(86_400_000)
MOST_CLAIMS: Final = 3
_MOST_MARKERS = 3  # whose writers are looked up
_MOST_PARTITIONS = 20  # near whose ends markers are searched for


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
    now_ms, published = wall_clock_ms(), question.origin.published()
    claims = claims_of(published.events, lambda event: _is_here(question, event) and about.is_wanted(event), now_ms)
    lines_and_markers: list[tuple[str, MarkerByHand | None]] = []
    try:
        readings = ClusterAdmin(question.cluster).read_partitions({partition_of(claim) for claim in claims})
        lines_and_markers += [_checked(question.cluster, claim, readings[partition_of(claim)]) for claim in claims]
        if not any(marker is not None for _, marker in lines_and_markers):
            lines_and_markers += _unclaimed(question, about, published, now_ms)
    except BrokerError as exc:
        question.missing["the markers of the last day"] = str(exc)
    lines = tuple(dict.fromkeys(line for line, _ in lines_and_markers))
    marker = next((marker for _, marker in lines_and_markers if marker is not None), None)
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
    closing = closing_marker(cluster, start_of(claim), first)
    marker = closing.marker if closing is not None else None
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
            ends = owner_of(question.cluster, producer_id).ends
        if is_last_by_hand(ends_on(ends, partition), markers):
            text = unclaimed_text(partition, producer_id, marker, published.problem)
            yield text, _in_log(partition, producer_id, marker)


def _newest_first(abort: tuple[TopicPartition, ProducerId, list[Marker]]) -> TimestampMs:
    return TimestampMs(-abort[2][-1].timestamp_ms)


# The claims, and what is said about them and about a marker. Pure: no I/O, no clock.


def claims_of(
    events: Iterable[IncidentEvent], is_wanted: Callable[[IncidentEvent], bool], now_ms: TimestampMs
) -> list[IncidentEvent]:
    """The last events of incidents whose hang txnwatch has ended with a marker, as they claim; the newest first."""
    claims: dict[object, IncidentEvent] = {}
    for event in latest(events).values():
        action = event.action
        if event.span is None or event.txn_start_offset is None or action is None or not action.is_marker:
            continue
        if action.at_ms >= now_ms - RECENT_MS and is_wanted(event):
            key = event.span, event.txn_start_offset
            earlier = claims.get(key)
            if earlier is None or earlier.action is None or earlier.action.at_ms <= action.at_ms:
                claims[key] = event
    newest = sorted(claims.values(), key=lambda claim: -_at_ms(claim))
    return newest[:MOST_CLAIMS]


def _at_ms(event: IncidentEvent) -> TimestampMs:
    assert event.action is not None
    return event.action.at_ms


def is_its_marker(claim: IncidentEvent, marker: Marker) -> bool:
    """Whether a marker in the log is the one that was announced: of its kind and of its epochs."""
    action = claim.action
    assert action is not None
    announced = (action.decision is Decision.COMMIT, action.marker_producer_epoch, action.marker_coordinator_epoch)
    return announced == (marker.commit, marker.producer_epoch, marker.coordinator_epoch)


def claim_text(
    claim: IncidentEvent, marker: Marker | None, *, is_open: bool = False, problem: str | None = None
) -> str:
    """What the events topic says about an abort, and what the partition's log shows of it."""
    assert claim.action is not None
    where = start_of(claim).place
    said = (
        f"The events topic says that {_who(claim.action)} announced the {_kind(claim.action)} marker for {where} at "
        f"{utc(claim.action.at_ms)} (incident {claim.incident_id})"
    )
    if problem is not None:
        return f"{said}; this could not be checked: {problem}."
    if is_open:
        return f"{said}, but that transaction is still open: nothing has ended it."
    if marker is None:
        return f"{said}. It is no longer open there, but the log does not show its marker any more."
    shown = _marker_text(claim.producer_id, marker)
    if not is_its_marker(claim, marker):
        return f"{said}, but another marker has ended it: {shown}."
    return f"{said}. The log shows that it was ended so: {shown}. A marker does not name its writer."


def _marker_text(producer_id: ProducerId, marker: Marker) -> str:
    """A marker of the log."""
    kind = "the COMMIT marker" if marker.commit else "the ABORT marker"
    epochs = f"epoch {marker.producer_epoch}, coordinator epoch {marker.coordinator_epoch}"
    written = f"written at {utc(marker.timestamp_ms)}"
    return f"{kind} at offset {marker.offset} (producer id {producer_id}, {epochs}), {written}"


def _in_log(partition: TopicPartition, producer_id: ProducerId, marker: Marker) -> MarkerByHand:
    """A marker that only the log shows."""
    return MarkerByHand(
        partition=str(partition),
        producer_id=producer_id,
        is_commit=marker.commit,
        marker_offset=marker.offset,
        written_ms=marker.timestamp_ms,
    )


def seen(claim: IncidentEvent, marker: Marker) -> MarkerByHand:
    """A claim that the log confirms."""
    assert claim.action is not None
    shown = _in_log(partition_of(claim), claim.producer_id, marker)
    return replace(shown, by=claim.action.by, announced_ms=claim.action.at_ms, incident_id=claim.incident_id)


def is_last_by_hand(ends: Sequence[PastEnd], markers: Sequence[Marker]) -> bool:
    """Whether no end of the id is left for its last marker on a partition, by the order of its markers there."""
    return ended_with(ends, markers[-1], markers[:-1]) is None


def unclaimed_text(partition: TopicPartition, producer_id: ProducerId, marker: Marker, problem: str | None) -> str:
    """A marker that no decision in the coordinators' log fits; `problem` is why the events topic cannot tell."""
    who = "No event of txnwatch says who"
    if problem is not None:
        who = f"Who is not known, because the events topic could not be read: {problem}"
    return (
        f"The log of {partition} has {_marker_text(producer_id, marker)}. No decision in the coordinators' log fits "
        "it: an administrator has written it (`txnwatch abort` or kafka-transactions.sh abort, with WriteTxnMarkers), "
        f"a coordinator has sent it a second time, or the log no longer shows its transaction. {who}."
    )


def _who(action: Action) -> str:
    name = repr(action.by)
    return f"`txnwatch abort` of {name}" if action.initiator is Initiator.OPERATOR else f"the watcher {name}"


def _kind(action: Action) -> str:
    return "COMMIT" if action.decision is Decision.COMMIT else "ABORT"
