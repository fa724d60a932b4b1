"""What a search for hanging transactions has found, and what it could not check. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from txnwatch.state.evidence.ages import LeaderStamp
from txnwatch.state.evidence.confirmation import SpanConfirmation, TransactionConfirmation
from txnwatch.state.model.findings import SpanCandidate, TransactionCandidate
from txnwatch.state.model.ports import PartitionReading
from txnwatch.state.model.transaction import CoordinatorView, DescribedTransaction
from txnwatch.state.model.values import CoordinatorEpoch, ProducerId, TopicPartition
from txnwatch.state.model.verdicts import DetectionPolicy


class OwnerViews(NamedTuple):
    """What `__transaction_state` shows: the views by producer id, what could not be read, who leads a partition.

    Attributes:
        led: the leaders that have left a stamp, by number of a log partition.
        epochs: the leader epochs under which the ends of the log were listed, by number of a log partition.
    """

    views: Mapping[ProducerId, CoordinatorView] = {}
    problems: Mapping[str, str] = {}
    led: Mapping[int, LeaderStamp] = {}
    epochs: Mapping[int, CoordinatorEpoch] = {}

    def epoch_of(self, view: CoordinatorView | None) -> CoordinatorEpoch | None:
        """The leader epoch that the log partition of a view had when its end was listed; None if it is not known."""
        return self.epochs.get(view.log_partition) if view is not None else None

    def name(self, candidate: SpanCandidate) -> SpanCandidate:
        """A candidate with what the log shows about its owner; one read does not show since when the log is so."""
        view = self.views.get(candidate.producer_id)
        return replace(candidate, view=view, log_epoch=self.epoch_of(view))


@dataclass(slots=True)
class Search:
    """What was found, and what could not be checked.

    Attributes:
        readings: the first read (P1) of every partition.
        hanging: proven, with the confirmation.
        overdue: late, long running and stuck transactions, confirmed.
        covered: open, and held by a live transaction.
        unproven: open, and not known whether a live transaction holds it, with the reason.
        not_checked: what was not checked, with the reason; includes the unproven.
        policy: the thresholds that were used.
    """

    readings: dict[TopicPartition, PartitionReading] = field(default_factory=dict)
    hanging: list[tuple[SpanCandidate, SpanConfirmation]] = field(default_factory=list)
    overdue: list[tuple[TransactionCandidate, TransactionConfirmation]] = field(default_factory=list)
    covered: list[tuple[SpanCandidate, DescribedTransaction]] = field(default_factory=list)
    unproven: list[tuple[SpanCandidate, str]] = field(default_factory=list)
    not_checked: dict[str, str] = field(default_factory=dict)
    policy: DetectionPolicy = field(default_factory=DetectionPolicy)

    def only(self, partition: TopicPartition) -> Search:
        """What was found about one of the partitions."""
        return Search(
            {partition: self.readings[partition]},
            [pair for pair in self.hanging if pair[0].partition == partition],
            self.overdue,
            [pair for pair in self.covered if pair[0].partition == partition],
            [pair for pair in self.unproven if pair[0].partition == partition],
            self.not_checked,
            self.policy,
        )
