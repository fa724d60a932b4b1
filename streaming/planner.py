"""From the last offset and a fresh listing to the next offset: pure, so that the simulation runs it too.

Law: a limit may cut reading, never listing. What was not answered is carried and marked, what was answered lower
than it was read is taken as it is (the log was truncated; the reader will see it and say so), what came back under
another topic id is another partition. `__transaction_state` is cut only into the chunks of a first reading, and
as long as it is not read to its end it counts as stale.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from txnwatch.state.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.streaming.offsets import NOT_BEGUN, Position, SourceOffset


@dataclass(frozen=True, slots=True)
class Answer:
    """One partition's answer to a listing; `end` is None if it did not answer.

    `start` is where to begin a partition that is not read yet; it is asked for, and needed, only for those.
    """

    topic_id: str
    end: int | None
    epoch: int = -1
    start: int | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """One pair (D, T), fully asked for.

    Attributes:
        answers: one for every partition that is watched now, of both kinds; a partition that is missing is no
            longer part of the cluster.
        data_listed_ms: our clock when every answer of D was in hand, before T was asked for.
        coordinator_listed_ms: our clock when every answer of T was in hand.
    """

    cluster_id: str
    answers: Mapping[TopicPartition, Answer]
    data_listed_ms: int
    coordinator_listed_ms: int


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one batch may read: offsets of all data partitions together, and of one coordinator partition."""

    data_offsets: int | None = None
    coordinator_chunk: int = 1_000_000


def plan(
    previous: SourceOffset, listing: Listing, limits: Limits, reread: Mapping[TopicPartition, int]
) -> SourceOffset:
    """The next offset: one barrier further, reading as far as the limits allow; `reread` goes back to an offset."""
    known = {
        partition: position
        for partition, position in previous.positions.items()
        if partition in listing.answers and listing.answers[partition].topic_id == position.topic_id
    }
    begun = {
        partition: min(answer.start, answer.end)
        for partition, answer in listing.answers.items()
        if answer.end is not None and answer.start is not None and not is_begun(known.get(partition))
    }
    back = {
        partition: min(start, known[partition].offset)
        for partition, start in reread.items()
        if partition in known and _may_go_back(known[partition], listing.answers[partition])
    }
    stood = {partition: position.offset for partition, position in known.items() if is_begun(position)}
    starts = {**stood, **begun, **back}
    ends = _ends(starts, {partition: known[partition].offset for partition in back}, listing, limits)
    return SourceOffset(
        cluster_id=listing.cluster_id,
        barrier=previous.barrier + 1,
        data_listed_ms=listing.data_listed_ms,
        coordinator_listed_ms=listing.coordinator_listed_ms,
        positions={
            partition: _position(known.get(partition), answer, ends.get(partition))
            for partition, answer in listing.answers.items()
        },
        begun=begun,
        reread=back,
        gone={
            partition: position.topic_id for partition, position in previous.positions.items() if partition not in known
        },
    )


def is_begun(position: Position | None) -> bool:
    """Whether reading of the partition has begun."""
    return position is not None and position.offset != NOT_BEGUN


def _may_go_back(known: Position, answer: Answer) -> bool:
    """Whether a rewind is safe now: a truncation is looked for first.

    Only a read that goes on where the last one ended, with its epoch, sees that the log was truncated since. One
    that starts further back would read the new log and leave what is gone from the old one in the state.
    """
    if not is_begun(known) or answer.end is None:
        return False
    return answer.epoch == known.epoch and answer.end >= known.offset


def _ends(
    starts: Mapping[TopicPartition, int], stood: Mapping[TopicPartition, int], listing: Listing, limits: Limits
) -> dict[TopicPartition, int]:
    """How far each answered partition is read: to its end, or, of data, each a share of the limit by its backlog.

    A rewound range is read at least to where it `stood`: a position that stands lower than what the state knows would
    not see that the log is cut between the two.
    """
    ends: dict[TopicPartition, int] = {}
    backlog: dict[TopicPartition, int] = {}
    for partition, answer in listing.answers.items():
        if answer.end is None or partition not in starts:
            continue
        ends[partition] = answer.end
        if partition.topic == TRANSACTION_STATE_TOPIC:
            ends[partition] = min(answer.end, starts[partition] + limits.coordinator_chunk)
        elif answer.end > starts[partition]:
            backlog[partition] = answer.end - starts[partition]
    total = sum(backlog.values())
    if limits.data_offsets is not None and total > limits.data_offsets:
        for partition, behind in backlog.items():
            ends[partition] = starts[partition] + max(1, limits.data_offsets * behind // total)
    return {partition: max(end, stood.get(partition, end)) for partition, end in ends.items()}


def _position(known: Position | None, answer: Answer, end: int | None) -> Position:
    if end is not None and answer.end is not None:
        return Position(answer.topic_id, end, answer.epoch, answer.end)
    if known is None:
        return Position(answer.topic_id, NOT_BEGUN, -1, 0, is_stale=True)
    return Position(known.topic_id, known.offset, known.epoch, known.listed, is_stale=True)
