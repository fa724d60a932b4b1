"""ProducerState and BucketState as rows of the state store: JSON with a version in front.

JSON because an operator can read it with Spark's own state reader, and because adding a field needs no schema
change of the store. A row of a later version is refused with both versions named; nothing is guessed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Any

from txnwatch.state.bucket_state import BucketState, Standing
from txnwatch.state.errors import CheckpointError
from txnwatch.state.ids import TopicPartition
from txnwatch.state.open_transactions import open_transaction_of
from txnwatch.state.transaction import CoordinatorView, EpochUse, ProducerState, Said, Span, TransactionState

VERSION = 3


def encode_producer(producer: ProducerState) -> str:
    """The producer as one line of JSON, without its id (the id is the row's key)."""
    return _dump(
        {
            "spans": {str(partition): _span_out(span) for partition, span in producer.spans.items()},
            "view": _view_out(producer.view),
            "said": {verdict: _said_out(said) for verdict, said in producer.said.items()},
        }
    )


def decode_producer(producer_id: int, row: str) -> ProducerState:
    """The producer that `encode_producer` wrote.

    Raises:
        CheckpointError: the row was written by a later version.
    """
    raw = _load(row)
    return ProducerState(
        producer_id,
        {TopicPartition.parse(partition): _span_in(span) for partition, span in raw["spans"].items()},
        _view_in(raw["view"]),
        {verdict: Said(*said) for verdict, said in raw["said"].items()},
    )


def encode_bucket(bucket: BucketState) -> str:
    """The bucket as one line of JSON."""
    return _dump(
        {
            "agenda": {str(producer_id): when for producer_id, when in bucket.agenda.items()},
            "gaps": {str(partition): start for partition, start in bucket.gaps.items()},
            "coordinator_gaps": {str(partition): start for partition, start in bucket.coordinator_gaps.items()},
            "rereading": {str(partition): start for partition, start in bucket.rereading.items()},
            "standing": {str(partition): standing for partition, standing in bucket.standing.items()},
            "readings": {str(partition): count for partition, count in bucket.readings.items()},
            "holes": {str(partition): end for partition, end in bucket.holes.items()},
            "clock_offset_ms": bucket.clock_offset_ms,
            "generation": bucket.generation,
            "states": dict(sorted(bucket.states.items())),
            "followed": {str(producer_id): told for producer_id, told in bucket.followed.items()},
        }
    )


def decode_bucket(row: str) -> BucketState:
    """The bucket that `encode_bucket` wrote.

    Raises:
        CheckpointError: the row was written by a later version.
    """
    raw = _load(row)
    return BucketState(
        agenda={int(producer_id): when for producer_id, when in raw["agenda"].items()},
        gaps={TopicPartition.parse(partition): start for partition, start in raw["gaps"].items()},
        standing={TopicPartition.parse(text): Standing(*standing) for text, standing in raw["standing"].items()},
        coordinator_gaps={int(partition): start for partition, start in raw["coordinator_gaps"].items()},
        rereading={int(partition): start for partition, start in raw["rereading"].items()},
        readings={int(partition): count for partition, count in raw["readings"].items()},
        holes={int(partition): end for partition, end in raw["holes"].items()},
        clock_offset_ms=raw["clock_offset_ms"],
        generation=raw["generation"],
        states=Counter(raw["states"]),
        followed={int(producer_id): open_transaction_of(told) for producer_id, told in raw["followed"].items()},
    )


def _dump(value: dict[str, Any]) -> str:
    return json.dumps({"v": VERSION, **value}, separators=(",", ":"))


def _load(row: str) -> dict[str, Any]:
    raw: dict[str, Any] = json.loads(row)
    if raw.get("v") != VERSION:
        raise CheckpointError(
            f"the state in the checkpoint has version {raw.get('v')}, this txnwatch reads version {VERSION}: "
            "run the version that wrote it, or start with a new --checkpoint directory"
        )
    return raw


def _said_out(said: Said | None) -> tuple[int, int] | None:
    return (said.times, said.next_ms) if said is not None else None


def _span_out(span: Span) -> list[Any]:
    return [*_SPAN_VALUES(span), _said_out(span.said)]


def _span_in(raw: list[Any]) -> Span:
    *values, said = raw
    return _SPAN(*values, Said(*said) if said is not None else None)


def _view_out(view: CoordinatorView | None) -> list[Any] | None:
    if view is None:
        return None
    return [
        *_VIEW_VALUES(view),
        view.state,
        view.epoch_use,
        [str(partition) for partition in sorted(view.participants)],
    ]


def _view_in(raw: list[Any] | None) -> CoordinatorView | None:
    if raw is None:
        return None
    *values, state, use, participants = raw
    return CoordinatorView(
        **dict(zip(_VIEW_FIELDS, values, strict=True)),
        state=TransactionState(state),
        epoch_use=EpochUse(use),
        participants=frozenset(TopicPartition.parse(partition) for partition in participants),
    )


# Rows are made and read a thousand times a batch: plain positions, in the order of the fields.
_SPAN_FIELDS = tuple(spec.name for spec in fields(Span) if spec.name != "said")
_VIEW_APART = {"state", "epoch_use", "participants"}
_VIEW_FIELDS = tuple(spec.name for spec in fields(CoordinatorView) if spec.name not in _VIEW_APART)
_SPAN: Callable[..., Span] = Span
_SPAN_VALUES: Callable[[Span], tuple[Any, ...]] = attrgetter(*_SPAN_FIELDS)
_VIEW_VALUES: Callable[[CoordinatorView], tuple[Any, ...]] = attrgetter(*_VIEW_FIELDS)
assert fields(Span)[-1].name == "said"
