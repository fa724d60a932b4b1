"""Planted bugs in the fold and in the spans of the state, to see whether a test would notice.

A bug is a variant of a function or method of the product, and takes its place for as long as the test lasts. It is
made of the right one: it changes what goes in or what comes out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from txnwatch.state.detection import span
from txnwatch.state.detection import span as spans
from txnwatch.state.detection.span import Closed, SpanEvent
from txnwatch.state.model.facts import PartitionNotice, ProducerSeen
from txnwatch.state.model.transaction import Marker, Span
from txnwatch.streaming.log import partition_fold
from txnwatch.streaming.log.partition_fold import PartitionFold, RangeProducer
from txnwatch.streaming.wire.record_batch import TRANSACTIONAL, BatchHeader, header_at

_MADE_UP = 1 << 40
_right = {name: getattr(PartitionFold, name) for name in ("apply_marker", "taken_up", "runs")}


class Mutant:
    """A wrong function, and whose place it takes: a method of a class, or a function of a module.

    If the function is defined in that module, the wrong one is also in every module that has imported it.
    """

    def __init__(self, owner: Any, name: str, wrong: Callable[..., Any]) -> None:
        self.owner, self.name, self.wrong = owner, name, wrong

    def plant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Until the end of the test."""
        right = getattr(self.owner, self.name)
        monkeypatch.setattr(self.owner, self.name, self.wrong)
        if right.__module__ != self.owner.__name__:
            return
        for module in [module for name, module in sys.modules.items() if name.startswith("txnwatch.")]:
            if getattr(module, self.name, None) is right:
                monkeypatch.setattr(module, self.name, self.wrong)


def _marker_only_if(takes: Callable[[RangeProducer, BatchHeader], bool]) -> Mutant:
    """A marker has no effect on a producer of the range if a rule says so."""

    def wrong(fold: PartitionFold, buffer: bytes, position: int, header: BatchHeader) -> None:
        producer = fold.producers.get(header.producer_id)
        if producer is None or takes(producer, header):
            _right["apply_marker"](fold, buffer, position, header)

    return Mutant(PartitionFold, "apply_marker", wrong)


def _marker_closes_only_if(closes: Callable[[Marker], bool]) -> Mutant:
    """A marker is noted, and what it should close stays open, if a rule says so."""

    def wrong(fold: PartitionFold, buffer: bytes, position: int, header: BatchHeader) -> None:
        producer = fold.producers.get(header.producer_id)
        was_open = producer.open_offset if producer is not None else None
        _right["apply_marker"](fold, buffer, position, header)
        if producer is not None and producer.last_marker is not None and not closes(producer.last_marker):
            producer.open_offset = was_open

    return Mutant(PartitionFold, "apply_marker", wrong)


def _epoch_begins_anew(fold: PartitionFold, encoded: bytes, base: int, *batch: Any) -> RangeProducer | None:
    producer_id, epoch = partition_fold.producer_of(encoded)
    seen = fold.producers.get(producer_id)
    if seen is not None and seen.epoch < epoch:
        seen.open_offset = None
    found: RangeProducer | None = _right["taken_up"](fold, encoded, base, *batch)
    return found


def _every_batch_opens(fold: PartitionFold, encoded: bytes, base: int, *_: Any) -> RangeProducer:
    producer_id, epoch = partition_fold.producer_of(encoded)
    return fold.opened(producer_id, base, epoch)


def _runs_of_records(fold: PartitionFold, buffer: bytes, *args: Any, **options: Any) -> Iterator[Any]:
    for run in _right["runs"](fold, buffer, *args, **options):
        at, _, _, attributes, *_ = run
        if not attributes & TRANSACTIONAL or header_at(buffer, at).record_count:
            yield run


def _runs_all_transactional(fold: PartitionFold, *args: Any, **options: Any) -> Iterator[Any]:
    for at, first, last, attributes, *rest in _right["runs"](fold, *args, **options):
        yield (at, first, last, attributes | TRANSACTIONAL, *rest)


_producer_of = partition_fold.producer_of


def _somebody(encoded: bytes) -> tuple[int, int]:
    producer_id, epoch = _producer_of(encoded)
    return (producer_id if producer_id != -1 else _MADE_UP), epoch


_closed_by = spans.closed_by


def _closes_only_if(closes: Callable[[Marker, Span], bool]) -> Mutant:
    """The state leaves out a marker if a rule says so."""

    def wrong(prior: Span | None, fact: ProducerSeen) -> Closed | None:
        def kept(marker: Marker | None) -> Marker | None:
            return marker if marker is not None and prior is not None and closes(marker, prior) else None

        markers = {"first_marker": kept(fact.first_marker), "last_marker": kept(fact.last_marker)}
        return _closed_by(prior, replace(fact, **markers))

    return Mutant(spans, "closed_by", wrong)


_extended = spans.extended


def _keeps_its_start(prior: Span, fact: ProducerSeen, read_since: int) -> Span:
    return replace(_extended(prior, fact, read_since), start_offset=prior.start_offset)


def _highest_epoch(prior: Span, fact: ProducerSeen, read_since: int) -> Span:
    span = _extended(prior, fact, read_since)
    return span if span is prior else replace(span, epoch=max(fact.epoch, prior.epoch))


_event_of_notice, _changed = span.event_of_notice, span.changed


def _never_cut_away(notice: PartitionNotice, span: Span) -> SpanEvent | None:
    event = _event_of_notice(notice, span)
    return SpanEvent.TRUNCATED_ABOVE if event is SpanEvent.TRUNCATED_AWAY else event


def _keeps_its_end(span: Span, event: SpanEvent) -> Span:
    return replace(_changed(span, event), epoch=span.epoch, last_offset=span.last_offset)


MUTANTS: dict[str, Mutant] = {
    "only a newer epoch closes": _marker_only_if(
        lambda producer, header: producer.open_offset is None or header.producer_epoch > producer.epoch
    ),
    "an older epoch closes nothing": _marker_only_if(lambda producer, header: header.producer_epoch >= producer.epoch),
    "a newer epoch in data begins anew": Mutant(PartitionFold, "taken_up", _epoch_begins_anew),
    "a marker is dropped": _marker_closes_only_if(lambda _: False),
    "an abort does not close": _marker_closes_only_if(lambda marker: marker.commit),
    "an emptied batch opens nothing": Mutant(PartitionFold, "runs", _runs_of_records),
    "data outside of transactions opens": Mutant(PartitionFold, "runs", _runs_all_transactional),
    "nobody opens": Mutant(partition_fold, "producer_of", _somebody),
    "the last batch opens": Mutant(PartitionFold, "taken_up", _every_batch_opens),
    "the state waits for a newer epoch": _closes_only_if(lambda marker, span: marker.producer_epoch > span.epoch),
    "the state minds the epoch": _closes_only_if(lambda marker, span: marker.producer_epoch >= span.epoch),
    "the state never closes": _closes_only_if(lambda *_: False),
    "a re-read does not show an earlier start": Mutant(spans, "extended", _keeps_its_start),
    "the highest epoch is the last": Mutant(spans, "extended", _highest_epoch),
    "a cut takes nothing": Mutant(span, "event_of_notice", _never_cut_away),
    "a cut keeps the epoch": Mutant(span, "changed", _keeps_its_end),
}
