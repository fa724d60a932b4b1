"""The first read of `__transaction_state`, in two passes: of a million ids, only those that end live are folded.

Apart: it is pure, and source/tasks.py reads.

Of the records that were there before reading began, `TransactionFold.facts(is_first=True)` returns only the producer
ids that end live. So the first pass finds these ids with a fast look at the bytes, and the second pass runs the exact
fold over their records.

Law: the facts equal those of the exact fold over the same bytes, in the same order. Why the other records may be left
out:

1. The facts of a producer id P of a transactional id (its view, what it held, how it ended) change only with a record
   of that id that names P, as its producer id or the previous one, or with a record or tombstone of the id after its
   last record named P.
2. P ends live only if the last record that changed it is live and names P. Its transactional id has no record after
   that, because such a record would have changed P again. So P is the producer id of a last record that is live. These
   are the wanted producer ids: there are no more of them than live transactional ids.
3. A record is folded if it names a wanted producer id, or if its transactional id has had such a record before. These
   are all records of 1. An additional record (of the same batch, or of a name with the same hash) changes only producer
   ids that are not wanted, and their facts are dropped.
4. The exact fold reports nothing of the other producer ids either: they are idle and past, and their tombstones are
   past. In later ranges it does report such ids, and the state drops these facts unless it awaits the id (`pass_over`
   in state/detection/batch.py). At a first read the state awaits only ids that the log itself has shown.

The first pass reads a batch directly from its bytes (wire/transaction_log.py). If the bytes are unusual, it decodes the
batch at once, so damaged bytes stop both passes where they stop the exact fold. The first pass also sets positions,
holes and stamps.

The bytes are held until the second pass, and `HeldBytes` limits them. If a task holds too many, the fold that holds the
most makes its second pass at once and forgets the idle ids. A later record then counts as the first of its id, as it
does after a range is cut.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping

from txnwatch.state.model.facts import TransactionalIdGone, TransactionSeen
from txnwatch.state.model.values import Offset, ProducerId
from txnwatch.streaming.log.transaction_fold import TransactionFold, logged_records
from txnwatch.streaming.wire.record_batch import LENGTH_OVERHEAD, BatchHeader, header_at
from txnwatch.streaming.wire.transaction_log import NO_PRODUCER_ID, quick_decode

HELD_BYTES = 16 << 20


class HeldBytes:
    """Limits the bytes of records that the folds of one task hold together; one fold per partition of the log."""

    def __init__(self, max_bytes: int = HELD_BYTES) -> None:
        self._max_bytes = max_bytes
        self._folds: dict[int, FirstReadFold] = {}

    def enter(self, fold: FirstReadFold) -> None:
        """Adds a fold; it replaces an earlier fold of the same partition."""
        self._folds[fold.log_partition] = fold

    def make(self) -> None:
        """Makes folds release what they hold, the largest first, until the limit is kept."""
        while sum(fold.size for fold in self._folds.values()) > self._max_bytes:
            max(self._folds.values(), key=lambda fold: fold.size).condense()


class FirstReadFold(TransactionFold):
    """Folds the first range read of a partition, all of which was there before reading began.

    Attributes:
        size: bytes of records that are held.
    """

    def __init__(self, log_partition: int, start: Offset, end: Offset, *, backlog_end: Offset, room: HeldBytes) -> None:
        super().__init__(log_partition, start, end, backlog_end=backlog_end)
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
        at, live = 0, self._live
        while True:
            seen = quick_decode(raw, at)
            if seen is None:
                found = next(self.headers(raw, at), None)
                if found is None:
                    return
                self.note_hole(found[1])
                at = self._decode(raw, begin, *found)
                continue
            end, base_offset, leader_epoch, timestamp_ms, key, producer_id, previous_id, is_live = seen
            if base_offset > self.position:
                self._pass_hole(base_offset)
            if base_offset >= self.end:
                self.position = self.end
                return
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
            at = end

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
