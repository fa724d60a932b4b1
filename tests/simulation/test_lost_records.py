"""The situations in which a lost record of `__transaction_state` once led to a false outcome, one after the other.

Each is a short script of what a client, its coordinator and the reader do. test_lives.py has random ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import pytest

from simulation.faults import compaction
from simulation.lives import A, B, Life
from simulation.outcome_mutants import Planted, a_sequence_identifies_data, an_earlier_leader_counts
from simulation.truth import Truth, witnessed
from txnwatch.state.model.incident import ExpectedOutcome as O
from txnwatch.state.model.values import TopicPartition

_HOUR_MS = 3_600_000


class Script(Life):
    """A life in which everything is said, and nothing is drawn."""

    def __init__(self, truth: Truth, version: int) -> None:
        super().__init__(1, truth)
        self.client.version = version
        self.oracle.actors.admin.unread_share = 0.0
        self.batches(3)

    @property
    def log_end(self) -> int:
        """Where the coordinators' log ends now."""
        return self.world.logs[0].end

    def add_and_write(self, partition: TopicPartition) -> None:
        """The client adds the partition, if it believes that it has not, and writes to it."""
        client = self.client
        if partition not in client.believed.added:
            self.world.coordinators.add(self.world.coordinators.transactions[client.transactional_id], partition)
            self.settle()
            client.learn(self.world)
        assert client.write(self.world, partition, client.producer_id, client.producer_epoch, 1)
        self.settle()

    def ask_to_end(self, *, commit: bool, lose: Collection[TopicPartition] = ()) -> None:
        """EndTxn; the markers of some partitions are taken for written."""
        client, coordinators = self.client, self.world.coordinators
        client.end(self.world, coordinators.transactions[client.transactional_id], commit=commit)
        self.settle()
        for marker in list(coordinators.markers):
            if marker.partition in lose:
                coordinators.markers.remove(marker)
                coordinators.acknowledge(marker)
        self.finish(lost=0.0)

    def transact(self, *partitions: TopicPartition, commit: bool = True, lose: Collection[TopicPartition] = ()) -> None:
        """A whole transaction."""
        for partition in partitions:
            self.add_and_write(partition)
        self.ask_to_end(commit=commit, lose=lose)

    def lose_from(self, end: int) -> None:
        """An election removes the records of the log from this offset on."""
        self.world.logs[0].fail_over_unclean(end)
        self._after_election()
        self.settle()

    def outcome_on_a(self) -> O | None:
        """The outcome that was published last about the client's producer id."""
        event = self.oracle.actors.published.get(self.client.producer_id)
        return event.expected_outcome if event is not None else None

    def go_on_elsewhere(self) -> None:
        """The client restarts, and its next transaction, on another partition, is open: an abort on A is possible."""
        self.start()
        self.batches(4)
        self.add_and_write(B)
        self.batches(6)


@pytest.fixture(params=[1, 2], ids=["old client", "transaction.version 2"])
def script(request: pytest.FixtureRequest) -> Iterator[Script]:
    with witnessed(Truth()) as truth:
        yield Script(truth, request.param)


def one_ongoing_record(life: Script) -> None:
    """The record that adds A is lost; the client goes on and is told that it has committed."""
    life.start()
    life.transact(A if life.client.version == 1 else B)
    life.batches(3)
    end = life.log_end
    life.add_and_write(A)
    life.lose_from(end)
    life.batches(3)
    if life.client.version == 2:
        life.add_and_write(B)
    life.ask_to_end(commit=True)


def the_whole_transaction_and_its_marker(life: Script) -> None:
    """A transaction and its commit are lost, and its marker on A, too."""
    life.start()
    if life.client.version == 2:
        life.transact(B)
    life.batches(4)
    end = life.log_end
    life.transact(A, lose=[A])
    life.lose_from(end)


def _lose_an_epoch(life: Script) -> None:
    """An InitProducerId and a whole transaction under its epoch are lost, and the marker on A."""
    life.start()
    life.batches(2)
    end = life.log_end
    life.start()
    life.transact(A, lose=[A])
    life.lose_from(end)


def the_epoch_is_given_again(life: Script) -> None:
    """InitProducerId and the transaction are lost, and the same epoch is given again in the same micro-batch."""
    _lose_an_epoch(life)
    life.start()


def the_epoch_is_given_again_before_the_data_is_read(life: Script) -> None:
    """The same, and A has no leader until the record is read."""
    _lose_an_epoch(life)
    life.world.data[A].has_leader = False
    life.batches(1)
    life.start()
    life.batches(3)
    life.world.data[A].has_leader = True


def a_late_write_before_the_data(life: Script) -> None:
    """Data of nobody hangs; the id's own transaction appends to it, commits, and its marker is lost there."""
    life.start()
    life.batches(2)
    assert life.client.write(life.world, A, life.client.producer_id, life.client.producer_epoch, 1)
    life.settle()
    life.batches(4)
    assert life.outcome_on_a() == O.NONE
    life.transact(A, lose=[A])


def two_lost_markers(life: Script) -> None:
    """A broker that flaps loses the marker of an abort, and then that of a commit under the same epoch."""
    life.start()
    life.batches(2)
    life.transact(A, commit=False, lose=[A])
    life.batches(4)
    assert life.outcome_on_a() == O.ABORT
    life.transact(A, lose=[A])


LOST = [
    one_ongoing_record,
    the_whole_transaction_and_its_marker,
    the_epoch_is_given_again,
    the_epoch_is_given_again_before_the_data_is_read,
    a_late_write_before_the_data,
    two_lost_markers,
]


@pytest.mark.parametrize("situation", LOST)
def test_no_outcome_is_false_and_committed_data_stays(script: Script, situation: Callable[[Script], None]) -> None:
    situation(script)
    script.batches(4)
    script.go_on_elsewhere()
    assert script.problems == [], "\n".join(script.world.timeline or [])
    assert script.outcome_on_a() not in {O.NONE, O.ABORT}


@pytest.mark.parametrize(
    ("planted", "situation"),
    [
        (an_earlier_leader_counts, one_ongoing_record),
        (an_earlier_leader_counts, the_epoch_is_given_again),
        (a_sequence_identifies_data, a_late_write_before_the_data),
    ],
)
def test_a_planted_bug_is_found(script: Script, planted: Planted, situation: Callable[[Script], None]) -> None:
    with planted():
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
