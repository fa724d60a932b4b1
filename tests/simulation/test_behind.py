"""Where leader epochs show a restart, an outcome is known although the partition is behind while its leader changes.

What the former leader has appended above an end that it had listed is younger than this listing, whoever leads when it
is read.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from simulation.lives import A
from simulation.lost_records import BY_ELECTION, VERSIONS, Script, a_script
from txnwatch.state.model.incident import ExpectedOutcome as O
from txnwatch.streaming.source.planner import Limits

FILLED = 12  # offsets that are read one by one


@pytest.fixture(params=VERSIONS.values(), ids=VERSIONS)
def script(request: pytest.FixtureRequest) -> Iterator[Script]:
    with a_script(request.param, BY_ELECTION) as script:
        yield script


def fall_behind_a_hang(script: Script) -> None:
    """The log has had an election; then a transaction is aborted, its marker on A is lost, and A is behind below it."""
    script.elect()
    script.start()
    script.batches(3)
    script.reader.limits = Limits(data_offsets=1)
    script.world.data[A].write_much(FILLED)
    script.settle()
    script.batches(2)
    script.transact(A, commit=False, lose=[A])


def elect_leaders_of_a(script: Script, times: int, appended: int) -> None:
    """Clean elections of A, each of which is listed while A is behind; each leader appends some batches."""
    for _ in range(times):
        script.world.data[A].fail_over()
        script.settle()
        script.world.data[A].write_much(appended)
        script.settle()
        script.batches(2)


def catch_up(script: Script) -> None:
    script.reader.limits = Limits()
    script.batches(8)


@pytest.mark.parametrize(("times", "appended"), [(0, 0), (1, 0), (1, 3), (3, 1)])
def test_the_outcome_is_known_whoever_leads_when_it_is_read(script: Script, times: int, appended: int) -> None:
    fall_behind_a_hang(script)
    elect_leaders_of_a(script, times, appended)
    catch_up(script)
    assert script.outcome_on_a() == O.ABORT, "\n".join(script.world.timeline or [])
    assert not script.problems


def test_a_leader_that_has_appended_nothing_hides_that_the_log_is_the_same(script: Script) -> None:
    """What is lost: Fetch names its epoch, of which the next leader knows nothing, so what was read is in doubt."""
    fall_behind_a_hang(script)
    elect_leaders_of_a(script, times=2, appended=0)
    catch_up(script)
    assert script.outcome_on_a() == O.UNKNOWN
    assert not script.problems


def test_what_an_old_replica_has_brought_back_is_older_than_its_place(script: Script) -> None:
    """Data of an epoch below the one under which the end was listed."""
    script.elect()
    script.start()
    script.transact(A, commit=False, lose=[A])
    leader = script.world.data[A]
    leader.fail_over_unclean(0)
    script.settle()
    script.batches(3)
    script.reader.limits = Limits(data_offsets=1)
    leader.write_much(FILLED)
    script.settle()
    leader.return_with_own_log()
    script.settle()
    catch_up(script)
    assert script.outcome_on_a() in {O.UNKNOWN, None}
    assert not script.problems
