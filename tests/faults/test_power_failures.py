"""The power of the whole cluster fails: no expected outcome is false, and the automatic abort leaves acknowledged data.

The watch aborts by itself, at once. Up to Kafka 3.9 the leader epochs are the same afterwards.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from support.aborts import aborted, actions, begin, hangs, is_open, outcomes, pass_chances, until
from support.fault_results import Results
from support.fault_runs import all_published, everything_ended, false_verdicts, result_of
from support.fault_world import ABORTING, FaultWorld, Worlds
from support.kafka_faults import stray_write
from support.peers import answers_of_others
from support.power_failures import POWER_FAILURES, Acknowledged
from support.scenarios import VERSIONS, Scenario
from support.servers import Clusters
from support.topics import unique
from support.waiting import eventually

pytestmark = pytest.mark.faults

IN_TIME_S = 60.0


def cases() -> Iterator[pytest.param]:
    for version in VERSIONS:
        for scenario in POWER_FAILURES:
            yield pytest.param(version, scenario, id=f"{version}-{scenario.name}")


@pytest.fixture(scope="module")
def worlds(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worlds]:
    """Worlds whose watch aborts by itself."""
    with contextlib.closing(Worlds(clusters, tmp_path_factory, *ABORTING)) as found:
        yield found


def pass_an_abort(world: FaultWorld) -> None:
    """Waits until the watch has aborted a hang that nobody will end: it could have aborted any other one as well."""
    partition = world.partition(3)
    client = stray_write(world.cluster, unique("nobody"), partition)
    client.init()
    until(world, partition, "abort", None, "verified")


@pytest.mark.parametrize(("version", "scenario"), list(cases()))
def test_acknowledged_data_has_no_false_outcome_and_is_not_aborted(
    world: FaultWorld, scenario: Scenario, results: Results | None
) -> None:
    start = len(world.tail.published)
    fault = scenario.make(world)
    assert isinstance(fault, Acknowledged)
    client, orders, elsewhere = fault.client, fault.partition, world.partition(3)
    eventually(lambda: hangs(world, orders, client), IN_TIME_S, lambda: f"the hang; printed {world.watch.lines[-10:]}")
    others = answers_of_others(world, fault) if results is not None else {}
    pass_chances(world)
    client.init()  # the application restarts
    begin(client, elsewhere)
    client.produce(elsewhere)
    false = false_verdicts(world, start, fault, scenario)
    pass_an_abort(world)
    pass_chances(world)
    decided, is_there = actions(world, orders), is_open(world, orders, client.producer_id)
    if is_there:
        fault.end()
    client.end(commit=True)
    eventually(lambda: everything_ended(world, start), IN_TIME_S, f"the end of {scenario.name}")
    published = all_published(world, start, fault, "hanging")
    if results is not None:
        results.keep(result_of(world, scenario, fault, published, others, false))
    said = outcomes(world, orders, client)
    assert {decision for decision, _, _ in decided} <= {"refused"}, (decided, said)
    assert is_there
    assert aborted(world, orders, client) == 0
    assert all(outcome == scenario.outcome or (outcome == "unknown" and doubt) for outcome, doubt in said), said
    assert false == []
