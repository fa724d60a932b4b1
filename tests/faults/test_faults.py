"""Every fault of the table on real brokers, watched by the real `txnwatch run`, which reports it and nothing else.

The watch scans the data, or it looks at the partitions whose last stable offset stands. `make faults` runs all on every
version, asks the other tools about the same cluster at the same moment, and writes docs/faults.json and
docs/faults-looked-at.json.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from support.event_tail import PublishedEvent
from support.fault_results import Results
from support.fault_runs import all_published, everything_ended, false_verdicts, result_of
from support.fault_table import SCENARIOS
from support.fault_world import WAYS, FaultWorld
from support.peers import answers_of_others
from support.scenarios import KAFKA_3, VERSIONS, Fault, Scenario
from support.waiting import eventually
from txnwatch.cli.main import main
from txnwatch.state.model.incident import ExpectedOutcome, IncidentEvent, OutcomeDoubt
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, coordinator_partition
from txnwatch.state.model.verdicts import Verdict

pytestmark = pytest.mark.faults

VERDICT_S = 60.0
SILENCE_S = 8.0
SETTLE_S = 3.0


def cases() -> Iterator[pytest.param]:
    for version in VERSIONS:
        for scenario in SCENARIOS:
            if version in scenario.versions:
                yield pytest.param(version, scenario, id=f"{version}-{scenario.row}-{scenario.name}")


def as_seen(scenario: Scenario, way: str) -> Scenario:
    """What is expected of a watch; one that does not read the data proves no stray write, and sees no truncation."""
    if way == "scanned":
        return scenario
    verdicts = tuple(verdict for verdict in scenario.verdicts if verdict != Verdict.STRAY_WRITE)
    return replace(scenario, verdicts=verdicts, truncated=False)


def named_as(published: list[PublishedEvent], fault: Fault) -> str | None:
    """The owner's name, once it is published; its coordinator's log may not be readable when the hang is proven."""
    names = [one.event.transactional_id for one in published if one.event.transactional_id is not None]
    assert set(names) <= {fault.transactional_id}
    return names[0] if names else None


@pytest.mark.parametrize(("version", "scenario"), list(cases()))
@pytest.mark.parametrize("way", WAYS)
def test_a_fault_gets_its_verdict_and_no_other(
    world: FaultWorld,
    version: str,
    way: str,
    scenario: Scenario,
    results: Results | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert world.kafka.version == version
    scenario = as_seen(scenario, way)
    start, lines = len(world.tail.published), len(world.watch.lines)
    try:
        fault = scenario.make(world)
    except Exception:
        world.restart_dead()
        raise
    wanted = scenario.verdicts[-1] if scenario.verdicts else None
    try:
        if wanted is None:
            time.sleep(SILENCE_S)
        else:
            (published, *_) = eventually(
                lambda: all_published(world, start, fault, wanted), VERDICT_S, f"{scenario.name}: {wanted}"
            )
            named = eventually(
                lambda: named_as(all_published(world, start, fault, wanted), fault),
                VERDICT_S,
                f"{scenario.name}: its owner",
            )
            if published.event.outcome_doubt is OutcomeDoubt.LISTING_AWAITED:  # before Kafka 4.0: about a second
                eventually(
                    lambda: with_outcome(all_published(world, start, fault, wanted)) != published.event,
                    VERDICT_S,
                    f"{scenario.name}: its outcome",
                )
            must_work_when_pasted(replace(published.event, transactional_id=named), capsys)
        others = answers_of_others(world, fault) if results is not None and way == "scanned" else {}
    finally:
        fault.end()
    if wanted is not None:
        eventually(lambda: everything_ended(world, start), VERDICT_S, f"the end of {scenario.name}")
    time.sleep(SETTLE_S)  # for what must not come
    published = all_published(world, start, fault, wanted)
    false = false_verdicts(world, start, fault, scenario)
    if results is not None:
        results.keep(result_of(world, scenario, fault, published, others, false))
    assert false == []
    assert everything_ended(world, start)
    corrected = [line for line in world.watch.lines[lines:] if "not in our copy of the log" in line]
    assert len(corrected) == scenario.truncated, corrected
    if wanted is not None:
        must_be_as_expected(world, scenario, fault, published, way)


def must_work_when_pasted(event: IncidentEvent, capsys: pytest.CaptureFixture[str]) -> None:
    """The command that the event suggests, as a shell would run it; a marker is only rehearsed here."""
    *fence, command = str(event.suggested_command).split(" && ")
    assert all(main([*shlex.split(one)[1:], "--dry-run"]) == 0 for one in fence)
    program, verb, *rest = shlex.split(command)
    assert program == "txnwatch"
    capsys.readouterr()
    code = main([verb, *rest, "--format", "json", *(["--dry-run"] if verb == "abort" else [])])
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["transactional_id"] == event.transactional_id or event.verdict == Verdict.STRAY_WRITE
    if verb == "abort":
        assert (code, row["result"]) in {(0, "dry_run"), (5, "refused (epoch_may_be_reused)")}
    elif event.verdict == Verdict.HANGING:
        assert (code, row["state"]) == (0, Verdict.HANGING)
    else:
        assert row["state"] not in {"all_clear", "idle"} or event.verdict == Verdict.STRAY_WRITE


def must_have_its_outcome(world: FaultWorld, scenario: Scenario, fault: Fault, event: IncidentEvent) -> None:
    """After a truncation a partition is read again, and it is not known when its data began.

    Then the outcome may be unknown: up to Kafka 3.9 the leader of the coordinators' log may have lost records before,
    and later the data may be older than the leader if there has been an election.
    """
    is_old = world.kafka.version in KAFKA_3
    if event.outcome_doubt is not (OutcomeDoubt.LEADER_NOT_WATCHED if is_old else OutcomeDoubt.BEGAN_BEFORE_ELECTION):
        assert event.expected_outcome == scenario.outcome, event.outcome_doubt
        return
    log = world.cluster.refresh().topics[TRANSACTION_STATE_TOPIC].partitions
    assert scenario.truncated
    assert is_old or log[coordinator_partition(fault.transactional_id, len(log))].leader_epoch != 0
    assert event.expected_outcome == ExpectedOutcome.UNKNOWN


def with_outcome(published: list[PublishedEvent]) -> IncidentEvent:
    """The event that has the outcome: before Kafka 4.0 it follows the first one, once a later listing has come."""
    found = [one.event for one in published if one.event.expected_outcome != ExpectedOutcome.UNKNOWN]
    first = published[0].event
    return found[0] if found and first.outcome_doubt is OutcomeDoubt.LISTING_AWAITED else first


def must_be_as_expected(
    world: FaultWorld, scenario: Scenario, fault: Fault, published: list[PublishedEvent], way: str
) -> None:
    event, end = published[0].event, published[-1].event
    assert (event.verdict, event.reason) == (scenario.verdicts[-1], scenario.reason)
    if way == "scanned":
        must_have_its_outcome(world, scenario, fault, with_outcome(published))
    else:  # it is not known when the data began
        assert published[-1].event.expected_outcome in {scenario.outcome, ExpectedOutcome.UNKNOWN}
    assert end.transactional_id == fault.transactional_id
    assert end.resolution is not None
    assert end.resolution.how == scenario.how
    if scenario.pending:
        assert event.pending_partitions == (str(fault.partition),)
    elif event.topic is not None:
        assert (event.topic, event.partition) == fault.partition
