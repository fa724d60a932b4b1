"""Encodes producers and the shared state of a bucket as bytes of the state store, and evidence as lines of a file.

A stored producer has no version of its own: the log entry that contains it has one (bucket_log.py). Evidence is JSON
with a version, because a person may have to read it. Data of another version is refused with both versions named;
nothing is guessed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any

from txnwatch.state.abort.case import ProvenHang
from txnwatch.state.detection.awaited_producers import Places
from txnwatch.state.detection.bucket_state import BucketState, Failing, Standing
from txnwatch.state.model.broker_clocks import Clock, Clocks, Leadership
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.incident_payload import ExpectedOutcome
from txnwatch.state.model.ports import ActiveProducer
from txnwatch.state.model.serializer import check_version, pack, unpack
from txnwatch.state.model.transaction import CoordinatorView, Emission, EpochUse, ProducerState, Span, TransactionState
from txnwatch.state.model.verdicts import Reason, Verdict

VERSION = 7


def encode_producer(producer: ProducerState) -> bytes:
    """The producer without its id, which is stored beside it."""
    packed: bytes = pack(
        (
            [(partition, _span_out(span)) for partition, span in producer.spans.items()],
            view_out(producer.view) if producer.view is not None else None,
            {verdict: _said_out(said) for verdict, said in producer.said.items()},
        )
    )
    return packed


def decode_producer(producer_id: int, row: bytes) -> ProducerState:
    """The producer that `encode_producer` wrote."""
    spans, view, said = unpack(row)
    return ProducerState(
        producer_id,
        {TopicPartition(*partition): _span_in(span) for partition, span in spans},
        view_in(view) if view is not None else None,
        {verdict: Emission(*told) for verdict, told in said.items()},
    )


def places_in(row: bytes) -> Places:
    """The index keys of the producer that `encode_producer` wrote; cheaper than decoding the whole producer."""
    spans, view, _ = unpack(row)
    partitions = tuple(TopicPartition(*partition) for partition, _ in spans)
    return Places(partitions, *view[:2]) if view is not None else Places(partitions, None, -1)


def encode_evidence(evidence: ProvenHang) -> str:
    """The evidence about a hanging transaction as one line of JSON, without its time."""
    candidates = [_candidate_out(candidate) for candidate in (evidence.candidate, evidence.witness)]
    return json.dumps(
        {"v": VERSION, "candidates": candidates, "row": list(evidence.row), "outcome": evidence.outcome},
        separators=(",", ":"),
    )


def decode_evidence(row: str) -> ProvenHang:
    """The evidence that `encode_evidence` wrote.

    Raises:
        CheckpointError: the row was written by another version.
    """
    raw = json.loads(row)
    check_version(VERSION, raw.get("v"))
    candidate, witness = (_candidate_in(one) for one in raw["candidates"])
    return ProvenHang(candidate, ActiveProducer(*raw["row"]), ExpectedOutcome(raw["outcome"]), witness, since_ms=0)


def encode_shared(bucket: BucketState) -> dict[str, bytes]:
    """The shared state of a bucket, each part by its name; without the agenda and the followed transactions."""
    return {name: pack(write(bucket)) for name, (write, _) in _SHARED.items()}


def decode_shared(bucket: BucketState, parts: Mapping[str, bytes]) -> None:
    """Sets the parts that `encode_shared` wrote in a bucket."""
    for name, packed in parts.items():
        _SHARED[name][1](bucket, unpack(packed))


def _by_partition(name: str, read: Callable[..., Any] = lambda value: value) -> tuple[Callable[..., Any], ...]:
    """Writer and reader of a dict with partitions as keys; `read` converts a stored value."""

    def write(bucket: BucketState) -> object:
        return [(*partition, value) for partition, value in getattr(bucket, name).items()]

    def take(bucket: BucketState, raw: Any) -> None:  # noqa: ANN401 - plain values
        setattr(bucket, name, {TopicPartition(topic, number): read(value) for topic, number, value in raw})

    return write, take


def _as_it_is(name: str) -> tuple[Callable[..., Any], ...]:
    """Writer and reader of a value, or of a dict of numbers, that is plain already."""
    return attrgetter(name), lambda bucket, raw: setattr(bucket, name, raw)


def _clocks_out(bucket: BucketState) -> object:
    return bucket.clocks.brokers, bucket.clocks.reigns


def _clocks_in(bucket: BucketState, raw: Any) -> None:  # noqa: ANN401 - plain values
    brokers, reigns = raw
    bucket.clocks = Clocks(
        {broker: Clock(*clock) for broker, clock in brokers.items()},
        {log_partition: Leadership(*reign) for log_partition, reign in reigns.items()},
    )


def _undescribed_out(bucket: BucketState) -> object:
    return sorted(bucket.undescribed)


def _undescribed_in(bucket: BucketState, raw: Any) -> None:  # noqa: ANN401 - plain values
    bucket.undescribed = {TopicPartition(*partition) for partition in raw}


def _states_in(bucket: BucketState, raw: Any) -> None:  # noqa: ANN401 - plain values
    bucket.states = Counter(raw)


_SHARED: dict[str, tuple[Callable[..., Any], ...]] = {
    "gaps": _by_partition("gaps"),
    "left": _by_partition("left"),
    "failing": _by_partition("failing", lambda value: Failing(*value)),
    "standing": _by_partition("standing", lambda value: Standing(*value)),
    "coordinator_gaps": _as_it_is("coordinator_gaps"),
    "rereading": _as_it_is("rereading"),
    "readings": _as_it_is("readings"),
    "holes": _as_it_is("holes"),
    "clocks": (_clocks_out, _clocks_in),
    "scan_interval_ms": _as_it_is("scan_interval_ms"),
    "hidden": _by_partition("hidden"),
    "undescribed": (_undescribed_out, _undescribed_in),
    "states": (attrgetter("states"), _states_in),
    "told": _as_it_is("told"),
}


def _candidate_out(candidate: SpanCandidate) -> list[Any]:
    return [
        *_CANDIDATE_VALUES(candidate),
        candidate.partition,
        _span_out(candidate.span),
        view_out(candidate.view) if candidate.view is not None else None,
    ]


def _candidate_in(raw: list[Any]) -> SpanCandidate:
    *values, partition, span, view = raw
    known = dict(zip(_CANDIDATE_FIELDS, values, strict=True))
    return SpanCandidate(
        **{**known, "verdict": Verdict(known["verdict"]), "reason": Reason(known["reason"])},
        partition=TopicPartition(*partition),
        span=_span_in(span),
        view=view_in(view) if view is not None else None,
    )


def _said_out(said: Emission | None) -> tuple[int, int] | None:
    return (said.times, said.next_ms) if said is not None else None


def _span_out(span: Span) -> tuple[Any, ...]:
    return (*_SPAN_VALUES(span), _said_out(span.said))


def _span_in(raw: tuple[Any, ...]) -> Span:
    *values, said = raw
    return _SPAN(*values, Emission(*said) if said is not None else None)


def view_out(view: CoordinatorView) -> list[Any]:
    """A view as plain values."""
    values: list[Any] = list(_VIEW_VALUES(view))
    values[_PARTICIPANTS] = sorted(view.participants)
    return values


def view_in(raw: Sequence[Any]) -> CoordinatorView:
    """The view from the plain values of `view_out`."""
    values = list(raw)
    values[_STATE], values[_USE] = _STATES[values[_STATE]], _USES[values[_USE]]
    values[_PARTICIPANTS] = frozenset(TopicPartition(*partition) for partition in values[_PARTICIPANTS])
    return _VIEW(*values)


# A batch encodes and decodes thousands of these, so their values are stored by position, in the order of the fields.
_SPAN_FIELDS = tuple(spec.name for spec in fields(Span) if spec.name != "said")
_VIEW_FIELDS = tuple(spec.name for spec in fields(CoordinatorView))
_STATE, _USE, _PARTICIPANTS = (_VIEW_FIELDS.index(name) for name in ("state", "epoch_use", "participants"))
_STATES = {state.value: state for state in TransactionState}
_USES = {use.value: use for use in EpochUse}
_CANDIDATE_APART = {"partition", "span", "view"}
_CANDIDATE_FIELDS = tuple(spec.name for spec in fields(SpanCandidate) if spec.name not in _CANDIDATE_APART)
_CANDIDATE_VALUES: Callable[[SpanCandidate], tuple[Any, ...]] = attrgetter(*_CANDIDATE_FIELDS)
_SPAN: Callable[..., Span] = Span
_SPAN_VALUES: Callable[[Span], tuple[Any, ...]] = attrgetter(*_SPAN_FIELDS)
_VIEW: Callable[..., CoordinatorView] = CoordinatorView
_VIEW_VALUES: Callable[[CoordinatorView], tuple[Any, ...]] = attrgetter(*_VIEW_FIELDS)
assert fields(Span)[-1].name == "said"
assert _VIEW_FIELDS[:2] == Places._fields[1:]
