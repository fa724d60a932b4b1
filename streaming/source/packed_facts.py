"""Binary format of facts between the source's tasks and the stateful operator: one blob per task and bucket.

Facts for all buckets are packed once and copied into each blob. A blob lives only as long as its batch, so the same
version normally writes and reads it. It still has a version number, because an executor may run an older version.

A fact is a tuple whose first value is the kind. The other values are in the order of the fact's fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa

from txnwatch.state.model.broker_clocks import Clock, Leader
from txnwatch.state.model.completion_latency import End, latencies_of
from txnwatch.state.model.facts import (
    Barrier,
    CensusListing,
    CensusTaken,
    Fact,
    Joined,
    LastStable,
    LogRead,
    NoticeKind,
    OpenDescribed,
    PartitionNotice,
    ProducerSeen,
    Throttled,
    TransactionalIdGone,
    TransactionSeen,
)
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.serializer import pack, pack_versioned, unpack, unpack_versioned
from txnwatch.state.model.transaction import Marker, TransactionState
from txnwatch.state.store.codec import view_in, view_out
from txnwatch.streaming.source.fact_rows import PARTITION_BUCKET, bucket_of

VERSION: Final = 1
PACKED_SCHEMA: Final = pa.schema([pa.field("bucket", pa.int32()), pa.field("facts", pa.binary())])
PACKED_DDL: Final = "bucket INT, facts BINARY"

Packed = tuple[Any, ...]


def pack_facts(facts: Iterable[Fact], buckets: int) -> Iterator[tuple[int, bytes]]:
    """Yields (bucket, blob) for each bucket that has facts."""
    own: list[list[Packed]] = [[] for _ in range(buckets)]
    shared: list[Packed] = []
    for fact in facts:
        kind = type(fact)
        packed = _WRITE[kind](fact)
        if isinstance(fact, ProducerSeen | TransactionSeen | OpenDescribed):
            own[bucket_of(fact.producer_id, buckets)].append(packed)
        elif isinstance(fact, LastStable | Throttled):
            own[PARTITION_BUCKET].append(packed)
        else:
            shared.append(packed)
    for_all = pack(shared)
    for bucket, packed_facts in enumerate(own):
        if packed_facts or shared:
            yield bucket, pack_versioned(VERSION, packed_facts, for_all)


def unpack_facts(blob: bytes) -> list[Fact]:
    """The facts of one blob.

    Raises:
        CheckpointError: another version wrote the blob.
    """
    own, for_all = unpack_versioned(VERSION, blob)
    return [*(_READ[packed[0]](packed) for packed in own), *_shared(for_all)]


def packed_batch(facts: Iterable[Fact], buckets: int) -> pa.RecordBatch:
    """The blobs of one task as an Arrow batch of PACKED_SCHEMA."""
    blobs = list(pack_facts(facts, buckets))
    columns = [
        pa.array([bucket for bucket, _ in blobs], pa.int32()),
        pa.array([blob for _, blob in blobs], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=PACKED_SCHEMA)


@lru_cache(maxsize=4)  # the buckets of a batch are processed one after the other
def _shared(packed: bytes) -> tuple[Fact, ...]:
    return tuple(_READ[fact[0]](fact) for fact in unpack(packed))


@lru_cache(maxsize=1 << 16)
def _partition(raw: tuple[str, int]) -> TopicPartition:
    return TopicPartition(*raw)


def _partitions(raw: Sequence[tuple[str, int]]) -> frozenset[TopicPartition]:
    return frozenset(map(_partition, raw))


_SEEN: Final[Callable[..., ProducerSeen]] = ProducerSeen
_MARKER: Final = attrgetter("offset", "producer_epoch", "commit", "coordinator_epoch", "timestamp_ms")


def _marker_out(marker: Marker | None) -> Packed | None:
    return _MARKER(marker) if marker is not None else None


def _marker_in(raw: Packed | None) -> Marker | None:
    return Marker(*raw) if raw is not None else None


def _joined_in(raw: Packed | None) -> Joined | None:
    if raw is None:
        return None
    start_offset, start_epoch, offset, epoch, marker = raw
    return Joined(start_offset, start_epoch, offset, epoch, _marker_in(marker))


def _producer_out(fact: ProducerSeen) -> Packed:
    joined = fact.joined
    return (
        _PRODUCER,
        fact.partition,
        fact.topic_id,
        fact.producer_id,
        fact.range_start,
        fact.range_end,
        fact.first_offset,
        fact.first_epoch,
        _marker_out(fact.first_marker),
        _marker_out(fact.last_marker),
        fact.open_offset,
        fact.open_epoch,
        fact.epoch,
        fact.last_offset,
        fact.last_timestamp_ms,
        fact.listed_ms,
        (*joined[:-1], _marker_out(joined.marker)) if joined is not None else None,
    )


def _producer_in(raw: Packed) -> ProducerSeen:
    _, partition, topic_id, producer_id, start, end, first, first_epoch, first_marker, last_marker, *rest, joined = raw
    return _SEEN(
        _partition(partition),
        topic_id,
        producer_id,
        start,
        end,
        first,
        first_epoch,
        _marker_in(first_marker),
        _marker_in(last_marker),
        *rest,
        _joined_in(joined),
    )


def _transaction_out(fact: TransactionSeen) -> Packed:
    held = sorted(fact.held)
    return (_TRANSACTION, fact.producer_id, view_out(fact.view), held, fact.ended, fact.first_end, fact.is_past)


def _transaction_in(raw: Packed) -> TransactionSeen:
    _, producer_id, view, held, ended, end, is_past = raw
    first_end = End(TransactionState(end[0]), *end[1:]) if end is not None else None
    return TransactionSeen(producer_id, view_in(view), _partitions(held), latencies_of(ended), first_end, is_past)


def _notice_in(raw: Packed) -> PartitionNotice:
    _, kind, partition, *rest = raw
    return PartitionNotice(NoticeKind(kind), _partition(partition), *rest)


def _census_out(fact: CensusTaken) -> Packed:
    return _CENSUS, list(fact.taken.items()), sorted(fact.failed), fact.is_round, sorted(fact.failed_scanned)


def _census_in(raw: Packed) -> CensusTaken:
    _, taken, failed, is_round, failed_scanned = raw
    brackets = {_partition(partition): CensusListing(*bracket) for partition, bracket in taken}
    return CensusTaken(brackets, _partitions(failed), is_round, _partitions(failed_scanned))


def _barrier_out(fact: Barrier) -> Packed:
    return (
        _BARRIER,
        fact.number,
        fact.data_listed_ms,
        fact.coordinator_listed_ms,
        sorted(fact.stale_data),
        sorted(fact.limited_data),
        sorted(fact.stale_coordinator),
        list(fact.reread.items()),
        sorted(fact.risen),
        dict(fact.leaders),
        dict(fact.clocks),
        fact.scan_interval_ms,
        fact.holes,
        fact.has_coordinator_log,
    )


def _barrier_in(raw: Packed) -> Barrier:
    _, number, data_ms, log_ms, stale, limited, stale_logs, reread, risen, leaders, clocks, scan_ms, holes, has_log = (
        raw
    )
    return Barrier(
        number,
        data_ms,
        log_ms,
        stale_data=_partitions(stale),
        limited_data=_partitions(limited),
        stale_coordinator=frozenset(stale_logs),
        reread={_partition(partition): start for partition, start in reread},
        risen=_partitions(risen),
        leaders={log_partition: Leader(*leader) for log_partition, leader in leaders.items()},
        clocks={broker: Clock(*clock) for broker, clock in clocks.items()},
        scan_interval_ms=scan_ms,
        holes=holes,
        has_coordinator_log=has_log,
    )


def _log_read_in(raw: Packed) -> LogRead:
    _, holes, clocks = raw
    return LogRead(holes, {broker: Clock(*clock) for broker, clock in clocks.items()})


def _flat(kind: int, *names: str) -> Callable[[Any], Packed]:
    values = attrgetter(*names)
    return lambda fact: (kind, *values(fact))


(_PRODUCER, _TRANSACTION, _GONE, _NOTICE, _OPEN, _LAST_STABLE, _THROTTLED, _CENSUS, _BARRIER, _LOG_READ) = range(10)
_WRITE: Final[dict[type, Callable[[Any], Packed]]] = {
    ProducerSeen: _producer_out,
    TransactionSeen: _transaction_out,
    TransactionalIdGone: _flat(_GONE, "transactional_id", "log_partition", "log_offset"),
    PartitionNotice: _flat(_NOTICE, "kind", "partition", "topic_id", "from_offset", "to_offset", "detail"),
    OpenDescribed: _flat(
        _OPEN, "partition", "producer_id", "producer_epoch", "start_offset", "last_timestamp_ms", "listed_ms"
    ),
    LastStable: _flat(_LAST_STABLE, "partition", "topic_id", "offset"),
    Throttled: lambda fact: (_THROTTLED, dict(fact.throttled_ms)),
    CensusTaken: _census_out,
    Barrier: _barrier_out,
    LogRead: lambda fact: (_LOG_READ, dict(fact.holes), dict(fact.clocks)),
}
_READ: Final[dict[int, Callable[[Packed], Fact]]] = {
    _PRODUCER: _producer_in,
    _TRANSACTION: _transaction_in,
    _GONE: lambda raw: TransactionalIdGone(*raw[1:]),
    _NOTICE: _notice_in,
    _OPEN: lambda raw: OpenDescribed(_partition(raw[1]), *raw[2:]),
    _LAST_STABLE: lambda raw: LastStable(_partition(raw[1]), *raw[2:]),
    _THROTTLED: lambda raw: Throttled(raw[1]),
    _CENSUS: _census_in,
    _BARRIER: _barrier_in,
    _LOG_READ: _log_read_in,
}
