"""Folds a range of one partition of `__transaction_state` into one fact for each producer id of a transactional id.

Law: a record belongs to the producer id that it names. If the transactional id has moved on from another producer id
(epoch exhaustion: Prepare* under the old one, Complete* under the new one), the record also belongs to that one, as its
completion. If a second transactional id has the same producer id (a cluster that was restored from a backup), each has
a fact of its own, and the state decides. The participants of a transaction are kept after its Complete* record, which
no longer has them. Two records are consecutive only if no offset between them is missing.

The first read of the log has a fold of its own with the same result: of a million ids, it folds only those that end
live.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from txnwatch.state.detection.view import begun, decision_after, decision_of, follow
from txnwatch.state.model.completion_latency import End, Tally
from txnwatch.state.model.facts import FirstDecision, TransactionalIdGone, TransactionSeen
from txnwatch.state.model.transaction import COMPLETE_STATES, CoordinatorView, TransactionState
from txnwatch.state.model.values import (
    FIRST_OFFSET,
    CoordinatorEpoch,
    DurationMs,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
)
from txnwatch.streaming.wire.internal_topics import (
    NO_PRODUCER_ID,
    TransactionLogValue,
    decode_key,
    decode_value,
    quick_decode,
)
from txnwatch.streaming.wire.record_batch import LENGTH_OVERHEAD, BatchHeader, BatchWalker, Record, header_at, records

# The records of one batch of `__transaction_state`, decoded: all of them or none.


class LoggedRecord(NamedTuple):
    """One record about a transactional id; `value` is None for a tombstone, `key` is the encoded key."""

    transactional_id: str
    offset: Offset
    timestamp_ms: TimestampMs
    value: TransactionLogValue | None
    key: memoryview


def logged_records(buffer: memoryview | bytes, position: int, header: BatchHeader) -> list[LoggedRecord]:
    """The records of the batch at a byte position; records with a key of another type are left out.

    A batch that cannot be decoded as a whole has no records: what stands before the damage may be damaged too.

    Raises:
        WireError: the batch is compressed, or a record of it cannot be decoded.
    """
    return [found for record in records(buffer, position, header) if (found := logged_record(record)) is not None]


def logged_record(record: Record) -> LoggedRecord | None:
    """A record of the log, decoded; None if its key has another type.

    Raises:
        WireError: the key or the value cannot be decoded.
    """
    name = decode_key(record.key) if record.key is not None else None
    if name is None or record.key is None:
        return None
    value = decode_value(record.value) if record.value is not None else None
    return LoggedRecord(name, record.offset, TimestampMs(record.timestamp), value, record.key)


# Holes of `__transaction_state`: offsets that compaction has removed. State is never carried across a hole.


def last_hole_end(before: Offset, position: Offset, header: BatchHeader) -> Offset:
    """Where the last hole up to and including a batch ends; `before` is where the last one before the batch ended.

    `position` is the offset that should come next. A batch that has lost some of its own records is a hole too.
    """
    if header.record_count <= header.last_offset_delta:
        return header.last_offset + 1
    return header.base_offset if header.base_offset > position else before


# The fold: what a range says about each producer id of a transactional id.

# A view has the values of its record that have the same name, so a new field of both needs no change here.
_COPIED = tuple(spec.name for spec in fields(TransactionLogValue) if spec.name in CoordinatorView.__struct_fields__)
_values_of = attrgetter(*_COPIED)
Use = tuple[ProducerId, str]  # of a producer id by a transactional id


class NamedRecord(Protocol):
    """A record of the log, with the transactional id that it is about."""

    @property
    def transactional_id(self) -> str:
        """The id."""

    @property
    def offset(self) -> Offset:
        """Its offset in the id's partition of the log."""

    @property
    def timestamp_ms(self) -> TimestampMs:
        """The broker's clock at the append."""


def view_of(
    record: NamedRecord,
    value: TransactionLogValue,
    log_partition: int,
    coordinator_epoch: CoordinatorEpoch | None,
) -> CoordinatorView:
    """What a record with this value shows."""
    return CoordinatorView(
        transactional_id=record.transactional_id,
        log_partition=log_partition,
        log_offset=record.offset,
        timeout_ms=DurationMs(value.transaction_timeout_ms),
        record_timestamp_ms=record.timestamp_ms,
        participants=value.participants,
        coordinator_epoch=coordinator_epoch,
        **dict(zip(_COPIED, _values_of(value), strict=True)),
    )


@dataclass(slots=True)
class Stamps:
    """Timestamps of the records that one leader has appended: the lowest and the last."""

    leader_epoch: LeaderEpoch
    lowest_ms: TimestampMs
    last_ms: TimestampMs


class TransactionFold(BatchWalker):
    """Folds records of one partition of the coordinator's log from `start` up to `end` (exclusive).

    Records below `backlog_end` were there before reading began. Their durations are not measured. `facts` marks their
    idle ids as past, because the state needs these only for producers that it awaits, or leaves them out.

    Attributes:
        stamps: timestamps by the clock of the last leader in the range, None before the first record.
        hole: the first offset that compaction has removed; None if none is missing.
        last_hole_end: where the last hole so far ended; `start` if there was none.
        last_header: the header of the last batch, None before the first.
    """

    def __init__(self, log: TopicPartition, start: Offset, end: Offset, *, backlog_end: Offset = FIRST_OFFSET) -> None:
        super().__init__(start, end)
        self.log = log
        self.backlog_end = backlog_end
        self.hole: Offset | None = None
        self.last_hole_end = start
        self.stamps: Stamps | None = None
        self.last_header: BatchHeader | None = None
        self._views: dict[Use, CoordinatorView] = {}
        self._held: dict[Use, frozenset[TopicPartition]] = {}
        self._owner: dict[str, ProducerId] = {}
        self._gone: dict[str, Offset] = {}
        self._ended: dict[Use, Tally] = {}
        self._first_ends: dict[Use, End] = {}
        self._decided: dict[Use, FirstDecision] = {}

    def feed(self, buffer: memoryview | bytes, hole_end_before: Mapping[Offset, Offset] | None = None) -> None:
        """Decodes the `records` of one Fetch response.

        If the batches were picked out of a log, `hole_end_before` has for each base offset where the log's last hole
        before the batch ended: the batches that were not picked are not holes.

        Raises:
            WireError: a batch, key or value of this log cannot be decoded; `position` is the batch's offset.
        """
        for at, header in self.headers(buffer):
            self.last_header = header
            self.note_hole(header)
            if hole_end_before is not None:
                self.last_hole_end = hole_end_before[header.base_offset]
            if header.base_offset >= self.start and not header.is_control:
                for record in logged_records(buffer, at, header):
                    self._stamp(record.timestamp_ms, header.leader_epoch)
                    self._take(record, header.leader_epoch)

    def beyond_end(self, header: BatchHeader) -> None:
        """Notes the hole at the end of the range, if there is one."""
        self.note_hole(header)

    def note_hole(self, header: BatchHeader) -> None:
        """Notes a hole if offsets are missing before the next batch or in it."""
        if header.base_offset > self.position and self.hole is None:
            self.hole = self.position
        self.last_hole_end = last_hole_end(self.last_hole_end, self.position, header)

    def _stamp(self, timestamp_ms: TimestampMs, leader_epoch: LeaderEpoch) -> None:
        stamps = self.stamps
        if stamps is None or stamps.leader_epoch != leader_epoch:
            self.stamps = Stamps(leader_epoch, timestamp_ms, timestamp_ms)
            return
        stamps.lowest_ms = min(stamps.lowest_ms, timestamp_ms)
        stamps.last_ms = timestamp_ms

    def _take(self, record: LoggedRecord, leader_epoch: LeaderEpoch) -> None:
        if record.value is None:
            self._tombstone(record.transactional_id, record.offset)
        else:
            self._value(record, record.value, leader_epoch)

    def _tombstone(self, transactional_id: str, offset: Offset) -> None:
        self._gone[transactional_id] = offset
        owner = self._owner.get(transactional_id)
        if owner is not None:
            use = owner, transactional_id
            if use in self._decided and not self._decided[use].is_final:
                del self._decided[use]  # what follows is of another life of the id, and proves nothing about this one
            self._views[use] = replace(self._views[use], state=TransactionState.DEAD, log_offset=offset)

    def _value(self, record: LoggedRecord, value: TransactionLogValue, leader_epoch: LeaderEpoch) -> None:
        coordinator_epoch, transactional_id = CoordinatorEpoch(leader_epoch), record.transactional_id
        view = view_of(record, value, self.log.partition, coordinator_epoch)
        use = value.producer_id, transactional_id
        end = None
        if record.offset >= self.backlog_end:
            end = End(view.state, view.record_timestamp_ms, view.last_update_ms, coordinator_epoch)
        formers = {self._owner.get(transactional_id, value.producer_id)}
        if value.previous_producer_id is not None:
            formers.add(value.previous_producer_id)
        for former in formers - {value.producer_id}:
            self._supersede((former, transactional_id), view, value.producer_id, end)
        if view.is_live:
            self._held[use] = self._held.get(use, frozenset()) | view.participants
        self._time(use, end)
        prior = self._views.get(use)
        if end is not None:
            self._decide(use, view, view.producer_epoch)
        view = begun(view)
        if prior is not None or self.last_hole_end > self.start:
            is_consecutive = prior is not None and prior.log_offset >= self.last_hole_end
            view = follow(prior, view, is_consecutive=is_consecutive)
        self._views[use] = view
        self._owner[transactional_id] = value.producer_id

    def _time(self, use: Use, end: End | None) -> None:
        """Measures a transaction that ends here; if it was prepared before the range, the state measures it."""
        if end is None or end.state not in COMPLETE_STATES:
            return
        prior = self._views.get(use)
        if prior is None:
            self._first_ends[use] = end
        elif prior.state.is_prepare:
            self._ended.setdefault(use, Tally()).finish(prior, end)

    def _decide(self, use: Use, view: CoordinatorView, producer_epoch: ProducerEpoch | None) -> None:
        """Keeps what the range decides first, with the next record of the id."""
        before = self._decided.pop(use, None)
        if before is None:
            is_first = use not in self._views and self.last_hole_end <= self.start
            decided = decision_of(view, producer_epoch, is_first=is_first)
        else:
            is_consecutive = before.log_offset >= self.last_hole_end
            decided = decision_after(before, view, producer_epoch, is_consecutive=is_consecutive)
        if decided is not None:
            self._decided[use] = decided

    def _supersede(self, former: Use, view: CoordinatorView, successor: ProducerId, end: End | None) -> None:
        self._time(former, end)
        if end is not None:
            self._decide(former, view, None)
        prior = self._views.get(former)
        held = prior.participants if prior is not None else frozenset()
        self._views[former] = replace(view, superseded_by=successor, participants=held)

    def facts(self, *, is_first: bool = False) -> Iterator[TransactionSeen | TransactionalIdGone]:
        """One fact for each use of a producer id in the range, and the last tombstone of each id that has one.

        A tombstone counts even if the id has come back since: it ends what was known under a former producer id, which
        the new records do not name. The new records have higher offsets and take precedence.

        `is_first` is for the beginning of a first read: nothing is known yet that idle ids or tombstones could end. For
        the verdict an idle id equals an absent one, and loading a million of them would take minutes.
        """
        for use, view in self._views.items():
            is_past = not view.is_live and view.log_offset < self.backlog_end
            if not (is_past and is_first):
                yield self._fact(use, view, is_past=is_past)
        for transactional_id, offset in self._gone.items():
            if offset >= self.backlog_end or not is_first:
                yield TransactionalIdGone(transactional_id, self.log.partition, offset)

    def forget_idle_backlog(self) -> None:
        """Forgets idle ids whose records are all below `backlog_end`; a later record counts as the first of its id.

        `facts(is_first=True)` does not return these ids.
        """
        kept = {of for of, view in self._views.items() if view.is_live or view.log_offset >= self.backlog_end}
        self._views = {of: view for of, view in self._views.items() if of in kept}
        self._held = {of: held for of, held in self._held.items() if of in kept}
        self._ended = {of: ended for of, ended in self._ended.items() if of in kept}
        self._first_ends = {of: end for of, end in self._first_ends.items() if of in kept}
        self._decided = {of: decided for of, decided in self._decided.items() if of in kept}
        self._owner = {name: owner for name, owner in self._owner.items() if (owner, name) in kept}
        self._gone = {name: offset for name, offset in self._gone.items() if offset >= self.backlog_end}

    def _fact(self, use: Use, view: CoordinatorView, *, is_past: bool) -> TransactionSeen:
        held = self._held.get(use, frozenset())
        held = held - view.participants if view.is_live else held
        ended = self._ended.get(use)
        return TransactionSeen(
            use[0],
            view,
            held,
            ended.latencies() if ended is not None else (),
            self._first_ends.get(use),
            is_past,
            self._decided.get(use),
        )


# The first read of `__transaction_state`, in two passes: of a million ids, only those that end live are folded.
#
# Of the records that were there before reading began, `TransactionFold.facts(is_first=True)` returns only the producer
# ids that end live. So the first pass finds these ids with a fast look at the bytes, and the second pass runs the exact
# fold over their records.
#
# Law: the facts equal those of the exact fold over the same bytes, in the same order. Why the other records may be left
# out:
#
# 1. The facts of a producer id P of a transactional id (its view, what it held, how it ended) change only with a record
#    of that id that names P, as its producer id or the previous one, or with a record or tombstone of the id after its
#    last record named P.
# 2. P ends live only if the last record that changed it is live and names P. Its transactional id has no record after
#    that, because such a record would have changed P again. So P is the producer id of a last record that is live.
#    These are the wanted producer ids: there are no more of them than live transactional ids.
# 3. A record is folded if it names a wanted producer id, or if its transactional id has had such a record before. These
#    are all records of 1. An additional record (of the same batch, or of a name with the same hash) changes only
#    producer ids that are not wanted, and their facts are dropped.
# 4. The exact fold reports nothing of the other producer ids either: they are idle and past, and their tombstones are
#    past. In later ranges it does report such ids, and the state drops these facts unless it awaits the id (`pass_over`
#    in state/detection/batch.py). At a first read the state awaits only ids that the log itself has shown.
#
# The first pass reads a batch directly from its bytes (`quick_decode`). If the bytes are unusual, it decodes
# the batch at once, so damaged bytes stop both passes where they stop the exact fold. The first pass also sets
# positions, holes and stamps.
#
# The bytes are held until the second pass, and `HeldBytes` limits them. If a task holds too many, the fold that holds
# the most makes its second pass at once and forgets the idle ids. A later record then counts as the first of its id, as
# it does after a range is cut.

HELD_BYTES = 16 << 20


class HeldBytes:
    """Limits the bytes of records that the folds of one task hold together; one fold per partition of the log."""

    def __init__(self, max_bytes: int = HELD_BYTES) -> None:
        self._max_bytes = max_bytes
        self._folds: dict[TopicPartition, FirstReadFold] = {}

    def enter(self, fold: FirstReadFold) -> None:
        """Adds a fold; it replaces an earlier fold of the same partition."""
        self._folds[fold.log] = fold

    def make(self) -> None:
        """Makes folds release what they hold, the largest first, until the limit is kept."""
        while sum(fold.size for fold in self._folds.values()) > self._max_bytes:
            max(self._folds.values(), key=lambda fold: fold.size).condense()


class LastBatchFold(BatchWalker):
    """Walks the batch with which an earlier range ended; its records are not read.

    Attributes:
        last_header: the header of the batch, None if it was not found.
    """

    reads_records = False

    def __init__(self, start: Offset, end: Offset) -> None:
        super().__init__(start, end)
        self.last_header: BatchHeader | None = None

    def feed(self, buffer: memoryview | bytes) -> None:
        """Walks the `records` of one Fetch response.

        Raises:
            WireError: a length or magic that no broker writes.
        """
        for _, header in self.headers(buffer):
            self.last_header = header


class FirstReadFold(TransactionFold):
    """Folds the first range read of a partition, all of which was there before reading began.

    Attributes:
        size: bytes of records that are held.
    """

    def __init__(
        self, log: TopicPartition, start: Offset, end: Offset, *, backlog_end: Offset, room: HeldBytes
    ) -> None:
        super().__init__(log, start, end, backlog_end=backlog_end)
        self.size = 0
        self._room = room
        self._live: dict[bytes, ProducerId] = {}
        self._let_go()
        room.enter(self)

    def feed(self, buffer: memoryview | bytes, hole_end_before: Mapping[Offset, Offset] | None = None) -> None:
        """Scans the `records` of one Fetch response and holds them.

        Raises:
            WireError: as the exact fold does.
        """
        assert hole_end_before is None, "a first reading takes whole responses, not selected batches"
        raw = bytes(buffer)
        self._chunks.append(raw)
        self._begins.append(self.size)
        begin, self.size = self.size, self.size + len(raw)
        self._look_through(raw, begin)
        self._room.make()

    def _look_through(self, raw: bytes, begin: int) -> None:
        last_at = self._look_from(raw, begin, 0)
        if last_at >= 0:
            self.last_header = header_at(raw, last_at)

    def _look_from(self, raw: bytes, begin: int, at: int) -> int:
        """Looks at the batches from a byte on; returns where the last one begins, -1 if there is none."""
        live, last_at = self._live, -1
        while True:
            seen = quick_decode(raw, at)
            if seen is None:
                found = next(self.headers(raw, at), None)
                if found is None:
                    return last_at
                last_at = found[0]
                self.note_hole(found[1])
                at = self._decode(raw, begin, *found)
                continue
            end, base_offset, leader_epoch, timestamp_ms, key, producer_id, previous_id, is_live = seen
            if base_offset > self.position:
                self._pass_hole(base_offset)
            if base_offset >= self.end:
                self.position = self.end
                return last_at
            if base_offset >= self.start:
                self._stamp(timestamp_ms, leader_epoch)
                if is_live:
                    live[key] = producer_id
                elif key in live:
                    del live[key]
                self._note(begin + at, producer_id, previous_id, key)
                if base_offset >= self.backlog_end:
                    self._has_new_records = True
            self.leader_epoch = leader_epoch
            self.position = base_offset + 1
            last_at, at = at, end

    def _pass_hole(self, end: Offset) -> None:
        if self.hole is None:
            self.hole = self.position
        self.last_hole_end = end

    def _decode(self, raw: bytes, begin: int, at: int, header: BatchHeader) -> int:
        """Decodes one batch that `quick_decode` does not accept; returns where it ends."""
        if header.base_offset >= self.start and not header.is_control:
            self._has_new_records = self._has_new_records or header.last_offset >= self.backlog_end
            for record in logged_records(raw, at, header):
                self._stamp(record.timestamp_ms, header.leader_epoch)
                key, value = bytes(record.key), record.value
                self._live.pop(key, None)
                if value is None:
                    self._note(begin + at, NO_PRODUCER_ID, NO_PRODUCER_ID, key)
                    continue
                if value.state.is_live:
                    self._live[key] = value.producer_id
                previous_id = NO_PRODUCER_ID if value.previous_producer_id is None else value.previous_producer_id
                self._note(begin + at, value.producer_id, previous_id, key)
        self.leader_epoch = header.leader_epoch
        self.position = header.last_offset + 1
        return at + LENGTH_OVERHEAD + header.length

    def _note(self, at: int, producer_id: ProducerId, previous_id: ProducerId, key: bytes) -> None:
        self._at.append(at)
        self._ids.append(producer_id)
        self._previous.append(previous_id)
        self._names.append(hash(key))
        self._whole.append(self.last_hole_end)

    def condense(self) -> None:
        """Folds the held records that matter, then releases all bytes and forgets the idle ids."""
        wanted = {*self._live.values(), *(producer_id for producer_id, _ in self._views)}
        names = {hash(struct.pack(">hh", 0, len(raw)) + raw) for raw in map(str.encode, self._owner)}
        done: int | None = None
        whole_at_end = self.last_hole_end
        noted = zip(self._at, self._ids, self._previous, self._names, self._whole, strict=True)
        for at, producer_id, previous_id, name, whole in noted:
            if producer_id in wanted or previous_id in wanted or name in names or self._has_new_records:
                names.add(name)
                if at != done:
                    done, self.last_hole_end = at, Offset(whole)
                    self._fold(at)
        self.last_hole_end = whole_at_end
        if not self._has_new_records:
            self._views = {use: view for use, view in self._views.items() if use[0] in wanted}
        self.forget_idle_backlog()
        self._let_go()

    def _fold(self, at: int) -> None:
        chunk = bisect_right(self._begins, at) - 1
        raw = self._chunks[chunk]
        position = at - self._begins[chunk]
        header = header_at(raw, position)
        for record in logged_records(raw, position, header):
            self._take(record, header.leader_epoch)

    def _let_go(self) -> None:
        self.size = 0
        self._has_new_records = False
        self._chunks: list[bytes] = []
        self._begins: list[int] = []
        # One entry per record: where its batch is, its producer ids, its key's hash, and `last_hole_end` at that time.
        self._at, self._ids, self._previous = array("q"), array("q"), array("q")
        self._names, self._whole = array("q"), array("q")

    def facts(self, *, is_first: bool = True) -> Iterator[TransactionSeen | TransactionalIdGone]:
        """The facts of each producer id that ends live, and of the records from `backlog_end` on."""
        assert is_first, "idle transactions were not folded"
        self.condense()
        yield from super().facts(is_first=True)
