"""Rows of the source back into facts: that rows tell all there is to tell is tested, nobody else reads them so."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

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
from txnwatch.state.model.transaction import CoordinatorView, EpochUse, Marker, TransactionState
from txnwatch.streaming.source.fact_rows import (
    BARRIER,
    CENSUS,
    GONE,
    LAST_STABLE,
    LOG_READ,
    NOTICE,
    OPEN,
    PRODUCER,
    SCHEMA,
    THROTTLED,
    TRANSACTION,
)

_INDEX: Final = {name: position for position, name in enumerate(SCHEMA.names)}


def fact_of(row: Sequence[Any]) -> Fact:
    """The fact of a Spark row of the whole schema.

    Raises:
        ValueError: a kind that is no fact.
    """
    kind = row[_INDEX["kind"]]
    read = _READ.get(kind)
    if read is None:
        raise ValueError(f"expected a fact, found a row of kind {kind!r}")
    return read(row)


def _partition(row: Sequence[Any]) -> TopicPartition:
    return TopicPartition(row[_INDEX["topic"]], row[_INDEX["partition"]])


def _notice_fact(row: Sequence[Any]) -> PartitionNotice:
    detail = json.loads(row[_INDEX["detail"]])
    kind = NoticeKind(detail["notice"])
    topic_id, start, end = (row[_INDEX[name]] for name in ("topic_id", "range_start", "range_end"))
    return PartitionNotice(kind, _partition(row), topic_id, start, end, detail["detail"])


def _gone_fact(row: Sequence[Any]) -> TransactionalIdGone:
    return TransactionalIdGone(*(row[_INDEX[name]] for name in ("transactional_id", "partition", "log_offset")))


def _open_fact(row: Sequence[Any]) -> OpenDescribed:
    names = ("producer_id", "producer_epoch", "txn_start_offset", "last_timestamp_ms", "listed_ms")
    return OpenDescribed(_partition(row), *(row[_INDEX[name]] for name in names))


def _last_stable_fact(row: Sequence[Any]) -> LastStable:
    return LastStable(_partition(row), row[_INDEX["topic_id"]], row[_INDEX["range_end"]])


def _throttled_fact(row: Sequence[Any]) -> Throttled:
    return Throttled(json.loads(row[_INDEX["detail"]]))


def _log_read_fact(row: Sequence[Any]) -> LogRead:
    raw = json.loads(row[_INDEX["detail"]])
    return LogRead(_holes(raw), _clocks(raw))


def _holes(raw: dict[str, Any]) -> dict[int, int]:
    return {int(log_partition): end for log_partition, end in raw["holes"].items()}


def _clocks(raw: dict[str, Any]) -> dict[int, Clock]:
    return {int(broker): Clock(*clock) for broker, clock in raw["clocks"].items()}


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
        joined=_joined(row[_INDEX["detail"]]),
    )


def _joined(detail: str | None) -> Joined | None:
    if detail is None:
        return None
    start_offset, start_epoch, offset, epoch, marker = json.loads(detail)
    return Joined(start_offset, start_epoch, offset, epoch, Marker(*marker) if marker is not None else None)


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
        data_epoch=row[_INDEX["data_epoch"]],
        epoch_use=EpochUse(row[_INDEX["epoch_use"]]),
        previous_outcome=row[_INDEX["previous_outcome"]],
        previous_end_epoch=row[_INDEX["previous_end_epoch"]],
        coordinator_epoch=row[_INDEX["coordinator_epoch"]],
    )
    held = frozenset(TopicPartition.parse(text) for text in row[_INDEX["held"]])
    ended, first_end, is_past = json.loads(row[_INDEX["detail"]] or "[[],null,0]")
    return TransactionSeen(
        row[_INDEX["producer_id"]],
        view,
        held,
        latencies_of(ended),
        End(TransactionState(first_end[0]), *first_end[1:]) if first_end is not None else None,
        bool(is_past),
    )


def _barrier_fact(row: Sequence[Any]) -> Barrier:
    raw = json.loads(row[_INDEX["detail"]])
    return Barrier(
        number=raw["number"],
        data_listed_ms=raw["data_listed_ms"],
        coordinator_listed_ms=raw["coordinator_listed_ms"],
        stale_data=frozenset(TopicPartition.parse(text) for text in raw["stale_data"]),
        limited_data=frozenset(TopicPartition.parse(text) for text in raw["limited_data"]),
        stale_coordinator=frozenset(raw["stale_coordinator"]),
        reread={TopicPartition.parse(text): start for text, start in raw["reread"].items()},
        risen=frozenset(TopicPartition.parse(text) for text in raw["risen"]),
        leaders={int(log_partition): Leader(*leader) for log_partition, leader in raw["leaders"].items()},
        clocks=_clocks(raw),
        scan_interval_ms=raw["scan_interval_ms"],
        holes=_holes(raw),
        has_coordinator_log=raw["has_coordinator_log"],
    )


def _census_fact(row: Sequence[Any]) -> CensusTaken:
    raw = json.loads(row[_INDEX["detail"]])
    return CensusTaken(
        taken={
            TopicPartition(topic, number): CensusListing(*bracket)
            for topic, brackets in raw["taken"].items()
            for number, *bracket in brackets
        },
        failed=frozenset(TopicPartition.parse(text) for text in raw["failed"]),
        is_round=raw["is_round"],
        failed_scanned=frozenset(TopicPartition.parse(text) for text in raw["failed_scanned"]),
    )


_READ: Final[dict[str, Callable[[Sequence[Any]], Fact]]] = {
    PRODUCER: _producer_fact,
    TRANSACTION: _transaction_fact,
    GONE: _gone_fact,
    NOTICE: _notice_fact,
    OPEN: _open_fact,
    LAST_STABLE: _last_stable_fact,
    THROTTLED: _throttled_fact,
    LOG_READ: _log_read_fact,
    CENSUS: _census_fact,
    BARRIER: _barrier_fact,
}
