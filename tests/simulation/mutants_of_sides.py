"""Bugs planted where a partition changes its side: its scan ends, or begins again."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from unittest import mock

from msgspec.structs import replace

from simulation.mutants import Wrapped
from simulation.reader import ReaderListing, WorldReader
from simulation.run import USUAL
from simulation.sides import ChangingSides
from simulation.world import Setting
from txnwatch.state.detection import bucket as buckets
from txnwatch.state.detection import span as spans
from txnwatch.state.detection.span import EFFECTS, SpanEvent, Step, after_change_of_scan
from txnwatch.state.model.facts import Barrier
from txnwatch.state.model.ports import ListedOffset
from txnwatch.state.model.transaction import ProducerState
from txnwatch.state.model.values import Offset, TopicPartition
from txnwatch.streaming.source import lister as listing
from txnwatch.streaming.source.lister import ListOffsets, start_offsets
from txnwatch.streaming.source.offsets import SourceOffset
from txnwatch.streaming.source.options import Offsets


class WithOtherEffect(ChangingSides, Wrapped):
    """A change of the scan has the effect of another event, or none."""

    event: SpanEvent
    other: SpanEvent | None

    def patch(self) -> AbstractContextManager[object]:
        def changed(producer: ProducerState, barrier: Barrier) -> Step:
            if self.other is not None:
                with mock.patch.dict(spans.EFFECTS, {self.event: EFFECTS[self.other]}):
                    return after_change_of_scan(producer, barrier)
            at = {
                SpanEvent.SCAN_ENDS: replace(barrier, looked_at=frozenset()),
                SpanEvent.SCAN_BEGINS: replace(barrier, begun={}),
            }
            return after_change_of_scan(producer, at[self.event])

        return mock.patch.object(buckets, "after_change_of_scan", changed)


class StillScanned(WithOtherEffect):
    """What the scan has shown counts as still read, although nobody reads it."""

    event, other = SpanEvent.SCAN_ENDS, None


class ForgottenWithTheScan(ChangingSides, Wrapped):
    """A span that was open when the scan ended is forgotten."""

    def patch(self) -> AbstractContextManager[object]:
        def forget(producer: ProducerState, barrier: Barrier) -> Step:
            kept = {at: span for at, span in producer.spans.items() if at not in barrier.looked_at}
            return after_change_of_scan(replace(producer, spans=kept), barrier)

        return mock.patch.object(buckets, "after_change_of_scan", forget)


class BegunIsStillOfTheCensus(WithOtherEffect):
    """What censuses have shown is not left to the scan when it begins."""

    event, other = SpanEvent.SCAN_BEGINS, None


class OlderThanTheScanStaysOpen(WithOtherEffect):
    """What is open below the first position of a scan counts as open, although nobody will read its end."""

    event, other = SpanEvent.SCAN_BEGINS_ABOVE, SpanEvent.SCAN_BEGINS


class BegunAtTheEnd(ChangingSides):
    """A scan that begins again begins at the end of the log, above what is open."""

    def list_ends(self) -> ReaderListing | None:
        def starts(
            previous: SourceOffset, listed: Mapping[TopicPartition, str], wanted: Offsets, ask: ListOffsets
        ) -> dict[TopicPartition, Offset]:
            found = start_offsets(previous, listed, wanted, ask)
            for at, answer in ask(found.keys() & previous.looked.keys()).items():
                if isinstance(answer, ListedOffset):
                    found[at] = answer.offset
            return found

        with mock.patch.object(listing, "start_offsets", starts):
            return super().list_ends()


MUTANTS_OF_SIDES: tuple[tuple[type[WorldReader], Setting, int], ...] = (
    (StillScanned, USUAL, 0),
    (ForgottenWithTheScan, USUAL, 0),
    (BegunIsStillOfTheCensus, USUAL, 0),
    (OlderThanTheScanStaysOpen, USUAL, 0),
    (BegunAtTheEnd, USUAL, 0),
)
