"""What is known about the reading of one partition: one value, and the table by which it changes. Pure.

A data partition and a partition of the coordinators' log have the same value. A partition of which nothing is known is
read to its listed end.

Law: what a partition lacks begins and ends only by this table. A partition can lack several things at once; each of
them follows the table by itself. Of two things where one includes the other, only the wider one is kept: what ends it
also ends the other one.

There is a reason for each way of making a partition complete. A range that could not be read can be read later, and so
can a rest. If a data partition was truncated, or has lost a range, reading cannot make it complete; it waits for a
census. A truncated partition of the coordinators' log is read again from its beginning, as another reading, and what
that does not show is gone. The same applies if its topic was re-created. The new topic may have other partitions, so
nothing counts as gone before all of them are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from msgspec import field
from msgspec.structs import replace

from txnwatch.state.model.facts import LastBatch, NoticeKind
from txnwatch.state.model.values import (
    FIRST_OFFSET,
    BarrierNumber,
    DurationMs,
    ModelValue,
    Offset,
    TimestampMs,
    TopicPartition,
    is_log,
)


class Lack(StrEnum):
    """What the reading of a partition lacks; the value is used in the docs."""

    NOTHING = "nothing"
    REST = "a rest"
    RANGE = "a range"
    RANGE_BEGUN = "a range that is being read again"
    CENSUS = "a census"
    NEW_READING = "a new reading"
    NEW_READING_BEGUN = "a new reading that has begun"
    RECREATED = "the re-created log"
    NAME = "its topic in the metadata"
    DESCRIPTION = "its description"
    FIRST_READING = "its first reading"


class ReadEvent(StrEnum):
    """What a batch shows about the reading of a partition; the value is used in the docs."""

    LIMITED = "the read limit of the batch is reached"
    BEGINS = "log: its reading has not begun, or begins"
    UNREADABLE = "a range cannot be read"
    LOST = "data: a range is lost, or the log is truncated"
    CUT = "log: a range is lost, or the log is truncated"
    LET_GO = "data: the partition is deleted, or no longer scanned"
    REPLACED = "log: the topic is deleted or re-created"
    READ_AGAIN = "the batch reads again from there, or from below"
    DESCRIBED_AS_READ = "a census describes it, and it is read as far as the census reaches"
    UNDESCRIBED = "its regular census fails"
    DESCRIBED = "a census describes it"
    HIDDEN = "a transaction names it, and the metadata does not show it"
    LISTED = "the planner lists it as unproven"
    UNANSWERED = "it was requested at ten barriers"
    REACHED = "it is read to its listed end"
    ALL_REACHED = "all partitions of the log are read to their listed ends"


class ReadingEffect(StrEnum):
    """What happens to a reading, beside its next lack; the value is used in the docs."""

    NOTHING = "nothing"
    NEW_NUMBER = "its reading gets a new number: records of the former one are replaced"
    FORGET = "ids that the new reading has not shown are gone"


class Next(NamedTuple):
    """One cell of the table: what is lacking afterwards, instead of what was."""

    lack: Lack
    effect: ReadingEffect = ReadingEffect.NOTHING


class LackRow(NamedTuple):
    """What a lack means.

    Attributes:
        means: text for the docs.
        includes: what is not kept beside it.
        is_unproven: the partition is reported as unproven, and what is read now does not follow what is known.
        is_counted: each time that it is shown counts; else it changes nothing that it is shown again.
    """

    means: str
    includes: frozenset[Lack] = frozenset()
    is_unproven: bool = True
    is_counted: bool = False


LACKS: dict[Lack, LackRow] = {
    Lack.NOTHING: LackRow("it is read to its listed end, unless this barrier has another end", is_unproven=False),
    Lack.REST: LackRow(
        "a batch has left what is above an offset, because of its read limit: only a census shows what is open there",
        is_unproven=False,
    ),
    Lack.RANGE: LackRow(
        "a range was listed and could not be read yet. If this fails too often, a range of data counts as lost; the "
        "coordinators' log is tried for ever",
        frozenset({Lack.RANGE_BEGUN}),
        is_counted=True,
    ),
    Lack.RANGE_BEGUN: LackRow("a batch has read the range again, and has not reached the listed end"),
    Lack.CENSUS: LackRow(
        "data was lost or truncated: only the leader knows what is open there",
        frozenset({Lack.RANGE, Lack.RANGE_BEGUN}),
    ),
    Lack.NEW_READING: LackRow(
        "records of the log were lost or truncated: it must be read from its beginning again",
        frozenset({Lack.RANGE, Lack.RANGE_BEGUN}),
    ),
    Lack.NEW_READING_BEGUN: LackRow("the log is being read from its beginning again", frozenset({Lack.RANGE_BEGUN})),
    Lack.RECREATED: LackRow(
        "the log was re-created: all its partitions are read from the beginning, and what the old log showed proves "
        "nothing",
        frozenset({Lack.RANGE_BEGUN, Lack.NEW_READING_BEGUN}),
    ),
    Lack.NAME: LackRow(
        "the partition is hidden from this user: it is requested at every barrier",
        is_unproven=False,
        is_counted=True,
    ),
    Lack.DESCRIPTION: LackRow(
        "the last regular census of it failed: it is requested at every barrier, because retention can have removed "
        "the beginning of a transaction, and then only a census shows it",
        is_unproven=False,
    ),
    Lack.FIRST_READING: LackRow(
        "the partition of the coordinators' log was never read to a listed end: it may name a second owner of any "
        "producer id",
        is_unproven=False,
    ),
}

# A row `NOTHING` applies to every partition, whatever else it lacks. A cell that is not here changes nothing.
READING_TRANSITIONS: dict[tuple[Lack, ReadEvent], Next] = {
    (Lack.NOTHING, ReadEvent.LIMITED): Next(Lack.REST),
    (Lack.NOTHING, ReadEvent.BEGINS): Next(Lack.FIRST_READING),
    (Lack.NOTHING, ReadEvent.UNREADABLE): Next(Lack.RANGE),
    (Lack.NOTHING, ReadEvent.LOST): Next(Lack.CENSUS),
    (Lack.NOTHING, ReadEvent.CUT): Next(Lack.NEW_READING, ReadingEffect.NEW_NUMBER),
    (Lack.NOTHING, ReadEvent.REPLACED): Next(Lack.RECREATED, ReadingEffect.NEW_NUMBER),
    (Lack.NOTHING, ReadEvent.HIDDEN): Next(Lack.NAME),
    (Lack.NOTHING, ReadEvent.UNDESCRIBED): Next(Lack.DESCRIPTION),
    (Lack.REST, ReadEvent.READ_AGAIN): Next(Lack.NOTHING),
    (Lack.REST, ReadEvent.LET_GO): Next(Lack.NOTHING),
    (Lack.RANGE, ReadEvent.READ_AGAIN): Next(Lack.RANGE_BEGUN),
    (Lack.RANGE, ReadEvent.LET_GO): Next(Lack.NOTHING),
    (Lack.RANGE, ReadEvent.REPLACED): Next(Lack.NOTHING),
    (Lack.RANGE_BEGUN, ReadEvent.UNREADABLE): Next(Lack.RANGE),
    (Lack.RANGE_BEGUN, ReadEvent.REACHED): Next(Lack.NOTHING),
    (Lack.CENSUS, ReadEvent.DESCRIBED_AS_READ): Next(Lack.NOTHING),
    (Lack.CENSUS, ReadEvent.LET_GO): Next(Lack.NOTHING),
    (Lack.NEW_READING, ReadEvent.READ_AGAIN): Next(Lack.NEW_READING_BEGUN, ReadingEffect.NEW_NUMBER),
    (Lack.NEW_READING, ReadEvent.REPLACED): Next(Lack.NOTHING),
    (Lack.NEW_READING_BEGUN, ReadEvent.REACHED): Next(Lack.NOTHING, ReadingEffect.FORGET),
    (Lack.RECREATED, ReadEvent.ALL_REACHED): Next(Lack.NOTHING, ReadingEffect.FORGET),
    (Lack.NAME, ReadEvent.LISTED): Next(Lack.NOTHING),
    (Lack.NAME, ReadEvent.UNANSWERED): Next(Lack.NOTHING),
    (Lack.DESCRIPTION, ReadEvent.DESCRIBED): Next(Lack.NOTHING),
    (Lack.DESCRIPTION, ReadEvent.LET_GO): Next(Lack.NOTHING),
    (Lack.FIRST_READING, ReadEvent.REACHED): Next(Lack.NOTHING),
    (Lack.FIRST_READING, ReadEvent.REPLACED): Next(Lack.NOTHING),
}

# What a notice means for a partition, of the topics and of the coordinators' log. For that log, a rest is a range that
# was not read: no census replaces it, so nothing in it may wait.
OF_DATA: dict[NoticeKind, ReadEvent] = {
    NoticeKind.LEFT: ReadEvent.LIMITED,
    NoticeKind.GAP: ReadEvent.UNREADABLE,
    NoticeKind.LOST: ReadEvent.LOST,
    NoticeKind.TRUNCATED: ReadEvent.LOST,
    NoticeKind.DELETED: ReadEvent.LET_GO,
    NoticeKind.HIDDEN: ReadEvent.HIDDEN,
}
OF_LOG: dict[NoticeKind, ReadEvent] = {
    NoticeKind.LEFT: ReadEvent.UNREADABLE,
    NoticeKind.GAP: ReadEvent.UNREADABLE,
    NoticeKind.LOST: ReadEvent.CUT,
    NoticeKind.TRUNCATED: ReadEvent.CUT,
    NoticeKind.DELETED: ReadEvent.REPLACED,
}

NOWHERE: Final = Offset(2**63 - 1)  # above every offset: while a range is read again, nothing is known to be unread
UNREAD: Final = frozenset({Lack.RANGE, Lack.CENSUS, Lack.NEW_READING})  # listed, and not read or lost


class LackSince(NamedTuple):
    """Since when something is lacking, and where.

    Attributes:
        from_offset: the lowest offset that was not read; FIRST_OFFSET if the whole partition is concerned.
        barrier: the last barrier that has shown it, or the first one if the lack is not counted.
        times: how often it was shown; 1 if the lack is not counted.
        since_ms: when it was shown first (our clock).
    """

    from_offset: Offset
    barrier: BarrierNumber
    times: int
    since_ms: TimestampMs

    def shown_again(self, later: LackSince, lack: Lack) -> LackSince:
        """The same after it was shown again."""
        from_offset = min(self.from_offset, later.from_offset)
        if not LACKS[lack].is_counted:
            return self._replace(from_offset=from_offset)
        return LackSince(from_offset, later.barrier, self.times + later.times, self.since_ms)


class Standing(NamedTuple):
    """A last stable offset, and since when (our clock) it has not moved.

    Attributes:
        is_repeated: more than one batch has reported it.
        silent_ms: the first barrier (our clock) since which it is not reported; None if the last batch reported it.
    """

    offset: Offset
    since_ms: TimestampMs
    is_repeated: bool = False
    silent_ms: TimestampMs | None = None


class Reading(ModelValue, frozen=True):
    """What is known about the reading of one partition.

    Attributes:
        lacks: what is lacking; empty if the partition is read to its listed end, as far as the last batch shows.
        number: how often a partition of the coordinators' log was found truncated. Records of a later reading replace
            those of an earlier one, whatever their offsets, even of idle producer ids.
        hole_end: the end of the last compaction hole of a partition of the coordinators' log; never carry state across
            it.
        last_batch: the last batch that was read of a partition of the coordinators' log; None before the first one,
            also of a new reading.
        whole_at: the last barrier at which a data partition was read to its listed end; None if the last batch read it
            to its end.
        standing: the last stable offset of a data partition, if it is below the end. Only in the bucket that reports on
            partitions.
    """

    lacks: dict[Lack, LackSince] = field(default_factory=dict)
    number: int = 0
    hole_end: Offset = FIRST_OFFSET
    last_batch: LastBatch | None = None
    whole_at: BarrierNumber | None = None
    standing: Standing | None = None

    @property
    def is_unproven(self) -> bool:
        """Whether the partition is reported as unproven, and what is read now does not follow what is known."""
        return any(LACKS[lack].is_unproven for lack in self.lacks)

    def unread_from(self, *lacks: Lack) -> Offset | None:
        """The lowest offset that was not read because of one of these; None if none of them is lacking."""
        return min((self.lacks[lack].from_offset for lack in lacks if lack in self.lacks), default=None)

    def with_ours_set(self, by_ms: DurationMs) -> Reading:
        """The reading after our clock was set by an amount."""
        lacks = {
            lack: lack_since._replace(since_ms=lack_since.since_ms + by_ms) for lack, lack_since in self.lacks.items()
        }
        standing = self.standing
        if standing is not None:
            silent_ms = None if standing.silent_ms is None else standing.silent_ms + by_ms
            standing = standing._replace(since_ms=standing.since_ms + by_ms, silent_ms=silent_ms)
        return replace(self, lacks=lacks, standing=standing)


READ_WHOLE: Final = Reading()  # nothing has to be kept


def after(reading: Reading, event: ReadEvent, shown: LackSince) -> tuple[Reading, frozenset[ReadingEffect]]:
    """The reading after an event, and what happens to it; `shown` is where and when the event was seen.

    READ_AGAIN concerns only what is unread from there on or above: an older request may begin above a gap.
    """
    lacks: dict[Lack, LackSince] = {}
    effects: set[ReadingEffect] = set()
    for lack, lack_since in ((Lack.NOTHING, shown), *reading.lacks.items()):
        cell = READING_TRANSITIONS.get((lack, event))
        if event is ReadEvent.READ_AGAIN:
            cell = cell if shown.from_offset <= lack_since.from_offset else None
            lack_since = lack_since if cell is None else lack_since._replace(from_offset=NOWHERE)  # noqa: PLW2901 - as it is from now on
        following = lack if cell is None else cell.lack
        if cell is not None:
            effects.add(cell.effect)
        if following is not Lack.NOTHING:
            lacks[following] = lack_since.shown_again(lacks[following], following) if following in lacks else lack_since
    if len(lacks) > 1:
        included = frozenset[Lack]().union(*(LACKS[lack].includes for lack in lacks))
        lacks = {lack: lack_since for lack, lack_since in lacks.items() if lack not in included}
    effects.discard(ReadingEffect.NOTHING)
    changed = reading if lacks == reading.lacks else replace(reading, lacks=lacks)
    if ReadingEffect.NEW_NUMBER in effects:
        # Never carry state into a new reading; its offsets may start again.
        changed = replace(changed, number=reading.number + 1, hole_end=FIRST_OFFSET, last_batch=None)
    return changed, frozenset(effects)


# What is unread at a barrier, as the proof asks for it.


class Unread(NamedTuple):
    """The partitions of which the log is not completely read, besides those that the barrier names itself.

    Attributes:
        gaps: data partitions with a range that was listed and could not be read, or is lost.
        rests: data partitions that a batch did not read to their ends because of its read limit.
        logs: partitions of the coordinators' log with a range that was listed and could not be read, or is lost.
        never: partitions of the coordinators' log that were never read to a listed end.
        recreated: partitions of a re-created coordinators' log that is not completely read yet, with the number of the
            new reading; views of an earlier reading do not count.
    """

    gaps: AbstractSet[TopicPartition] = frozenset()
    rests: AbstractSet[TopicPartition] = frozenset()
    logs: AbstractSet[TopicPartition] = frozenset()
    never: AbstractSet[TopicPartition] = frozenset()
    recreated: Mapping[TopicPartition, int] = MappingProxyType({})


ALL_READ: Final = Unread()


def unread_in(readings: Mapping[TopicPartition, Reading]) -> Unread:
    """What is unread, by the readings of a bucket."""
    gaps, rests, logs, never = (set[TopicPartition]() for _ in range(4))
    recreated: dict[TopicPartition, int] = {}
    for partition, reading in readings.items():
        lacks = reading.lacks
        if not lacks:
            continue
        if Lack.REST in lacks:
            rests.add(partition)
        if Lack.FIRST_READING in lacks:
            never.add(partition)
        if Lack.RECREATED in lacks:
            recreated[partition] = reading.number
        if not lacks.keys().isdisjoint(UNREAD):
            (logs if is_log(partition) else gaps).add(partition)
    return Unread(gaps, rests, logs, never, recreated)
