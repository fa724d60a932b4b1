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

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from txnwatch.state.detection.view import begun, decision_after, decision_of, follow
from txnwatch.state.model.completion_latency import Completion, Tally
from txnwatch.state.model.facts import CompletionTimes, FirstDecision, TransactionalIdGone, TransactionSeen
from txnwatch.state.model.transaction import CoordinatorView, TransactionState
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
from txnwatch.streaming.log.coordinator_records import (
    CoordinatorLogWalker,
    LoggedRecord,
    batch_at,
    logged_records,
)
from txnwatch.streaming.wire.internal_topics import (
    NO_PARTICIPANTS,
    NO_PRODUCER_ID,
    NO_VALUE,
    QuickDecoded,
    TransactionLogValue,
    quick_participants,
)
from txnwatch.streaming.wire.record_batch import BatchHeader, BatchWalker, header_at

# Holes of `__transaction_state`: offsets that compaction has removed. State is never carried across a hole.


def last_hole_end(before: Offset, position: Offset, header: BatchHeader) -> Offset:
    """Where the last hole up to and including a batch ends; `before` is where the last one before the batch ended.

    `position` is the offset that should come next. A batch that has lost some of its own records is a hole too.
    """
    if header.record_count <= header.last_offset_delta:
        return header.last_offset + 1
    return header.base_offset if header.base_offset > position else before


# The fold: what a range says about each producer id of a transactional id.

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
        state=value.state,
        producer_epoch=value.producer_epoch,
        timeout_ms=DurationMs(value.transaction_timeout_ms),
        start_ms=value.start_ms,
        last_update_ms=TimestampMs(value.last_update_ms),
        record_timestamp_ms=record.timestamp_ms,
        participants=value.participants,
        coordinator_epoch=coordinator_epoch,
        client_transaction_version=value.client_transaction_version,
    )


def quick_view(seen: QuickDecoded, log_partition: int) -> CoordinatorView:
    """What a batch shows that `quick_decode` has accepted, and that is no tombstone; equals `view_of` its record."""
    (
        _, offset, leader_epoch, timestamp_ms, name, _, _, _,
        version, epoch, timeout_ms, state, partitions, updated_ms, start_ms, client_version,
    ) = seen  # fmt: skip
    return CoordinatorView(
        name.decode(),
        log_partition,
        offset,
        state,
        epoch,
        DurationMs(timeout_ms),
        start_ms,
        updated_ms,
        timestamp_ms,
        quick_participants(version, partitions),
        coordinator_epoch=CoordinatorEpoch(leader_epoch),
        client_transaction_version=client_version,
    )


@dataclass(slots=True)
class Stamps:
    """Timestamps of the records that one leader has appended: the lowest and the last."""

    leader_epoch: LeaderEpoch
    lowest_ms: TimestampMs
    last_ms: TimestampMs


@dataclass(slots=True)
class RangeUse:
    """What a range says so far about one producer id of a transactional id.

    Attributes:
        view: None before the first record.
        held: partitions of its live transactions.
        first_end, decided: as in TransactionSeen.
    """

    producer_id: ProducerId
    view: CoordinatorView | None = None
    held: frozenset[TopicPartition] = NO_PARTICIPANTS
    first_end: Completion | None = None
    decided: FirstDecision | None = None

    @property
    def last_view(self) -> CoordinatorView:
        """The view after a record."""
        assert self.view is not None
        return self.view


class TransactionFold(CoordinatorLogWalker):
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
        self._uses: dict[Use, RangeUse] = {}
        self._owner: dict[str, RangeUse] = {}
        self._gone: dict[str, Offset] = {}
        self._ended = Tally()

    def feed(self, buffer: memoryview | bytes, hole_end_before: Mapping[Offset, Offset] | None = None) -> None:
        """Walks the `records` of one Fetch response.

        If the batches were picked out of a log, `hole_end_before` has for each base offset where the log's last hole
        before the batch ended: the batches that were not picked are not holes.

        Raises:
            WireError: a batch, key or value of this log cannot be decoded; `position` is the batch's offset.
        """
        raw, last_at = bytes(buffer), -1
        try:
            for at, batch in self.batches(raw):
                if isinstance(batch, BatchHeader):
                    self.note_hole(batch)
                    self._take_decoded(raw, at, batch, hole_end_before)
                else:
                    base_offset = batch[1]
                    if base_offset > self.position:
                        self._pass_hole(base_offset)
                    if hole_end_before is not None:
                        self.last_hole_end = hole_end_before[base_offset]
                    if base_offset >= self.start:
                        self._stamp(batch[3], batch[2])
                        self.take_usual(at, batch)
                last_at = at
        finally:
            if last_at >= 0:
                self.last_header = header_at(raw, last_at)

    def _take_decoded(
        self, raw: bytes, at: int, header: BatchHeader, hole_end_before: Mapping[Offset, Offset] | None
    ) -> None:
        """Decodes one batch that `quick_decode` does not accept."""
        if hole_end_before is not None:
            self.last_hole_end = hole_end_before[header.base_offset]
        if header.base_offset >= self.start and not header.is_control:
            records = logged_records(raw, at, header)
            for record in records:
                self._stamp(record.timestamp_ms, header.leader_epoch)
            self.take_unusual(records, at, header)

    def take_usual(self, at: int, seen: QuickDecoded) -> None:
        """Folds a batch that `quick_decode` has accepted; it begins at a byte of `raw`."""
        del at
        if seen[8] == NO_VALUE:
            self._tombstone(seen[4].decode(), seen[1])
        else:
            previous_id = seen[6] if seen[6] >= 0 else None
            self._value(quick_view(seen, self.log.partition), seen[5], previous_id)

    def take_unusual(self, records: list[LoggedRecord], at: int, header: BatchHeader) -> None:
        """Folds the records of any other batch."""
        del at
        epoch = CoordinatorEpoch(header.leader_epoch)
        for record in records:
            value = record.value
            if value is None:
                self._tombstone(record.transactional_id, record.offset)
            else:
                view = view_of(record, value, self.log.partition, epoch)
                self._value(view, value.producer_id, value.previous_producer_id)

    def beyond_end(self, header: BatchHeader) -> None:
        """Notes the hole at the end of the range, if there is one."""
        self.note_hole(header)

    def note_hole(self, header: BatchHeader) -> None:
        """Notes a hole if offsets are missing before the next batch or in it."""
        if header.base_offset > self.position and self.hole is None:
            self.hole = self.position
        self.last_hole_end = last_hole_end(self.last_hole_end, self.position, header)

    def _pass_hole(self, end: Offset) -> None:
        if self.hole is None:
            self.hole = self.position
        self.last_hole_end = end

    def _stamp(self, timestamp_ms: TimestampMs, leader_epoch: LeaderEpoch) -> None:
        stamps = self.stamps
        if stamps is None or stamps.leader_epoch != leader_epoch:
            self.stamps = Stamps(leader_epoch, timestamp_ms, timestamp_ms)
            return
        stamps.lowest_ms = min(stamps.lowest_ms, timestamp_ms)
        stamps.last_ms = timestamp_ms

    def _tombstone(self, transactional_id: str, offset: Offset) -> None:
        self._gone[transactional_id] = offset
        use = self._owner.get(transactional_id)
        if use is not None:
            if use.decided is not None and not use.decided.is_final:
                use.decided = None  # what follows is of another life of the id, and proves nothing about this one
            use.view = replace(use.last_view, state=TransactionState.DEAD, log_offset=offset)

    def _value(self, view: CoordinatorView, producer_id: ProducerId, previous_id: ProducerId | None) -> None:
        transactional_id = view.transactional_id
        is_new, end = view.log_offset >= self.backlog_end, None
        if is_new and view.state.is_complete:
            assert view.coordinator_epoch is not None
            end = Completion(view.state, view.record_timestamp_ms, view.last_update_ms, view.coordinator_epoch)
        use = self._owner.get(transactional_id)
        if use is None or use.producer_id != producer_id or (previous_id is not None and previous_id != producer_id):
            formers = {producer_id if use is None else use.producer_id}
            if previous_id is not None:
                formers.add(previous_id)
            for former in formers - {producer_id}:
                self._supersede(self._use(former, transactional_id), view, producer_id, end, is_new=is_new)
            use = self._owner[transactional_id] = self._use(producer_id, transactional_id)
        if view.is_live and view.participants is not use.held:
            use.held = use.held | view.participants if use.held else view.participants
        if end is not None:
            self._time(use, end)
        if is_new:
            self._decide(use, view, view.producer_epoch)
        prior, use.view = use.view, begun(view)
        if prior is not None or self.last_hole_end > self.start:
            is_consecutive = prior is not None and prior.log_offset >= self.last_hole_end
            use.view = follow(prior, use.view, is_consecutive=is_consecutive)

    def _time(self, use: RangeUse, end: Completion) -> None:
        """Times a transaction that ends here; if it was prepared before the range, the state times it."""
        if use.view is None:
            use.first_end = end
        else:
            self._ended.finish(use.view, end)

    def _use(self, producer_id: ProducerId, transactional_id: str) -> RangeUse:
        return self._uses.setdefault((producer_id, transactional_id), RangeUse(producer_id))

    def _decide(self, use: RangeUse, view: CoordinatorView, producer_epoch: ProducerEpoch | None) -> None:
        """Keeps what the range decides first, with the next record of the id."""
        before = use.decided
        if before is None:
            is_first = use.view is None and self.last_hole_end <= self.start
            use.decided = decision_of(view, producer_epoch, is_first=is_first)
        elif not before.is_final:
            is_consecutive = before.log_offset >= self.last_hole_end
            use.decided = decision_after(before, view, producer_epoch, is_consecutive=is_consecutive)

    def _supersede(
        self, former: RangeUse, view: CoordinatorView, successor: ProducerId, end: Completion | None, *, is_new: bool
    ) -> None:
        if end is not None:
            self._time(former, end)
        if is_new:
            self._decide(former, view, None)
        held = former.view.participants if former.view is not None else NO_PARTICIPANTS
        former.view = replace(view, superseded_by=successor, participants=held)

    def facts(self, *, is_first: bool = False) -> Iterator[TransactionSeen | TransactionalIdGone | CompletionTimes]:
        """One fact for each use of a producer id, the last tombstone of each id that has one, and completion times.

        A tombstone counts even if the id has come back since: it ends what was known under a former producer id, which
        the new records do not name. The new records have higher offsets and take precedence.

        `is_first` is for the beginning of a first read: nothing is known yet that idle ids or tombstones could end. For
        the verdict an idle id equals an absent one, and loading a million of them would take minutes.
        """
        for use in self._uses.values():
            view = use.last_view
            is_past = not view.is_live and view.log_offset < self.backlog_end
            if not (is_past and is_first):
                held = use.held - view.participants if view.is_live else use.held
                yield TransactionSeen(use.producer_id, view, held, use.first_end, is_past, use.decided)
        for transactional_id, offset in self._gone.items():
            if offset >= self.backlog_end or not is_first:
                yield TransactionalIdGone(transactional_id, self.log.partition, offset)
        latencies = self._ended.latencies()
        if latencies:
            yield CompletionTimes(self.log, latencies)

    def forget_idle_backlog(self) -> None:
        """Forgets idle ids whose records are all below `backlog_end`; a later record counts as the first of its id.

        `facts(is_first=True)` does not return these ids.
        """
        self._uses = {
            of: use
            for of, use in self._uses.items()
            if use.last_view.is_live or use.last_view.log_offset >= self.backlog_end
        }
        self._owner = {name: use for name, use in self._owner.items() if (use.producer_id, name) in self._uses}
        self._gone = {name: offset for name, offset in self._gone.items() if offset >= self.backlog_end}


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
        self.size += len(raw)
        super().feed(raw)
        self._room.make()

    def take_usual(self, at: int, seen: QuickDecoded) -> None:
        """Notes where the record is."""
        _, base_offset, _, _, name, producer_id, previous_id, is_live, *_ = seen
        if is_live:
            self._live[name] = producer_id
        elif name in self._live:
            del self._live[name]
        self._note(at, producer_id, previous_id, name)
        if base_offset >= self.backlog_end:
            self._has_new_records = True

    def take_unusual(self, records: list[LoggedRecord], at: int, header: BatchHeader) -> None:
        """Notes where the records are."""
        self._has_new_records = self._has_new_records or header.last_offset >= self.backlog_end
        for record in records:
            name, value = record.transactional_id.encode(), record.value
            self._live.pop(name, None)
            if value is None:
                self._note(at, NO_PRODUCER_ID, NO_PRODUCER_ID, name)
                continue
            if value.state.is_live:
                self._live[name] = value.producer_id
            previous_id = NO_PRODUCER_ID if value.previous_producer_id is None else value.previous_producer_id
            self._note(at, value.producer_id, previous_id, name)

    def _note(self, at: int, producer_id: ProducerId, previous_id: ProducerId, name: bytes) -> None:
        self._at.append(self._begins[-1] + at)
        self._ids.append(producer_id)
        self._previous.append(previous_id)
        self._names.append(hash(name))
        self._whole.append(self.last_hole_end)

    def condense(self) -> None:
        """Folds the held records that matter, then releases all bytes and forgets the idle ids."""
        wanted = {*self._live.values(), *(producer_id for producer_id, _ in self._uses)}
        names = {*map(hash, map(str.encode, self._owner))}
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
            self._uses = {of: use for of, use in self._uses.items() if of[0] in wanted}
        self.forget_idle_backlog()
        self._let_go()

    def _fold(self, at: int) -> None:
        chunk = bisect_right(self._begins, at) - 1
        raw = self._chunks[chunk]
        position = at - self._begins[chunk]
        batch = batch_at(raw, position)
        if isinstance(batch, BatchHeader):
            super().take_unusual(logged_records(raw, position, batch), position, batch)
        else:
            super().take_usual(position, batch)

    def _let_go(self) -> None:
        self.size = 0
        self._has_new_records = False
        self._chunks: list[bytes] = []
        self._begins: list[int] = []
        # One entry per record: where its batch is, its producer ids, its name's hash, and `last_hole_end` at that time.
        self._at, self._ids, self._previous = array("q"), array("q"), array("q")
        self._names, self._whole = array("q"), array("q")

    def facts(self, *, is_first: bool = True) -> Iterator[TransactionSeen | TransactionalIdGone | CompletionTimes]:
        """The facts of each producer id that ends live, and of the records from `backlog_end` on."""
        assert is_first, "idle transactions were not folded"
        self.condense()
        yield from super().facts(is_first=True)
