"""From the last offset and a fresh listing to the next offset: pure, so that the simulation runs it too.

Law: a limit may cut reading, never listing. What was not answered is carried and marked, what was answered lower
than it was read is taken as it is (the log was truncated; the reader will see it and say so), what came back under
another topic id is another partition. No limit cuts `__transaction_state` here: how much lies between two of its
offsets only reading tells, because compaction leaves a handful of records in thousands of millions of offsets.

A limit is water: it fills the small backlogs first, so that one partition that is far behind takes nothing from those
that are not, and they are read to their ends in every batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from txnwatch.state.model.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.streaming.source.offsets import NOT_BEGUN, Position, SourceOffset

_JUST_MADE = 10_000  # offsets of a partition of the coordinators' log at the first barrier that could list it


@dataclass(frozen=True, slots=True)
class Answer:
    """One partition's answer to a listing; `end` is None if it did not answer.

    `start` is where to begin a partition that is not read yet; it is asked for, and needed, only for those. `leader`
    is the broker that answered.
    """

    topic_id: str
    end: int | None
    epoch: int = -1
    start: int | None = None
    leader: int = -1


@dataclass(frozen=True, slots=True)
class Listing:
    """One pair (D, T), fully asked for.

    Attributes:
        answers: one for every partition that is watched now, of both kinds; a partition that is missing is no
            longer part of the cluster.
        data_listed_ms: our clock when every answer of D was in hand, before T was asked for.
        coordinator_listed_ms: our clock when every answer of T was in hand.
        scan_interval_ms: the coordinators' setting, None while no broker has said.
    """

    cluster_id: str
    answers: Mapping[TopicPartition, Answer]
    data_listed_ms: int
    coordinator_listed_ms: int
    scan_interval_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one batch may read: offsets of all data partitions together."""

    data_offsets: int | None = None


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
            partition: position.topic_id
            for partition, position in previous.positions.items()
            if partition not in known and (is_begun(position) or position.topic_id)  # else known by name alone
        },
        news_from=_news_from(previous, listing, begun, back),
        scan_interval_ms=listing.scan_interval_ms,
    )


def _news_from(
    previous: SourceOffset,
    listing: Listing,
    begun: Mapping[TopicPartition, int],
    back: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """From where each partition of the coordinators' log tells news: the end listed when its reading began, or anew.

    A partition found later whose log is short was made later: all of it is news. A long one was there, and was not
    shown. One found later is kept with 0 until its reading begins: its first answer may come some barriers after its
    name.
    """
    found: dict[TopicPartition, int] = {}
    for partition, answer in listing.answers.items():
        if partition.topic != TRANSACTION_STATE_TOPIC:
            continue
        was_found_later = partition not in previous.positions or previous.news_from.get(partition) == 0
        is_short = answer.end is None or answer.end <= _JUST_MADE
        was_made_later = previous.barrier > 0 and was_found_later and is_short
        kept = 0 if partition in begun else previous.news_from.get(partition, 0)
        if answer.end is not None and ((partition in begun and not was_made_later) or back.get(partition, 1) <= 0):
            kept = answer.end
        kept = kept if answer.end is None else min(kept, answer.end)
        if kept > 0 or (was_made_later and partition not in begun):
            found[partition] = kept
    return found


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
    """How far each answered partition is read: to its end, or, of data, as far as its part of the limit reaches.

    A rewound range is read at least to where it `stood`: a position that stands lower than what the state knows would
    not see that the log is cut between the two.
    """
    ends: dict[TopicPartition, int] = {}
    backlog: dict[TopicPartition, int] = {}
    for partition, answer in listing.answers.items():
        if answer.end is None or partition not in starts:
            continue
        ends[partition] = answer.end
        if partition.topic != TRANSACTION_STATE_TOPIC and answer.end > starts[partition]:
            backlog[partition] = answer.end - starts[partition]
    if limits.data_offsets is not None:
        for partition, allowed in _fill(backlog, limits.data_offsets).items():
            ends[partition] = starts[partition] + allowed
    return {partition: max(end, stood.get(partition, end)) for partition, end in ends.items()}


def _fill(backlog: Mapping[TopicPartition, int], limit: int) -> dict[TopicPartition, int]:
    """What each may read: the smallest as a whole, as many as fit; the others share the rest, and each moves on."""
    allowed: dict[TopicPartition, int] = {}
    smallest_first = sorted(backlog, key=lambda partition: (backlog[partition], partition))
    for done, partition in enumerate(smallest_first):
        if backlog[partition] > limit:
            share = max(1, limit // (len(smallest_first) - done))
            return allowed | dict.fromkeys(smallest_first[done:], share)
        allowed[partition] = backlog[partition]
        limit -= allowed[partition]
    return allowed


def _position(known: Position | None, answer: Answer, end: int | None) -> Position:
    if end is not None and answer.end is not None:
        return Position(answer.topic_id, end, answer.epoch, answer.end, leader=answer.leader)
    if known is None:
        return Position(answer.topic_id, NOT_BEGUN, -1, 0, is_stale=True)
    return replace(known, is_stale=True)
