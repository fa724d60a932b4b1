"""The first reading of `__transaction_state`: of a million ids that are idle only those are folded that matter.

What `TransactionFold.facts(is_first=True)` tells of what was there before reading began are the producer ids that end
live. So it is found out first which those are, by a look at the bytes; then the exact fold runs over their records.

Law: the facts are those of the exact fold over the same bytes, in the same order. Why the rest may be left out:

1. What is said of a producer id P (its view, what it held, how it ended) changes only with a record that names P, as
   its producer id or the previous one, and with a record or tombstone of a transactional id whose last record named P.
2. P ends live only if the last record that changed it is live and names P; after that its transactional id has no
   other record, which would have changed P again. So P is the producer id of a last record that is live. Those are the
   producer ids that are wanted: no more than there are live transactional ids.
3. A record is folded if it names one that is wanted, or if its transactional id has had such a record before. These
   are all of 1. A record too many (of the same batch, or of a name with the same hash) changes only ids that are not
   wanted, and what it has made of them is dropped.
4. Of what is not wanted nothing is told: it is idle and past, and its tombstones are past. What is told of it
   otherwise, in later ranges, the state drops unless it awaits the id (`pass_over` in state/detection/bucket.py);
   of a first reading nothing is awaited that the log itself has not shown.

What a batch says is read off its bytes (wire/glance.py), or, where these are not as usual, decoded at once, so that
damaged bytes stop both passes where they stop the exact fold. Positions, holes and stamps are taken in the first pass.

The bytes are held until the second pass. `Room` bounds them: where a task holds too many, the fold that holds the most
makes its second pass at once, and forgets what is idle. What comes later of these ids is then their beginning, as it
is where a range is cut.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import suppress

from txnwatch.state.model.errors import WireError
from txnwatch.state.model.facts import TransactionalIdGone, TransactionSeen
from txnwatch.streaming.log.transaction_fold import TransactionFold
from txnwatch.streaming.wire.glance import NO_ID, glance
from txnwatch.streaming.wire.record_batch import LENGTH_OVERHEAD, BatchHeader, records, walk
from txnwatch.streaming.wire.transaction_log import decode_key, decode_value

HELD_BYTES = 16 << 20


class Room:
    """How many bytes of records the folds of one task hold together, one fold for each partition of the log."""

    def __init__(self, max_bytes: int = HELD_BYTES) -> None:
        self._max_bytes = max_bytes
        self._folds: dict[int, PastFold] = {}

    def enter(self, fold: PastFold) -> None:
        """A fold that will hold some; it takes the place of an earlier one of the same partition."""
        self._folds[fold.log_partition] = fold

    def make(self) -> None:
        """Has folds let go of what they hold, those that hold the most first."""
        while sum(fold.size for fold in self._folds.values()) > self._max_bytes:
            max(self._folds.values(), key=lambda fold: fold.size).condense()


class PastFold(TransactionFold):
    """Folds a range that was there before reading began, and is the first to be read of its partition.

    Attributes:
        size: bytes of records that are held.
    """

    def __init__(self, log_partition: int, start: int, end: int, *, news_from: int, room: Room) -> None:
        super().__init__(log_partition, start, end, news_from=news_from)
        self.size = 0
        self._room = room
        self._live: dict[bytes, int] = {}
        self._let_go()
        room.enter(self)

    def feed(self, buffer: memoryview | bytes, whole_before: Mapping[int, int] | None = None) -> None:
        """Looks through the `records` of one Fetch response, and holds them.

        Raises:
            WireError: as the exact fold does.
        """
        assert whole_before is None, "of batches that were picked out nothing is a first reading"
        raw = bytes(buffer)
        self._chunks.append(raw)
        self._begins.append(self.size)
        begin, self.size = self.size, self.size + len(raw)
        self._look_through(raw, begin)
        self._room.make()

    def _look_through(self, raw: bytes, begin: int) -> None:
        at, live = 0, self._live
        while True:
            seen = glance(raw, at)
            if seen is None:
                found = next(walk(raw, at), None)
                if found is None or self._is_behind_end(found[1]):
                    return
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
                if base_offset >= self.news_from:
                    self._has_news = True
            self.leader_epoch = leader_epoch
            self.position = base_offset + 1
            at = end

    def _pass_hole(self, end: int) -> None:
        if self.hole is None:
            self.hole = self.position
        self.whole_from = end

    def _decode(self, raw: bytes, begin: int, at: int, header: BatchHeader) -> int:
        """One batch that is not as usual; where it ends."""
        if header.base_offset >= self.start and not header.is_control:
            self._has_news = self._has_news or header.last_offset >= self.news_from
            for record in records(raw, at, header):
                name = decode_key(record.key) if record.key is not None else None
                if name is None or record.key is None:
                    continue
                self._stamp(record.timestamp, header.leader_epoch)
                key = bytes(record.key)
                value = decode_value(record.value) if record.value is not None else None
                self._live.pop(key, None)
                if value is None:
                    self._note(begin + at, NO_ID, NO_ID, key)
                    continue
                if value.state.is_live:
                    self._live[key] = value.producer_id
                self._note(begin + at, value.producer_id, value.previous_producer_id, key)
        self.leader_epoch = header.leader_epoch
        self.position = header.last_offset + 1
        return at + LENGTH_OVERHEAD + header.length

    def _note(self, at: int, producer_id: int, previous_id: int, key: bytes) -> None:
        self._at.append(at)
        self._ids.append(producer_id)
        self._previous.append(previous_id)
        self._names.append(hash(key))
        self._whole.append(self.whole_from)

    def condense(self) -> None:
        """Folds what is held, as far as it matters, and lets go of it and of what is idle."""
        wanted = {*self._live.values(), *self._views}
        names = {hash(struct.pack(">hh", 0, len(raw)) + raw) for raw in map(str.encode, self._owner)}
        done, whole_at_end = -1, self.whole_from
        noted = zip(self._at, self._ids, self._previous, self._names, self._whole, strict=True)
        for at, producer_id, previous_id, name, whole in noted:
            if producer_id in wanted or previous_id in wanted or name in names or self._has_news:
                names.add(name)
                if at != done:
                    done, self.whole_from = at, whole
                    self._fold(at)
        self.whole_from = whole_at_end
        if not self._has_news:
            self._views = {of: view for of, view in self._views.items() if of in wanted}
        self.forget_past_idle()
        self._let_go()

    def _fold(self, at: int) -> None:
        chunk = bisect_right(self._begins, at) - 1
        raw = self._chunks[chunk]
        position, header = next(walk(raw, at - self._begins[chunk]))
        with suppress(WireError):  # the first pass has raised it: nothing follows it
            for record in records(raw, position, header):
                name = decode_key(record.key) if record.key is not None else None
                if name is not None:
                    self._take(name, record, header.leader_epoch)

    def _let_go(self) -> None:
        self.size = 0
        self._has_news = False
        self._chunks: list[bytes] = []
        self._begins: list[int] = []
        # One entry a record: where its batch is, the producer ids it names, its key's hash, what was whole then.
        self._at, self._ids, self._previous = array("q"), array("q"), array("q")
        self._names, self._whole = array("q"), array("q")

    def facts(self, *, is_first: bool = True) -> Iterator[TransactionSeen | TransactionalIdGone]:
        """What the range says about each producer id that ends live, and about what is news."""
        assert is_first, "what is idle was not folded"
        self.condense()
        yield from super().facts(is_first=True)
