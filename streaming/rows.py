"""Facts as rows: the schema of the source, into Arrow and out of Spark rows again.

One flat schema for every kind of fact, because partition facts, coordinator facts and the barrier must travel in
one batch under one offset. A Spark user of the source reads it like any other table; `kind` tells which columns
are filled. Times are epoch milliseconds; a missing value is null.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from txnwatch.state.facts import (
    Barrier,
    Fact,
    NoticeKind,
    PartitionNotice,
    ProducerSeen,
    TransactionalIdGone,
    TransactionSeen,
)
from txnwatch.state.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.state.transaction import CoordinatorView, Marker, TransactionState

PRODUCER, TRANSACTION, GONE, NOTICE, BARRIER, EPISODE = (
    "producer",
    "transaction",
    "transactional_id_gone",
    "notice",
    "barrier",
    "episode",
)

_MARKER = ("offset", "epoch", "commit", "coordinator_epoch", "timestamp_ms")
SCHEMA: Final = pa.schema(
    [
        pa.field("bucket", pa.int32()),
        pa.field("kind", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("topic_id", pa.string()),
        pa.field("producer_id", pa.int64()),
        pa.field("producer_epoch", pa.int32()),
        pa.field("range_start", pa.int64()),
        pa.field("range_end", pa.int64()),
        pa.field("first_offset", pa.int64()),
        pa.field("first_epoch", pa.int32()),
        pa.field("txn_start_offset", pa.int64()),
        pa.field("txn_start_epoch", pa.int32()),
        pa.field("last_offset", pa.int64()),
        pa.field("last_timestamp_ms", pa.int64()),
        pa.field("listed_ms", pa.int64()),
        *(
            pa.field(f"{which}_marker_{name}", pa.bool_() if name == "commit" else pa.int64())
            for which in ("first", "last")
            for name in _MARKER
        ),
        pa.field("transactional_id", pa.string()),
        pa.field("transaction_state", pa.string()),
        pa.field("transaction_timeout_ms", pa.int32()),
        pa.field("transaction_start_ms", pa.int64()),
        pa.field("last_update_ms", pa.int64()),
        pa.field("record_timestamp_ms", pa.int64()),
        pa.field("log_offset", pa.int64()),
        pa.field("superseded_by", pa.int64()),
        pa.field("participants", pa.list_(pa.string())),
        pa.field("detail", pa.string()),
    ]
)
_COLUMNS: Final = tuple(SCHEMA.names)
_INDEX: Final = {name: position for position, name in enumerate(_COLUMNS)}
_ARROW_TO_DDL: Final = {
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.string(): "STRING",
    pa.bool_(): "BOOLEAN",
    pa.list_(pa.string()): "ARRAY<STRING>",
}
DDL: Final = ", ".join(f"{field.name} {_ARROW_TO_DDL[field.type]}" for field in SCHEMA)

Row = dict[str, Any]


def bucket_of(producer_id: int, buckets: int) -> int:
    """The state bucket of a producer id. Producer ids come in blocks of consecutive numbers, so modulo spreads them."""
    return producer_id % buckets


def fact_rows(facts: Iterable[Fact], buckets: int) -> Iterable[Row]:
    """Rows of facts; what concerns every producer is copied to every bucket."""
    for fact in facts:
        row = _row(fact)
        if isinstance(fact, ProducerSeen | TransactionSeen):
            row["bucket"] = bucket_of(fact.producer_id, buckets)
            yield row
        else:
            for bucket in range(buckets):
                yield {**row, "bucket": bucket}


def record_batch(rows: Iterable[Row]) -> pa.RecordBatch:
    """Rows as one Arrow batch of exactly SCHEMA (Spark compares the first batch's schema for equality)."""
    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    for row in rows:
        for name, values in columns.items():
            values.append(row.get(name))
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[field.name], field.type) for field in SCHEMA],
        schema=SCHEMA,
    )


def _row(fact: Fact) -> Row:
    match fact:
        case ProducerSeen():
            return _producer_row(fact)
        case TransactionSeen():
            return _transaction_row(fact)
        case TransactionalIdGone():
            return {
                "kind": GONE,
                "topic": TRANSACTION_STATE_TOPIC,
                "partition": fact.log_partition,
                "transactional_id": fact.transactional_id,
                "log_offset": fact.log_offset,
            }
        case PartitionNotice():
            return {
                "kind": NOTICE,
                "topic": fact.partition.topic,
                "partition": fact.partition.partition,
                "topic_id": fact.topic_id,
                "range_start": fact.from_offset,
                "range_end": fact.to_offset,
                "detail": json.dumps({"notice": fact.kind, "detail": fact.detail}),
            }
        case Barrier():
            return {"kind": BARRIER, "listed_ms": fact.coordinator_listed_ms, "detail": _barrier_detail(fact)}


def _producer_row(fact: ProducerSeen) -> Row:
    return {
        "kind": PRODUCER,
        "topic": fact.partition.topic,
        "partition": fact.partition.partition,
        "topic_id": fact.topic_id,
        "producer_id": fact.producer_id,
        "producer_epoch": fact.epoch,
        "range_start": fact.range_start,
        "range_end": fact.range_end,
        "first_offset": fact.first_offset,
        "first_epoch": fact.first_epoch,
        "txn_start_offset": fact.open_offset,
        "txn_start_epoch": fact.open_epoch,
        "last_offset": fact.last_offset,
        "last_timestamp_ms": fact.last_timestamp_ms,
        "listed_ms": fact.listed_ms,
        **_marker_columns("first", fact.first_marker),
        **_marker_columns("last", fact.last_marker),
    }


def _marker_columns(which: str, marker: Marker | None) -> Row:
    if marker is None:
        return {}
    values = (
        marker.offset,
        marker.producer_epoch,
        marker.commit,
        marker.coordinator_epoch,
        marker.timestamp_ms,
    )
    return {f"{which}_marker_{name}": value for name, value in zip(_MARKER, values, strict=True)}


def _transaction_row(fact: TransactionSeen) -> Row:
    view = fact.view
    return {
        "kind": TRANSACTION,
        "topic": TRANSACTION_STATE_TOPIC,
        "partition": view.log_partition,
        "producer_id": fact.producer_id,
        "producer_epoch": view.producer_epoch,
        "transactional_id": view.transactional_id,
        "transaction_state": str(view.state),
        "transaction_timeout_ms": view.timeout_ms,
        "transaction_start_ms": view.start_ms,
        "last_update_ms": view.last_update_ms,
        "record_timestamp_ms": view.record_timestamp_ms,
        "log_offset": view.log_offset,
        "superseded_by": view.superseded_by,
        "participants": sorted(str(partition) for partition in view.participants),
    }


def _barrier_detail(fact: Barrier) -> str:
    return json.dumps(
        {
            "number": fact.number,
            "data_listed_ms": fact.data_listed_ms,
            "coordinator_listed_ms": fact.coordinator_listed_ms,
            "stale_data": sorted(str(partition) for partition in fact.stale_data),
            "limited_data": sorted(str(partition) for partition in fact.limited_data),
            "stale_coordinator": sorted(fact.stale_coordinator),
            "reread": {str(partition): start for partition, start in fact.reread.items()},
            "healed": {str(partition): start for partition, start in fact.healed.items()},
            "clock_offset_ms": fact.clock_offset_ms,
        }
    )


def fact_of(row: Sequence[Any]) -> Fact:
    """The fact of a Spark row of the whole schema.

    Raises:
        ValueError: a kind that is no fact.
    """

    def value(name: str) -> Any:  # noqa: ANN401 - a row's value
        return row[_INDEX[name]]

    kind = value("kind")
    if kind == TRANSACTION:
        return _transaction_fact(row)
    if kind == PRODUCER:
        return _producer_fact(row)
    if kind == BARRIER:
        return _barrier_fact(value("detail"))
    if kind == NOTICE:
        detail = json.loads(value("detail"))
        partition = TopicPartition(value("topic"), value("partition"))
        return PartitionNotice(
            NoticeKind(detail["notice"]),
            partition,
            value("topic_id"),
            value("range_start"),
            value("range_end"),
            detail["detail"],
        )
    if kind == GONE:
        return TransactionalIdGone(value("transactional_id"), value("partition"), value("log_offset"))
    raise ValueError(f"expected a fact, found a row of kind {kind!r}")


_PRODUCER_SLICE: Final = slice(_INDEX["topic"], _INDEX["listed_ms"] + 1)
_FIRST_MARKER: Final = slice(_INDEX["first_marker_offset"], _INDEX["first_marker_timestamp_ms"] + 1)
_LAST_MARKER: Final = slice(_INDEX["last_marker_offset"], _INDEX["last_marker_timestamp_ms"] + 1)


def _producer_fact(row: Sequence[Any]) -> ProducerSeen:
    (
        topic,
        partition,
        topic_id,
        producer_id,
        epoch,
        range_start,
        range_end,
        first_offset,
        first_epoch,
        open_offset,
        open_epoch,
        last_offset,
        last_timestamp_ms,
        listed_ms,
    ) = row[_PRODUCER_SLICE]
    return ProducerSeen(
        partition=TopicPartition(topic, partition),
        topic_id=topic_id,
        producer_id=producer_id,
        range_start=range_start,
        range_end=range_end,
        first_offset=first_offset,
        first_epoch=first_epoch,
        first_marker=_marker(row[_FIRST_MARKER]),
        last_marker=_marker(row[_LAST_MARKER]),
        open_offset=open_offset,
        open_epoch=open_epoch,
        epoch=epoch,
        last_offset=last_offset,
        last_timestamp_ms=last_timestamp_ms,
        listed_ms=listed_ms,
    )


def _marker(values: Sequence[Any]) -> Marker | None:
    return Marker(*values) if values[0] is not None else None


def _transaction_fact(row: Sequence[Any]) -> TransactionSeen:
    view = CoordinatorView(
        transactional_id=row[_INDEX["transactional_id"]],
        log_partition=row[_INDEX["partition"]],
        log_offset=row[_INDEX["log_offset"]],
        state=TransactionState(row[_INDEX["transaction_state"]]),
        producer_epoch=row[_INDEX["producer_epoch"]],
        timeout_ms=row[_INDEX["transaction_timeout_ms"]],
        start_ms=row[_INDEX["transaction_start_ms"]],
        last_update_ms=row[_INDEX["last_update_ms"]],
        record_timestamp_ms=row[_INDEX["record_timestamp_ms"]],
        participants=frozenset(TopicPartition.parse(text) for text in row[_INDEX["participants"]]),
        superseded_by=row[_INDEX["superseded_by"]],
    )
    return TransactionSeen(row[_INDEX["producer_id"]], view)


def _barrier_fact(detail: str) -> Barrier:
    raw = json.loads(detail)
    return Barrier(
        number=raw["number"],
        data_listed_ms=raw["data_listed_ms"],
        coordinator_listed_ms=raw["coordinator_listed_ms"],
        stale_data=frozenset(TopicPartition.parse(text) for text in raw["stale_data"]),
        limited_data=frozenset(TopicPartition.parse(text) for text in raw["limited_data"]),
        stale_coordinator=frozenset(raw["stale_coordinator"]),
        reread={TopicPartition.parse(text): start for text, start in raw["reread"].items()},
        healed={TopicPartition.parse(text): start for text, start in raw["healed"].items()},
        clock_offset_ms=raw["clock_offset_ms"],
    )
