"""The situations in which a lost record of `__transaction_state` once led to a false outcome, one after the other.

Each is a short script of what a client, its coordinator and the reader do. test_lives.py has random ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from simulation.faults import compaction
from simulation.lives import A, B
from simulation.lost_records import (
    BY_ELECTION,
    BY_POWER_FAILURE,
    LOSSES,
    LOST,
    VERSIONS,
    Script,
    a_follower_brings_the_lost_data_back,
    a_late_write_before_the_data,
    a_script,
    a_transaction_between_the_listing_and_the_fresh_read,
    an_old_replica_brings_the_data_back,
    one_ongoing_record,
    one_ongoing_record_before_its_data,
    the_epoch_is_given_again_before_the_data_is_read,
    the_same_in_a_batch_that_is_repeated,
    the_second_look_misses_the_record_of_an_owner,
    the_whole_transaction_and_its_marker,
)
from simulation.outcome_mutants import (
    Planted,
    a_record_of_an_earlier_connection_counts,
    a_sequence_identifies_data,
    an_earlier_leader_counts,
    an_epoch_is_a_reign,
    an_epoch_proves_an_age,
    an_offset_proves_an_age,
    data_of_an_earlier_connection_counts,
    one_read_counts,
)
from txnwatch.state.model.incident import ExpectedOutcome as O

_HOUR_MS = 3_600_000


@pytest.fixture(params=VERSIONS.values(), ids=VERSIONS)
def version(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture(params=LOSSES.values(), ids=LOSSES)
def script(request: pytest.FixtureRequest, version: int) -> Iterator[Script]:
    with a_script(version, request.param) as script:
        yield script


@pytest.mark.parametrize("situation", LOST)
def test_no_outcome_is_false_and_committed_data_stays(script: Script, situation: Callable[[Script], None]) -> None:
    situation(script)
    script.batches(4)
    script.go_on_elsewhere()
    assert script.problems == [], "\n".join(script.world.timeline or [])
    assert script.outcome_on_a() not in {O.NONE, O.ABORT}


@pytest.mark.parametrize(
    ("planted", "loss", "situation"),
    [
        (an_earlier_leader_counts, BY_ELECTION, one_ongoing_record),
        (an_earlier_leader_counts, BY_ELECTION, the_whole_transaction_and_its_marker),
        (a_sequence_identifies_data, BY_ELECTION, a_late_write_before_the_data),
        (an_epoch_is_a_reign, BY_POWER_FAILURE, one_ongoing_record),
        (an_epoch_is_a_reign, BY_POWER_FAILURE, the_whole_transaction_and_its_marker),
        (a_record_of_an_earlier_connection_counts, BY_POWER_FAILURE, one_ongoing_record_before_its_data),
        (one_read_counts, BY_POWER_FAILURE, the_second_look_misses_the_record_of_an_owner),
        (one_read_counts, BY_POWER_FAILURE, a_transaction_between_the_listing_and_the_fresh_read),
        (one_read_counts, BY_POWER_FAILURE, the_same_in_a_batch_that_is_repeated),
        (an_epoch_proves_an_age, BY_POWER_FAILURE, a_follower_brings_the_lost_data_back),
        (data_of_an_earlier_connection_counts, BY_POWER_FAILURE, the_epoch_is_given_again_before_the_data_is_read),
        (an_offset_proves_an_age, BY_ELECTION, an_old_replica_brings_the_data_back),
        (an_offset_proves_an_age, BY_POWER_FAILURE, an_old_replica_brings_the_data_back),
    ],
)
def test_a_planted_bug_is_found(
    version: int, planted: Planted, loss: dict[str, bool], situation: Callable[[Script], None]
) -> None:
    with planted(), a_script(version, loss) as script:
        situation(script)
        script.batches(4)
        script.go_on_elsewhere()
        assert script.problems != [], planted.__doc__


def a_cut(life: Script) -> None:
    life.lose_from(life.world.logs[0].boundaries()[-1])


def compaction_while_the_watcher_is_down(life: Script) -> None:
    for _ in range(3):
        life.transact(B)
    assert compaction(life.world, 0.0)


@pytest.mark.parametrize("event", [a_cut, compaction_while_the_watcher_is_down])
def test_the_outcome_of_a_new_id_is_known_whatever_the_log_has_been_through(
    script: Script, event: Callable[[Script], None]
) -> None:
    script.start()
    script.transact(B)
    script.batches(3)
    event(script)
    script.batches(6)
    for _ in range(20):
        script.world.wait(_HOUR_MS)
        script.batches(1)
    script.client = script.world.clients[1]
    script.client.log, script.client.version = 0, script.world.clients[0].version
    script.start()
    script.batches(3)
    script.transact(A, commit=False, lose=[A])
    script.batches(4)
    assert script.outcome_on_a() == O.ABORT


def test_none_survives_the_fence_that_an_abort_demands(script: Script) -> None:
    script.start()
    script.batches(2)
    assert script.client.write(script.world, A, script.client.producer_id, script.client.producer_epoch, 1)
    script.settle()
    script.fence()
    script.settle()
    script.batches(6)
    assert script.outcome_on_a() == O.NONE
    assert script.world.seen["aborts verified"] == 1
