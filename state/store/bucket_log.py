"""A bucket's state as a log: an entry per batch, and a snapshot now and then. Pure: a `LogStore` keeps the bytes.

The store has a head, and an entry for each batch that changed something since the last snapshot. The head has the
sequence of the last entry, and a random token for each entry since the snapshot; the snapshot is the first of these
entries. So the cost of a batch depends on its changes: one read, and two writes or none, however many producers there
are.

Law: the store is the only truth. A decoded bucket in memory is used only if its last token is in the head at the same
sequence. Then it lacks only the entries after that; otherwise everything is read. The sequence alone is not sufficient.
A failed attempt leaves a bucket in memory whose writes are gone, and the next attempt may have another census under the
same sequence. A batch that is replayed finds an older head, which has no later token.

Derived data (the agenda's heap, the indexes of awaited producers, the last emitted list) is updated with each entry, or
rebuilt.

A producer with nothing open is removed at the first snapshot that finds it unchanged for the retention time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Protocol, TypeVar, get_type_hints

from txnwatch.state.detection.bucket_indexes import Awaited, OpenAges
from txnwatch.state.detection.bucket_state import BucketState, SharedState
from txnwatch.state.detection.reading import Reading
from txnwatch.state.model.errors import CheckpointError
from txnwatch.state.model.findings import OpenTransaction
from txnwatch.state.model.serializer import PartSerializer, Serializer
from txnwatch.state.model.transaction import ProducerState
from txnwatch.state.model.values import DurationMs, ModelValue, ProducerId, TimestampMs, TopicPartition

# The stored types of the state: producers and the shared state of a bucket, as bytes.
#
# state/model/serializer.py encodes them by their types. A stored producer and a part of the shared state have no
# version of their own: the log entry that contains them has one, which covers them.

_PRODUCER = PartSerializer[ProducerState](ProducerState)
_HINTS = get_type_hints(SharedState)
_SHARED = {field.name: PartSerializer[Any](_HINTS[field.name]) for field in fields(SharedState)}
STORED_PARTS = (ProducerState, SharedState)

encode_producer = _PRODUCER.encode
decode_producer = _PRODUCER.decode


def encode_shared(bucket: SharedState) -> dict[str, bytes]:
    """The shared state of a bucket, each field by its name; equal values have equal bytes."""
    return {name: part.encode(getattr(bucket, name)) for name, part in _SHARED.items()}


def decode_shared(bucket: BucketState, parts: Mapping[str, bytes]) -> None:
    """Sets the fields that `encode_shared` wrote in a bucket."""
    for name, packed in parts.items():
        setattr(bucket, name, _SHARED[name].decode(packed))


TOKEN_BYTES = 8
MAX_ENTRIES = 256
SMALL_LOG = 1 << 16  # bytes; a smaller log is not worth a snapshot
_STEPS = 16  # different limits: buckets that change equally write their snapshots in different batches

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_Followed = dict[ProducerId, OpenTransaction | None]
_Readings = dict[TopicPartition, Reading | None]
_BY_KEY = ("followed", "holding", "readings")  # of a bucket: the entries of each that have changed are stored


class Head(ModelValue, frozen=True):
    """The sequence of the last entry, and the tokens of the entries since the last snapshot as one byte string."""

    sequence: int
    tokens: bytes


class Entry(ModelValue, frozen=True):
    """One entry of the log.

    Attributes:
        token: that of the head. Files of two attempts of one micro-batch may be on a disk; this tells them apart.
        parts: fields of the shared state that have changed.
        followed, holding: changes of the two kinds of places in the open list; None removes a producer.
        readings: changes of what is known about the readings of partitions; None removes a partition.
        producer_ids, rows, written_ms: the producers that have changed, and when (our clock).
        times: changes of the agenda; None removes a producer.
    """

    token: bytes
    parts: dict[str, bytes]
    followed: _Followed
    holding: _Followed
    readings: _Readings
    producer_ids: list[ProducerId]
    rows: list[bytes]
    written_ms: list[TimestampMs]
    times: dict[ProducerId, TimestampMs | None]


HEADS = Serializer[Head](Head, (Entry, *STORED_PARTS))
ENTRIES = Serializer[Entry](Entry, STORED_PARTS)


class LogStore(Protocol):
    """Storage for one bucket's head and entries; a write counts once the batch is committed."""

    def head(self) -> bytes | None:
        """The head, None if there is none yet."""

    def put_head(self, head: bytes) -> None:
        """Replaces the head."""

    def entry(self, sequence: int) -> bytes | None:
        """One entry, None if it is missing."""

    def put_entry(self, sequence: int, entry: bytes) -> None:
        """Adds an entry."""

    def clear(self) -> None:
        """Removes all entries."""


class KeptBucket:
    """One bucket in memory, decoded as far as needed; a ProducerStore between `load` and `write`.

    Attributes:
        bucket: the state that the producers share.
        decoded: how many producers are kept as objects: those of the last batch.
    """

    def __init__(self, number: int) -> None:
        self.bucket = BucketState(number=number, awaited=Awaited(), ages=OpenAges())
        self._sequence = 0
        self._tokens: list[bytes] = []
        self._rows: dict[ProducerId, bytes] = {}
        self._written_ms: dict[ProducerId, TimestampMs] = {}
        self._objects: dict[ProducerId, ProducerState] = {}
        self._used: dict[ProducerId, ProducerState] = {}
        self._changed: dict[ProducerId, ProducerState] = {}
        self._shared: dict[str, bytes] = {}
        self._by_key = _copies(self.bucket)
        self._snapshot_bytes = self._log_bytes = 0

    @property
    def decoded(self) -> int:
        """How many producers are kept as objects."""
        return len(self._objects)

    @property
    def producer_ids(self) -> frozenset[ProducerId]:
        """All known producer ids, also idle ones."""
        return frozenset(self._rows)

    def get(self, producer_id: ProducerId) -> ProducerState | None:
        """The latest version of the producer, or None."""
        producer = self._used.get(producer_id) or self._objects.get(producer_id)
        if producer is None:
            row = self._rows.get(producer_id)
            if row is None:
                return None
            producer = decode_producer(row)
        self._used[producer_id] = producer
        return producer

    def put(self, producer: ProducerState) -> None:
        """Keeps the producer; `write` stores it."""
        self._used[producer.producer_id] = self._changed[producer.producer_id] = producer

    def write(self, store: LogStore, token: bytes, now_ms: TimestampMs, retention_ms: DurationMs) -> None:
        """Stores the changes since `load`; `token` is random, `now_ms` is our clock at the batch's barrier."""
        bucket = self.bucket
        shared, agenda = encode_shared(bucket), bucket.agenda
        parts = {name: part for name, part in shared.items() if self._shared.get(name) != part}
        by_key = {name: _changes(self._by_key[name], getattr(bucket, name)) for name in _BY_KEY}
        rows = {pid: encode_producer(producer) for pid, producer in self._changed.items()}
        if parts or any(by_key.values()) or rows or agenda.changed:
            self._rows.update(rows)
            self._written_ms.update(dict.fromkeys(rows, now_ms))
            if self._needs_snapshot():
                self._forget_idle(now_ms - retention_ms)
                entry = _entry(token, shared, _copies(bucket), self._rows, self._written_ms, {**agenda})
                store.clear()
                self._tokens, self._snapshot_bytes, self._log_bytes = [], len(entry), 0
            else:
                times = {pid: agenda.get(pid) for pid in agenda.changed}
                entry = _entry(token, parts, by_key, rows, dict.fromkeys(rows, now_ms), times)
                self._log_bytes += len(entry)
            self._sequence += 1
            self._tokens.append(token)
            store.put_entry(self._sequence, entry)
            store.put_head(HEADS.encode(Head(self._sequence, b"".join(self._tokens))))
            self._shared = shared
            self._by_key = _copies(bucket)
        agenda.settle()
        self._changed = {}
        self._objects, self._used = self._used, {}

    def _needs_snapshot(self) -> bool:
        if not self._tokens:
            return True
        max_bytes = max(SMALL_LOG, self._own(2 * self._snapshot_bytes))
        return len(self._tokens) >= self._own(MAX_ENTRIES) or self._log_bytes > max_bytes

    def _own(self, limit: int) -> int:
        """The limit of this bucket: the whole, down to about half of it."""
        return limit - self.bucket.number % _STEPS * limit // (2 * _STEPS)

    def _forget_idle(self, before_ms: TimestampMs) -> None:
        agenda = self.bucket.agenda
        idle = [pid for pid, written_ms in self._written_ms.items() if written_ms <= before_ms and pid not in agenda]
        for producer_id in idle:
            del self._rows[producer_id], self._written_ms[producer_id]
            self._used.pop(producer_id, None)

    def lacks(self, sequence: int, tokens: list[bytes]) -> range | None:
        """The entries that the head names and this bucket lacks; None if the head is of another history."""
        first = sequence - len(tokens) + 1
        if not self._tokens or not first <= self._sequence <= sequence:
            return None
        return range(self._sequence + 1, sequence + 1) if self._tokens[-1] == tokens[self._sequence - first] else None

    def read(self, store: LogStore, missing: range, tokens: list[bytes]) -> None:
        """Reads entries that other processes have written, and updates the derived data.

        Raises:
            CheckpointError: an entry is missing, or another attempt of its micro-batch wrote it.
        """
        first = missing.stop - len(tokens)
        for sequence in missing:
            packed = store.entry(sequence)
            if packed is None:
                raise _incomplete("lacks", sequence)
            entry = ENTRIES.decode(packed)
            if entry.token != tokens[sequence - first]:
                raise _incomplete("has another", sequence)
            if sequence == first:
                self._snapshot_bytes, self._log_bytes = len(packed), 0
            else:
                self._log_bytes += len(packed)
            self._take(entry)
        if missing:
            self._sequence, self._tokens = missing.stop - 1, tokens
            self._by_key = _copies(self.bucket)
            self.bucket.agenda.settle()
            self.bucket.shown = None

    def _take(self, entry: Entry) -> None:
        decode_shared(self.bucket, entry.parts)
        self._shared.update(entry.parts)
        for name in _BY_KEY:
            _apply(getattr(entry, name), getattr(self.bucket, name))
        self._rows.update(zip(entry.producer_ids, entry.rows, strict=True))
        self._written_ms.update(zip(entry.producer_ids, entry.written_ms, strict=True))
        for producer_id in entry.producer_ids:
            self._objects.pop(producer_id, None)
            self._used.pop(producer_id, None)
        agenda = self.bucket.agenda
        for producer_id, when_ms in entry.times.items():
            if when_ms is None:
                agenda.drop(producer_id)
            else:
                agenda.put(producer_id, when_ms)
        self._place({*entry.producer_ids, *entry.times})

    def _place(self, producer_ids: set[ProducerId]) -> None:
        for producer_id in producer_ids:
            if self.bucket.holders is not None:
                self.bucket.holders.put(self._stored(producer_id), self._stored)
            if producer_id in self.bucket.agenda:
                self.bucket.index(self._stored(producer_id))
            else:
                self.bucket.unindex(producer_id)

    def _stored(self, producer_id: ProducerId) -> ProducerState:
        return decode_producer(self._rows[producer_id])


def load(kept: KeptBucket | None, store: LogStore, number: int) -> KeptBucket:
    """The bucket as stored; it is built on `kept` if that is an earlier state of the same history.

    Raises:
        CheckpointError: the state is damaged, or another version wrote it. The version of the head covers all entries.
    """
    head = store.head()
    if head is None:
        return KeptBucket(number)
    decoded = HEADS.decode(head)
    sequence, tokens = (
        decoded.sequence,
        [decoded.tokens[at : at + TOKEN_BYTES] for at in range(0, len(decoded.tokens), TOKEN_BYTES)],
    )
    missing = kept.lacks(sequence, tokens) if kept is not None else None
    if kept is not None and missing is not None:
        kept.read(store, missing, tokens)
        return kept
    anew = KeptBucket(number)
    anew.read(store, range(sequence - len(tokens) + 1, sequence + 1), tokens)
    anew.bucket.forget_emitted()
    return anew


def _incomplete(what: str, sequence: int) -> CheckpointError:
    return CheckpointError(
        f"the stored state {what} entry {sequence}, which its head names: give a new --checkpoint directory; open "
        "incidents come from the events topic, and the state is built from the logs again"
    )


def _copies(bucket: BucketState) -> dict[str, dict[Any, Any]]:
    return {name: dict(getattr(bucket, name)) for name in _BY_KEY}


def _changes(before: Mapping[_Key, _Value], now: Mapping[_Key, _Value]) -> dict[_Key, _Value | None]:
    """What differs, by key; None for what is no longer there."""
    changed: dict[_Key, _Value | None] = dict.fromkeys(before.keys() - now.keys())
    changed.update((key, value) for key, value in now.items() if before.get(key) != value)
    return changed


def _apply(changes: Mapping[_Key, _Value | None], values: dict[_Key, _Value]) -> None:
    for key, value in changes.items():
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value


def _entry(
    token: bytes,
    parts: dict[str, bytes],
    by_key: dict[str, dict[Any, Any]],
    rows: Mapping[ProducerId, bytes],
    written_ms: Mapping[ProducerId, TimestampMs],
    times: dict[ProducerId, TimestampMs | None],
) -> bytes:
    return ENTRIES.encode(
        Entry(
            token=token,
            parts=parts,
            **by_key,
            producer_ids=list(rows),
            rows=list(rows.values()),
            written_ms=[written_ms[pid] for pid in rows],
            times=times,
        )
    )
