"""What was published about a fault, and the row of its run."""

from __future__ import annotations

from datetime import UTC, datetime

from bench.results import machine
from support.event_tail import PublishedEvent
from support.fault_results import Result
from support.fault_world import FaultWorld
from support.scenarios import Fault, Scenario
from txnwatch.state.model.incident import ExpectedOutcome
from txnwatch.state.model.verdicts import Verdict


def all_published(world: FaultWorld, start: int, fault: Fault, verdict: str | None = None) -> list[PublishedEvent]:
    """What was published about a fault, of one verdict if it is given."""
    found = world.published_after(start, sorted(fault.producer_ids))
    return [published for published in found if verdict is None or published.event.verdict == verdict]


def everything_ended(world: FaultWorld, start: int) -> bool:
    """Whether every incident that was published from a position of the tail on has ended."""
    last = {published.event.incident_id: published.event.status for published in world.tail.published[start:]}
    return all(status == "resolved" for status in last.values())


def false_verdicts(world: FaultWorld, start: int, fault: Fault, scenario: Scenario) -> list[str]:
    """Everything that was published from a position of the tail on and is not about the fault."""
    return [
        f"{published.event.verdict} {published.event.transactional_id} {published.event.subject}"
        for published in world.tail.published[start:]
        if published.event.producer_id not in fault.producer_ids or published.event.verdict not in scenario.verdicts
    ]


def result_of(
    world: FaultWorld,
    scenario: Scenario,
    fault: Fault,
    published: list[PublishedEvent],
    others: dict[str, object],
    false: list[str],
) -> Result:
    """The row of one run."""
    event = published[0].event if published else None
    evidence = event.evidence if event is not None else None
    first, second = (evidence.first_barrier, evidence.second_barrier) if evidence is not None else (None, None)
    end = published[-1].event.resolution if published else None
    return Result(
        row=scenario.row,
        name=scenario.name,
        version=world.kafka.version,
        fault=scenario.fault,
        truth=scenario.truth,
        verdict=event.verdict if event is not None else None,
        reason=event.reason if event is not None else None,
        expected_outcome=event.expected_outcome if event is not None else None,
        outcome_doubt=event.outcome_doubt if event is not None else None,
        is_outcome_known=is_outcome_known(published),
        is_named=bool(published) and published[-1].event.transactional_id == fault.transactional_id,
        seconds=round(published[0].at_s - fault.at_s, 2) if published else None,
        barriers=second - first if first is not None and second is not None else None,
        resolution=end.how if end is not None else None,
        false_verdicts=false,
        others=others,
        date=datetime.now(UTC).date().isoformat(),
        machine=machine(),
    )


def is_outcome_known(published: list[PublishedEvent]) -> bool | None:
    """Whether the outcome of a hang was known in the end; None if nothing hangs."""
    hangs = [one.event for one in published if one.event.verdict == Verdict.HANGING]
    return hangs[-1].expected_outcome != ExpectedOutcome.UNKNOWN if hangs else None
