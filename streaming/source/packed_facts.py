"""The blobs of facts between the source's tasks and the stateful operator: one for each task and bucket.

Facts for all buckets are encoded once and copied into each blob. A blob lives only as long as its batch, so the same
version normally writes and reads it. It still has a version, because an executor may run another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

import pyarrow as pa

from txnwatch.state.model.facts import (
    Fact,
    LastStable,
    OpenDescribed,
    ProducerSeen,
    Throttled,
    TransactionSeen,
)
from txnwatch.state.model.ids import ProducerId
from txnwatch.state.model.record import ModelValue
from txnwatch.state.model.serializer import PartSerializer, Serializer

PACKED_SCHEMA: Final = pa.schema([pa.field("bucket", pa.int32()), pa.field("facts", pa.binary())])
PACKED_DDL: Final = "bucket INT, facts BINARY"
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


def by_bucket(facts: Iterable[Fact], buckets: int) -> tuple[list[list[Fact]], list[Fact]]:
    """The facts of each bucket alone, and the facts for all buckets."""
    own: list[list[Fact]] = [[] for _ in range(buckets)]
    shared: list[Fact] = []
    for fact in facts:
        if isinstance(fact, ProducerSeen | TransactionSeen | OpenDescribed):
            own[bucket_of(fact.producer_id, buckets)].append(fact)
        elif isinstance(fact, LastStable | Throttled):
            own[PARTITION_BUCKET].append(fact)
        else:
            shared.append(fact)
    return own, shared


def pack_facts(facts: Iterable[Fact], buckets: int) -> Iterator[tuple[int, bytes]]:
    """Yields (bucket, blob) for each bucket that has facts."""
    own, shared = by_bucket(facts, buckets)
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
    return tuple(_FACTS.decode(packed))
