"""The document that a watcher writes to Redis for `txnwatch page`: what the events topic does not have.

It has the heartbeat of its moment, the open lists, and the offsets of their partitions. A page is made from it as from
the end of a micro-batch, so it has no sentence, no command and no address of a team: those are made by the reader.

Law: anybody who may write to Redis can write anything. `decoded` checks the size, the types and every value, and what
it refuses is used nowhere. Pure: no I/O, no clock.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, NamedTuple

import msgspec

from txnwatch.page.store import PageStore, Totals
from txnwatch.state.incidents.heartbeat import Heartbeat, invalid_field
from txnwatch.state.incidents.value_rules import (
    INT32,
    INT64,
    LAST_TIME_MS,
    NAME_BYTES,
    is_number,
    is_text,
)
from txnwatch.state.model.errors import BadEventError, SkipReason
from txnwatch.state.model.findings import BlockedOffset, CensusOffsets, OpenSpan, OpenTransaction
from txnwatch.state.model.values import DurationMs, Offset, TopicPartition, is_topic_name

MOST_BYTES: Final = 16 << 20  # not compressed
MOST_TRANSACTIONS: Final = 8_192
_MOST_PARTITIONS: Final = 200_000
_MOST_STATES: Final = 32
_STATE_BYTES: Final = 64


class PartitionEnd(NamedTuple):
    """The end of a partition."""

    partition: TopicPartition
    end: Offset


class PageDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The whole document.

    Attributes:
        heartbeat: what the watcher covers, at the moment of the document.
        latency_p99_ms: from the hang to the event.
        ends: of scanned partitions.
        by_census: of partitions that only a census watches.
    """

    heartbeat: Heartbeat
    batch_ms: DurationMs | None
    latency_p99_ms: DurationMs | None
    totals: Totals
    transactions: tuple[OpenTransaction, ...]
    blocked: tuple[BlockedOffset, ...]
    ends: tuple[PartitionEnd, ...]
    by_census: tuple[CensusOffsets, ...]


def document_of(store: PageStore, heartbeat: Heartbeat, ends: Mapping[TopicPartition, Offset]) -> PageDocument:
    """The document of this moment."""
    seen = store.seen
    transactions = tuple(one for bucket in seen.lists for one in bucket.transactions)
    blocked = tuple(one for bucket in seen.lists for one in bucket.blocked)
    named = {span.partition for one in transactions for span in one.spans} | {one.partition for one in blocked}
    return PageDocument(
        heartbeat=heartbeat,
        batch_ms=seen.batch_ms,
        latency_p99_ms=store.latency_p99_ms,
        totals=seen.totals,
        transactions=transactions,
        blocked=blocked,
        ends=tuple(PartitionEnd(at, ends[at]) for at in sorted(named & ends.keys())),
        by_census=tuple(one for bucket in seen.by_census for one in bucket.offsets if one.partition in named),
    )


def encoded(document: PageDocument) -> bytes:
    """The document as it is stored."""
    return zlib.compress(msgspec.json.encode(document), 6)


def decoded(value: bytes, cluster_id: str) -> PageDocument:
    """The document of a cluster.

    Raises:
        BadEventError: it is too large, cannot be decoded, has an invalid value, or is about another cluster.
    """
    try:
        found = msgspec.json.decode(_inflated(value), type=PageDocument)
    except (msgspec.MsgspecError, zlib.error, UnicodeError, RecursionError) as exc:
        message = f"expected a page document: {ascii(str(exc))[:200]}"
        raise BadEventError(SkipReason.UNDECODABLE, message) from exc
    wrong = next((name for name, is_valid in _CHECKS.items() if not is_valid(found)), None)
    if wrong is not None:
        raise BadEventError(SkipReason.INVALID, f"expected a page document: {wrong} has an invalid value")
    if found.heartbeat.cluster_id != cluster_id:
        raise BadEventError(SkipReason.INVALID, "expected a page document of its own cluster, found another")
    return found


def _inflated(value: bytes) -> bytes:
    inflating = zlib.decompressobj()
    text = inflating.decompress(value, MOST_BYTES)
    if inflating.unconsumed_tail:
        raise BadEventError(SkipReason.TOO_LARGE, f"expected a page document of at most {MOST_BYTES} bytes, found more")
    if not inflating.eof or inflating.unused_data:
        raise BadEventError(SkipReason.UNDECODABLE, "expected a whole page document, found a part, or more")
    return text


_IS_INT64, _IS_TIME = is_number(0, INT64), is_number(0, LAST_TIME_MS)
_IS_NAME, _IS_STATE = is_text(NAME_BYTES), is_text(_STATE_BYTES)


def _is_partition(at: TopicPartition) -> bool:
    return is_topic_name(at.topic) and 0 <= at.partition <= INT32


def _is_heartbeat(document: PageDocument) -> bool:
    values = asdict(document.heartbeat)
    return invalid_field({**values, "unproven_names": list(values["unproven_names"])}) is None


def _are_totals(document: PageDocument) -> bool:
    barrier, states, oldest_ms = document.totals
    return (
        len(states) <= _MOST_STATES
        and all(_IS_STATE(state) and _IS_INT64(count) for state, count in states)
        and _is_one(_IS_INT64, barrier)
        and _is_one(_IS_TIME, oldest_ms)
    )


def _is_one(check: Callable[[Any], bool], value: int | None) -> bool:
    return value is None or check(value)


def _are_transactions(document: PageDocument) -> bool:
    if len(document.transactions) > MOST_TRANSACTIONS:
        return False
    if sum(len(one.spans) for one in document.transactions) > _MOST_PARTITIONS:
        return False
    return all(map(_is_transaction, document.transactions))


def _is_transaction(one: OpenTransaction) -> bool:
    return (
        _IS_INT64(one.producer_id)
        and (one.transactional_id is None or _IS_NAME(one.transactional_id))
        and _IS_STATE(one.state)
        and _IS_TIME(one.since_ms)
        and _is_one(_IS_TIME, one.prepared_ms)
        and _is_one(_IS_INT64, one.timeout_ms)
        and all(map(_is_span, one.spans))
    )


def _is_span(one: OpenSpan) -> bool:
    return _is_partition(one.partition) and _IS_INT64(one.start_offset) and _IS_TIME(one.first_seen_ms)


def _are_offsets(found: Iterable[tuple[TopicPartition, Offset]]) -> bool:
    places = list(found)
    return len(places) <= _MOST_PARTITIONS and all(_is_partition(at) and _IS_INT64(offset) for at, offset in places)


def _are_listed(found: Sequence[CensusOffsets]) -> bool:
    return _are_offsets((at, last_stable) for at, last_stable, _ in found) and all(
        _IS_INT64(end) and end >= last_stable for _, last_stable, end in found
    )


_CHECKS: Final[dict[str, Callable[[PageDocument], bool]]] = {
    "heartbeat": _is_heartbeat,
    "batch_ms": lambda document: _is_one(_IS_INT64, document.batch_ms),
    "latency_p99_ms": lambda document: _is_one(_IS_INT64, document.latency_p99_ms),
    "totals": _are_totals,
    "transactions": _are_transactions,
    "blocked": lambda document: _are_offsets(document.blocked),
    "ends": lambda document: _are_offsets(document.ends),
    "by_census": lambda document: _are_listed(document.by_census),
}
