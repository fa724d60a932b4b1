"""Rows from the stateful operator to the driver: the kind of a finding, and the finding as JSON.

There are few rows (candidates and their ends, one count per bucket), so the format is readable rather than small.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from txnwatch.state.detection.open_transactions import open_transaction_of
from txnwatch.state.model import findings as out
from txnwatch.state.model.broker_clocks import Clock
from txnwatch.state.model.completion_latency import latencies_of
from txnwatch.state.model.facts import Joined, NoticeKind, PartitionNotice
from txnwatch.state.model.findings import Emitted
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.transaction import CoordinatorView, Emission, EpochUse, Marker, Span, TransactionState
from txnwatch.state.model.verdicts import Reason, Verdict

OUTPUT_DDL = "kind STRING, payload STRING"


def encode_emitted(emitted: Emitted) -> tuple[str, str]:
    """The row (kind, payload) of a finding."""
    return type(emitted).__name__, json.dumps(asdict(emitted), default=_plain)


def decode_emitted(kind: str, payload: str) -> Emitted:
    """The finding of a row.

    Raises:
        KeyError: the kind is unknown.
    """
    raw = json.loads(payload)
    kinds: dict[str, Callable[..., Emitted]] = {cls.__name__: cls for cls in _KINDS}
    return kinds[kind](**_fields(raw))


def _fields(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _READ.get(name, _same)(value) for name, value in raw.items()}


def _plain(value: object) -> object:
    if isinstance(value, frozenset):
        return sorted(value)
    raise TypeError(f"cannot write {value!r}")


def _same(value: Any) -> Any:  # noqa: ANN401 - a JSON value
    return value


def _partition(value: list[Any]) -> TopicPartition:
    return TopicPartition(*value)


def _span(value: Mapping[str, Any]) -> Span:
    said = value["said"]
    return Span(**{**value, "said": Emission(**said) if said is not None else None})


def _view(value: Mapping[str, Any] | None) -> CoordinatorView | None:
    if value is None:
        return None
    participants = frozenset(TopicPartition(*partition) for partition in value["participants"])
    state, use = TransactionState(value["state"]), EpochUse(value["epoch_use"])
    return CoordinatorView(**{**value, "participants": participants, "state": state, "epoch_use": use})


def _marker(value: Mapping[str, Any] | None) -> Marker | None:
    return Marker(**value) if value is not None else None


def _joined(value: list[Any]) -> Joined:
    start_offset, start_epoch, offset, epoch, marker = value
    return Joined(start_offset, start_epoch, offset, epoch, _marker(marker))


def _notice(value: Mapping[str, Any]) -> PartitionNotice:
    return PartitionNotice(
        **{**value, "kind": NoticeKind(value["kind"]), "partition": TopicPartition(*value["partition"])}
    )


_KINDS = (
    out.SpanCandidate,
    out.StrayWrite,
    out.CoverInDoubt,
    out.OwnerInDoubt,
    out.TransactionCandidate,
    out.SpanEnded,
    out.TransactionMoved,
    out.PartitionAlarm,
    out.OutstandingGap,
    out.ReadLimitReached,
    out.CensusRequest,
    out.LastStableOffsetBlocked,
    out.CensusIncomplete,
    out.Unproven,
    out.RequestsThrottled,
    out.ViewHealed,
    out.BucketCount,
    out.OpenTransactions,
    out.TransactionsEnded,
)
_READ: dict[str, Callable[[Any], Any]] = {
    "candidate": lambda value: out.SpanCandidate(**_fields(value)),
    "partition": _partition,
    "span": _span,
    "view": _view,
    "said_view": _view,
    "marker": _marker,
    "verdict": Verdict,
    "reason": Reason,
    "why": out.CensusReason,
    "how": out.SpanEnd,
    "joined": _joined,
    "mismatch": out.Mismatch,
    "partitions": lambda value: tuple(TopicPartition(*partition) for partition in value),
    "failed": lambda value: tuple(TopicPartition(*partition) for partition in value),
    "notice": _notice,
    "spans": lambda value: tuple((TopicPartition(*partition), start) for partition, start in value),
    "waiting": lambda value: tuple((why, count) for why, count in value),
    "throttled_ms": lambda value: tuple((request, length) for request, length in value),
    "states": lambda value: tuple((state, count) for state, count in value),
    "transactions": lambda value: tuple(open_transaction_of(one) for one in value),
    "clocks": lambda value: tuple((broker, Clock(*clock)) for broker, clock in value),
    "latencies": latencies_of,
}
