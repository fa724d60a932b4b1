"""Carries out plans that need only fresh reads, in tests."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeVar

from txnwatch.state.incidents.checking import FollowUp, Surroundings
from txnwatch.state.incidents.wanted import Plan, PlanRunner, ReadGroups, ReadWaitingGroups, Say, Wanted, Way
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.ports import ConsumerGroups, PartitionReading, TransactionAdmin
from txnwatch.state.model.values import LONG_AGO, SpanStart, TimestampMs, TopicPartition

T = TypeVar("T")


def run_reads(plan: Plan[T], admin: TransactionAdmin) -> T:
    """The result of a plan of fresh reads."""
    return PlanRunner(admin, lambda: LONG_AGO).run(plan)


def at_once(result: T) -> Generator[Any, Any, T]:
    """A plan that wants nothing and has this result."""
    yield from ()
    return result


class FollowUpReads:
    """A FollowUp with its connections."""

    def __init__(
        self, admin: TransactionAdmin, groups: ConsumerGroups, report: Callable[[str], None] = lambda _: None
    ) -> None:
        ways: dict[type[Wanted[Any]], Way] = {
            ReadGroups: lambda wanted: groups.committed_offsets(wanted.partitions),
            ReadWaitingGroups: lambda wanted: groups.waiting(wanted.spans),
            Say: lambda wanted: report(wanted.text),
        }
        self.admin = admin
        self._reads = PlanRunner(admin, lambda: LONG_AGO, ways)
        self._follow_up = FollowUp()

    def around(
        self,
        readings: Mapping[TopicPartition, PartitionReading],
        now_ms: TimestampMs,
        known: Sequence[IncidentEvent] = (),
        spans: Sequence[SpanStart] = (),
    ) -> dict[TopicPartition, Surroundings]:
        """See FollowUp."""
        return self._reads.run(self._follow_up.around(readings, now_ms, known, spans))
