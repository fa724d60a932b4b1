"""Bugs planted where a partition changes its side: its scan ends, or begins again."""

from __future__ import annotations

from contextlib import AbstractContextManager
from unittest import mock

from msgspec.structs import replace

from simulation.mutants import Wrapped
from simulation.reader import WorldReader
from simulation.sides import ChangingSides
from simulation.world import Setting
from txnwatch.state.detection import bucket as buckets
from txnwatch.state.detection.span import Step, after_change_of_scan
from txnwatch.state.model.facts import Barrier
from txnwatch.state.model.transaction import ProducerState

SIDES = Setting(
    faults=frozenset({"lost marker", "stray write", "no leader"}), rate=4.0, batches=24, partitions=2, logs=1
)


class StillScanned(ChangingSides, Wrapped):
    """What the scan has shown counts as still read, although nobody reads it."""

    def patch(self) -> AbstractContextManager[object]:
        def keep(producer: ProducerState, barrier: Barrier) -> Step:
            return after_change_of_scan(producer, replace(barrier, looked_at=frozenset()))

        return mock.patch.object(buckets, "after_change_of_scan", keep)


class ForgottenWithTheScan(ChangingSides, Wrapped):
    """A span that was open when the scan ended is forgotten."""

    def patch(self) -> AbstractContextManager[object]:
        def forget(producer: ProducerState, barrier: Barrier) -> Step:
            kept = {at: span for at, span in producer.spans.items() if at not in barrier.looked_at}
            return after_change_of_scan(replace(producer, spans=kept), barrier)

        return mock.patch.object(buckets, "after_change_of_scan", forget)


MUTANTS_OF_SIDES: tuple[tuple[type[WorldReader], Setting, int], ...] = (
    (StillScanned, SIDES, 0),
    (ForgottenWithTheScan, SIDES, 20),
)
