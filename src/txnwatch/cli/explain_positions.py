"""Where a group is on its partitions, and what a partition is made of: the answers where no transaction is in the way.

A group can be behind by itself, a lag of 1 can be a marker, and a partition can be empty for a reader although it has
offsets. `explain` says these with figures, because that is what somebody asks who finds no open transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from txnwatch.cli.compose import Question
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.ports import PartitionReading
from txnwatch.state.model.values import Offset, Problem, TopicPartition
from txnwatch.state.text import some
from txnwatch.streaming.log.visible_ahead import Ahead, Place, look_ahead

_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPosition:
    """Where a group is on a partition, as JSON.

    Attributes:
        at: what is at the committed offset; None if it was not read.
        next_record: the next record that it gets with read_committed; None if there is none, or if it is not known.
        is_known: whether `next_record` is known.
    """

    partition: str
    committed_offset: Offset
    last_stable_offset: Offset
    high_watermark: Offset
    at: str | None = None
    next_record: Offset | None = None
    is_known: bool = False


def positions_of(
    question: Question, offsets: Mapping[TopicPartition, Offset], readings: Mapping[TopicPartition, PartitionReading]
) -> list[GroupPosition]:
    """The positions of a group on the partitions that were read; what is there is read for the first few behind."""
    ends = {
        at: (reading.last_stable_offset, reading.high_watermark)
        for at, reading in sorted(readings.items())
        if at in offsets and reading.last_stable_offset is not None and reading.high_watermark is not None
    }
    behind = [at for at, (stable, _) in ends.items() if offsets[at] < stable]
    ahead = _ahead(question, {at: offsets[at] for at in behind[:_NAMED]}, {at: ends[at][0] for at in behind[:_NAMED]})
    return [_position(at, offsets[at], *ends[at], ahead.get(at)) for at in ends]


def _ahead(
    question: Question, offsets: Mapping[TopicPartition, Offset], stable: Mapping[TopicPartition, Offset]
) -> dict[TopicPartition, Ahead]:
    """What is there; a partition that cannot be read is missing, and said to be."""
    if not offsets:
        return {}
    try:
        answers = look_ahead(question.cluster, offsets, stable)
    except BrokerError as exc:
        question.missing.update({f"the log of {at}": str(exc) for at in offsets})
        return {}
    question.missing.update(
        {f"the log of {at}": str(problem) for at, problem in answers.items() if isinstance(problem, Problem)}
    )
    return {at: ahead for at, ahead in answers.items() if isinstance(ahead, Ahead)}


def _position(
    partition: TopicPartition, committed: Offset, stable: Offset, end: Offset, ahead: Ahead | None
) -> GroupPosition:
    return GroupPosition(
        partition=str(partition),
        committed_offset=committed,
        last_stable_offset=stable,
        high_watermark=end,
        at=str(ahead.at) if ahead is not None else None,
        next_record=ahead.next_record if ahead is not None else None,
        is_known=ahead is not None and ahead.is_known,
    )


_AT = {
    Place.RECORD: "a record of an aborted transaction, which is not given to it",
    Place.COMMIT_MARKER: "a COMMIT marker, which clients skip",
    Place.ABORT_MARKER: "an ABORT marker, which clients skip",
    Place.NOTHING: "no record any more: compaction has removed it",
}


def position_lines(positions: Sequence[GroupPosition], held: Iterable[TopicPartition]) -> Iterator[str]:
    """The positions in words: those that are behind, or outside of the log, and how many are at the end."""
    stopped = {str(at) for at in held}
    behind = [position for position in positions if position.committed_offset < position.last_stable_offset]
    for position in behind[:_NAMED]:
        yield (
            f"{_figures(position)} {_what_is_there(position)} "
            f"{_why_behind(position, is_held=position.partition in stopped)}"
        )
    if len(behind) > _NAMED:
        yield f"It is also behind on {some([position.partition for position in behind[_NAMED:]], _NAMED)}."
    for position in [position for position in positions if position.committed_offset > position.high_watermark][
        :_NAMED
    ]:
        yield (
            f"{_figures(position)} Its offset is beyond the end: the partition was made again or has lost records, and "
            "auto.offset.reset decides where it goes on."
        )
    done = sum(position.committed_offset == position.high_watermark for position in positions)
    if done:
        count = len(positions)
        all_of_them = f"all its {count} partitions" if count > 1 else "its partition"
        yield f"It has read everything on {all_of_them if done == count else f'{done} of its {count} partitions'}."


def _figures(position: GroupPosition) -> str:
    return (
        f"{position.partition}: it has committed {position.committed_offset}, can read with read_committed up to "
        f"{position.last_stable_offset} (the last stable offset), and the end is {position.high_watermark}."
    )


def _what_is_there(position: GroupPosition) -> str:
    if position.at is None:
        return "What is at its offset could not be read."
    if position.at == Place.BELOW_START:
        return f"Offset {position.committed_offset} is no longer there: auto.offset.reset decides where it goes on."
    if position.at == Place.RECORD and (position.next_record == position.committed_offset or not position.is_known):
        return f"At {position.committed_offset} is a record."
    return f"At {position.committed_offset} is {_AT[Place(position.at)]}."


def _why_behind(position: GroupPosition, *, is_held: bool) -> str:
    stops = f"No transaction stops it{' before that offset' if is_held else ''}"
    if position.at == Place.BELOW_START:
        return f"{stops}."
    if not position.is_known:
        return f"Where its next record is was not read. {stops}."
    if position.next_record is None:
        lag = position.high_watermark - position.committed_offset
        return (
            f"Only markers and aborted records are left for it up to {position.last_stable_offset}: it has read "
            f"everything, although its lag is {lag}."
        )
    at = "that one" if position.next_record == position.committed_offset else f"at {position.next_record}"
    return f"The next record that it gets is {at}. {stops}: it is behind by itself."


# A partition without an open transaction.


def nature_lines(question: Question, partition: TopicPartition, reading: PartitionReading) -> Iterator[str]:
    """What a reader wonders about: no records, a marker at the end, nothing but aborted records."""
    start, end = reading.log_start_offset, reading.high_watermark
    if start is None or end is None:
        return
    if start == end:
        why = "nothing was ever written to it" if end == 0 else "retention or DeleteRecords has removed what it had"
        yield f"It has no records: it begins and ends at offset {end} ({why})."
        return
    last = Offset(end - 1)
    ahead = {at: _ahead(question, {partition: at}, {partition: end}).get(partition) for at in {start, last}}
    first, final = ahead[start], ahead[last]
    if first is not None and first.is_known and first.next_record is None:
        yield (
            f"It has the offsets from {start} up to {end}, without the last one, and no record for read_committed "
            "consumers: there are only markers and records of aborted transactions."
        )
    if final is not None and final.at in {Place.COMMIT_MARKER, Place.ABORT_MARKER}:
        kind = "a COMMIT" if final.at is Place.COMMIT_MARKER else "an ABORT"
        yield (
            f"Its last offset, {last}, is {kind} marker: no consumer gets a record there, so a group that has read "
            "everything can show a lag of 1."
        )
