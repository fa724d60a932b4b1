"""The rows of the source: blobs of facts for txnwatch's own job, and rows with columns for other Spark users.

There is one blob for each task and bucket. Facts for all buckets are encoded once and copied into each blob. A blob
lives only as long as its batch, so the same version normally writes and reads it. It still has a version, because an
executor may run another one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, get_args

import pyarrow as pa
from msgspec import Struct, inspect

from txnwatch.state.model.facts import (
    CompletionTimes,
    DataRead,
    Fact,
    LastStable,
    OpenDescribed,
    PartitionNotice,
    ProducerSeen,
    Throttled,
    TransactionSeen,
)
from txnwatch.state.model.serializer import PartSerializer, Serializer
from txnwatch.state.model.values import (
    DurationMs,
    ModelValue,
    Offset,
    ProducerId,
    TopicPartition,
    Variant,
)
from txnwatch.streaming.log.partition_fold import Episode, PartitionFold
from txnwatch.streaming.log.range_reading import Fold, RangeReading

PACKED_SCHEMA: Final = pa.schema([pa.field("bucket", pa.int32()), pa.field("facts", pa.binary())])
PARTITION_BUCKET: Final = 0  # the bucket that handles facts about a whole partition


class Blob(ModelValue, frozen=True):
    """The facts of one task for one bucket, and the encoded facts of the task for all buckets."""

    own: list[Fact]
    for_all: bytes


_FACTS: Final = PartSerializer[list[Fact]](list[Fact])
BLOBS: Final = Serializer[Blob](Blob)


def bucket_of(producer_id: ProducerId, buckets: int) -> int:
    """The state bucket of a producer id. Producer ids come in blocks of consecutive numbers, so modulo spreads them."""
    return producer_id % buckets


def _by_bucket(facts: Iterable[Fact], buckets: int) -> tuple[list[list[Fact]], list[Fact]]:
    """The facts of each bucket alone, and the facts for all buckets."""
    own: list[list[Fact]] = [[] for _ in range(buckets)]
    shared: list[Fact] = []
    for fact in facts:
        if isinstance(fact, ProducerSeen | TransactionSeen | OpenDescribed):
            own[bucket_of(fact.producer_id, buckets)].append(fact)
        elif isinstance(fact, LastStable | Throttled | DataRead | CompletionTimes):
            own[PARTITION_BUCKET].append(fact)
        else:
            shared.append(fact)
    return own, shared


def pack_facts(facts: Iterable[Fact], buckets: int) -> Iterator[tuple[int, bytes]]:
    """Yields (bucket, blob) for each bucket that has facts."""
    own, shared = _by_bucket(facts, buckets)
    for_all = _FACTS.encode(shared)
    for bucket, of_bucket in enumerate(own):
        if of_bucket or shared:
            yield bucket, BLOBS.encode(Blob(of_bucket, for_all))


def unpack_facts(packed: bytes) -> list[Fact]:
    """The facts of one blob.

    Raises:
        CheckpointError: another version wrote the blob.
    """
    blob = BLOBS.decode(packed)
    return [*blob.own, *_shared(blob.for_all)]


def packed_batch(facts: Iterable[Fact], keys: Sequence[int]) -> pa.RecordBatch:
    """The blobs of one task as an Arrow batch of PACKED_SCHEMA; there is a key for each bucket."""
    blobs = list(pack_facts(facts, len(keys)))
    columns = [
        pa.array([keys[bucket] for bucket, _ in blobs], pa.int32()),
        pa.array([blob for _, blob in blobs], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=PACKED_SCHEMA)


@lru_cache(maxsize=4)  # the buckets of a batch are processed one after the other
def _shared(packed: bytes) -> tuple[Fact, ...]:
    return tuple(_FACTS.decode(packed))


# Rows for Spark users, with columns that are derived from types of the model.
#
# Each type has one struct column with the fields of the type. The column `kind` names the column that is filled, so
# `producer_seen.*` selects the columns of a ProducerSeen. Times are epoch milliseconds. A missing value is null.

Row = dict[str, Any]


class RowFormat:
    """The rows of a union of types.

    Args:
        union: the types.
        first: columns before those of the types.

    Attributes:
        schema: the schema of a batch. Spark compares it with `ddl` for equality.
        ddl: the same for Spark.
    """

    def __init__(self, union: object, *first: pa.Field) -> None:
        kinds = [pa.field(kind_of(of), _arrow(inspect.type_info(of))) for of in get_args(union)]
        self.schema = pa.schema([*first, pa.field("kind", pa.string()), *kinds])
        self.ddl = ", ".join(f"{column.name} {ddl_of(column.type)}" for column in self.schema)

    def record_batch(self, rows: Iterable[Row]) -> pa.RecordBatch:
        """Rows as one Arrow batch."""
        all_rows = list(rows)
        columns = [pa.array([row.get(column.name) for row in all_rows], column.type) for column in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def row_of(value: Struct) -> Row:
    """The row of a value."""
    kind = kind_of(type(value))
    return {"kind": kind, kind: _plain(value)}


def kind_of(of: type) -> str:
    """The name of a type in the column `kind`, and of its own column."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", of.__name__).lower()


def _plain(value: Any) -> Any:  # noqa: ANN401 - any value of the model
    if isinstance(value, Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(part) for name, part in value._asdict().items()}
    if isinstance(value, Mapping):
        return [(_plain(key), _plain(part)) for key, part in value.items()]
    if isinstance(value, list | tuple | frozenset):
        return [_plain(part) for part in (sorted(value) if isinstance(value, frozenset) else value)]
    return str(value) if isinstance(value, StrEnum) else value


_ARROW: Final[dict[type[inspect.Type], pa.DataType]] = {
    inspect.BoolType: pa.bool_(),
    inspect.IntType: pa.int64(),
    inspect.StrType: pa.string(),
    inspect.EnumType: pa.string(),
}
_COLLECTIONS = inspect.ListType | inspect.VarTupleType | inspect.FrozenSetType
_DDL: Final = {pa.bool_(): "BOOLEAN", pa.int32(): "INT", pa.int64(): "BIGINT", pa.string(): "STRING"}


def _arrow(info: inspect.Type) -> pa.DataType:
    if isinstance(info, inspect.UnionType):  # a value or None
        (info,) = (part for part in info.types if not isinstance(part, inspect.NoneType))
    if isinstance(info, inspect.StructType | inspect.NamedTupleType):
        return pa.struct([pa.field(part.name, _arrow(part.type)) for part in info.fields])
    if isinstance(info, inspect.DictType):
        return pa.map_(_arrow(info.key_type), _arrow(info.value_type))
    if isinstance(info, _COLLECTIONS):
        return pa.list_(_arrow(info.item_type))
    return _ARROW[type(info)]


def ddl_of(of: pa.DataType) -> str:
    """An Arrow type in the notation of Spark."""
    if pa.types.is_struct(of):
        return f"STRUCT<{', '.join(f'{part.name}: {ddl_of(part.type)}' for part in of)}>"
    if pa.types.is_map(of):
        return f"MAP<{ddl_of(of.key_type)}, {ddl_of(of.item_type)}>"
    return f"ARRAY<{ddl_of(of.value_type)}>" if pa.types.is_list(of) else _DDL[of]


# The rows of facts for Spark users; txnwatch's own job uses the packed format instead.
#
# All kinds of facts are in one table, because partition facts, coordinator facts and the barrier must be in one batch
# under one offset.

FACTS: Final = RowFormat(Fact, pa.field("bucket", pa.int32()))


def fact_rows(facts: Iterable[Fact], buckets: int) -> Iterator[Row]:
    """Rows of facts. Facts about all producers are copied to every bucket."""
    own, shared = _by_bucket(facts, buckets)
    for_all = [row_of(fact) for fact in shared]
    for bucket, of_bucket in enumerate(own):
        yield from ({**row_of(fact), "bucket": bucket} for fact in of_bucket)
        yield from ({**row, "bucket": bucket} for row in for_all)


# Rows of a batch query for episodes: one for each transaction that ended, and one for each range that was not read.
#
# A batch query is not repeated. So its result also lists the missing parts: a partition without a leader, and a range
# that retention removed, that was truncated, or that cannot be read.


class FinishedTransaction(Variant, frozen=True):
    """One transaction on one partition, with its marker.

    Attributes:
        transactional_id: whose transaction it was; null if the coordinators' log does not name the producer id any
            more, or was not read.
        open_ms: how long it was open, from the timestamp of its first batch to that of its marker; null without both,
            or if the clocks of client and broker contradict each other.
        episode: the transaction.
    """

    partition: TopicPartition
    topic_id: str
    transactional_id: str | None
    open_ms: DurationMs | None
    episode: Episode


class ReadRange(Variant, frozen=True):
    """What a batch query has read of one partition: where a later query begins that leaves no transaction out.

    Attributes:
        from_offset: the first offset that was read.
        to_offset: the offset after the last one that was read.
        open_from: the first offset of the oldest transaction that is open at to_offset, else to_offset. A query that
            begins here returns every transaction that ends at or after to_offset, and some again that have ended
            before it.
    """

    partition: TopicPartition
    topic_id: str
    from_offset: Offset
    to_offset: Offset
    open_from: Offset


HISTORY: Final = RowFormat(FinishedTransaction | ReadRange | PartitionNotice)


def episodes_of(reads: Iterable[RangeReading[Fold]]) -> Iterator[tuple[RangeReading[Fold], Episode]]:
    """Each episode in the reads of one task."""
    for read in reads:
        for fold in (*read.earlier, read.fold):
            if isinstance(fold, PartitionFold):
                yield from ((read, episode) for episode in fold.episodes)


def episode_rows(
    reads: Collection[RangeReading[Fold]], missing: Iterable[PartitionNotice], owners: Mapping[ProducerId, str]
) -> Iterator[Row]:
    """The rows of one task; `owners` has the transactional ids that are known."""
    yield from map(row_of, missing)
    for read, episode in episodes_of(reads):
        owner = owners.get(episode.producer_id)
        yield row_of(FinishedTransaction(read.partition, read.topic_id, owner, episode.open_ms, episode))
    for read in reads:
        yield from map(row_of, read.notices)
        if isinstance(read.fold, PartitionFold):
            yield row_of(_range_of(read, read.fold))


def _range_of(read: RangeReading[Fold], fold: PartitionFold) -> ReadRange:
    opened = (seen.open_offset for seen in fold.producers.values() if seen.open_offset is not None)
    return ReadRange(read.partition, read.topic_id, read.start, fold.position, min(opened, default=fold.position))
