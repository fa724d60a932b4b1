"""The row schema of the source for Spark users, and the conversion of facts to Arrow.

All kinds of facts share one flat schema, because partition facts, coordinator facts and the barrier must be in one
batch under one offset. A Spark user reads the source like any other table. The column `kind` determines which columns
are filled. Times are epoch milliseconds. A missing value is null. txnwatch's own job uses the packed format instead
(packed_facts.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import astuple
from typing import Any, Final

import pyarrow as pa

from txnwatch.state.model.facts import (
    Barrier,
    CensusTaken,
    Fact,
    Joined,
    LastStable,
    LogRead,
    OpenDescribed,
    PartitionNotice,
    ProducerSeen,
    Throttled,
    TransactionalIdGone,
    TransactionSeen,
)
from txnwatch.state.model.ids import TRANSACTION_STATE_TOPIC
from txnwatch.state.model.transaction import Marker

PRODUCER, TRANSACTION, GONE, NOTICE = "producer", "transaction", "transactional_id_gone", "notice"
CENSUS, OPEN, LAST_STABLE, BARRIER, EPISODE = "census", "open_transaction", "last_stable_offset", "barrier", "episode"
THROTTLED, LOG_READ = "throttled", "log_read"

MARKER_COLUMNS: Final = ("offset", "epoch", "commit", "coordinator_epoch", "timestamp_ms")
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
            for name in MARKER_COLUMNS
        ),
        pa.field("transactional_id", pa.string()),
        pa.field("transaction_state", pa.string()),
        pa.field("transaction_timeout_ms", pa.int32()),
        pa.field("transaction_start_ms", pa.int64()),
        pa.field("last_update_ms", pa.int64()),
        pa.field("record_timestamp_ms", pa.int64()),
        pa.field("log_offset", pa.int64()),
        pa.field("coordinator_epoch", pa.int32()),
        pa.field("superseded_by", pa.int64()),
        pa.field("data_epoch", pa.int32()),
        pa.field("epoch_use", pa.string()),
        pa.field("previous_outcome", pa.string()),
        pa.field("previous_end_epoch", pa.int32()),
        pa.field("participants", pa.list_(pa.string())),
        pa.field("held", pa.list_(pa.string())),
        pa.field("detail", pa.string()),
    ]
)
PARTITION_BUCKET: Final = 0  # the bucket that handles facts about a whole partition
_COLUMNS: Final = tuple(SCHEMA.names)
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
    """Rows of facts. Facts about all producers are copied to every bucket."""
    for fact in facts:
        row = _row(fact)
        if isinstance(fact, ProducerSeen | TransactionSeen | OpenDescribed):
            row["bucket"] = bucket_of(fact.producer_id, buckets)
            yield row
        elif isinstance(fact, LastStable | Throttled):
            row["bucket"] = PARTITION_BUCKET
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
    return _WRITE[type(fact)](fact)


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
        "detail": _joined_detail(fact.joined),
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
    return {f"{which}_marker_{name}": value for name, value in zip(MARKER_COLUMNS, values, strict=True)}


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
        "coordinator_epoch": view.coordinator_epoch,
        "superseded_by": view.superseded_by,
        "data_epoch": view.data_epoch,
        "epoch_use": str(view.epoch_use),
        "previous_outcome": view.previous_outcome,
        "previous_end_epoch": view.previous_end_epoch,
        "participants": sorted(str(partition) for partition in view.participants),
        "held": sorted(str(partition) for partition in fact.held),
        "detail": _ended_detail(fact),
    }


def _ended_detail(fact: TransactionSeen) -> str | None:
    if not fact.ended and fact.first_end is None and not fact.is_past:
        return None
    return json.dumps([fact.ended, fact.first_end, int(fact.is_past)], separators=(",", ":"))


def _joined_detail(joined: Joined | None) -> str | None:
    if joined is None:
        return None
    marker = astuple(joined.marker) if joined.marker is not None else None
    return json.dumps([*joined[:-1], marker])


def _gone_row(fact: TransactionalIdGone) -> Row:
    return {
        "kind": GONE,
        "topic": TRANSACTION_STATE_TOPIC,
        "partition": fact.log_partition,
        "transactional_id": fact.transactional_id,
        "log_offset": fact.log_offset,
    }


def notice_row(fact: PartitionNotice) -> Row:
    """The row of a partition notice, for example of an unread range."""
    return {
        "kind": NOTICE,
        "topic": fact.partition.topic,
        "partition": fact.partition.partition,
        "topic_id": fact.topic_id,
        "range_start": fact.from_offset,
        "range_end": fact.to_offset,
        "detail": json.dumps({"notice": fact.kind, "detail": fact.detail}),
    }


def _open_row(fact: OpenDescribed) -> Row:
    return {
        "kind": OPEN,
        "topic": fact.partition.topic,
        "partition": fact.partition.partition,
        "producer_id": fact.producer_id,
        "producer_epoch": fact.producer_epoch,
        "txn_start_offset": fact.start_offset,
        "last_timestamp_ms": fact.last_timestamp_ms,
        "listed_ms": fact.listed_ms,
    }


def _last_stable_row(fact: LastStable) -> Row:
    return {
        "kind": LAST_STABLE,
        "topic": fact.partition.topic,
        "partition": fact.partition.partition,
        "topic_id": fact.topic_id,
        "range_end": fact.offset,
    }


def _throttled_row(fact: Throttled) -> Row:
    return {"kind": THROTTLED, "detail": json.dumps(dict(fact.throttled_ms))}


def _log_read_row(fact: LogRead) -> Row:
    return {"kind": LOG_READ, "detail": json.dumps({"holes": fact.holes, "clocks": fact.clocks})}


def _census_row(fact: CensusTaken) -> Row:
    taken: dict[str, list[list[Any]]] = {}
    for partition, bracket in fact.taken.items():
        taken.setdefault(partition.topic, []).append([partition.partition, *bracket])
    detail = {
        "taken": taken,
        "failed": sorted(str(partition) for partition in fact.failed),
        "is_round": fact.is_round,
        "failed_scanned": sorted(str(partition) for partition in fact.failed_scanned),
    }
    return {"kind": CENSUS, "detail": json.dumps(detail, separators=(",", ":"))}


def _barrier_row(fact: Barrier) -> Row:
    detail = {
        "number": fact.number,
        "data_listed_ms": fact.data_listed_ms,
        "coordinator_listed_ms": fact.coordinator_listed_ms,
        "stale_data": sorted(str(partition) for partition in fact.stale_data),
        "limited_data": sorted(str(partition) for partition in fact.limited_data),
        "stale_coordinator": sorted(fact.stale_coordinator),
        "reread": {str(partition): start for partition, start in fact.reread.items()},
        "risen": sorted(str(partition) for partition in fact.risen),
        "leaders": {str(log_partition): leader for log_partition, leader in fact.leaders.items()},
        "clocks": {str(broker): clock for broker, clock in fact.clocks.items()},
        "scan_interval_ms": fact.scan_interval_ms,
        "holes": {str(log_partition): end for log_partition, end in fact.holes.items()},
        "has_coordinator_log": fact.has_coordinator_log,
    }
    return {"kind": BARRIER, "listed_ms": fact.coordinator_listed_ms, "detail": json.dumps(detail)}


_WRITE: Final[dict[type, Callable[[Any], Row]]] = {
    ProducerSeen: _producer_row,
    TransactionSeen: _transaction_row,
    TransactionalIdGone: _gone_row,
    PartitionNotice: notice_row,
    OpenDescribed: _open_row,
    LastStable: _last_stable_row,
    Throttled: _throttled_row,
    LogRead: _log_read_row,
    CensusTaken: _census_row,
    Barrier: _barrier_row,
}
