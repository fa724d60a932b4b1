"""Situations in which a lost record of `__transaction_state` once led to a false outcome: each is a short script."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from simulation.lives import A, B, Life
from simulation.partition import DataPartition
from simulation.reader import BatchResult, ReaderListing
from simulation.truth import Truth, witnessed
from txnwatch.state.model.incident import ExpectedOutcome as O
from txnwatch.state.model.values import TopicPartition


class Script(Life):
    """A life in which everything is said, and nothing is drawn."""

    def __init__(self, truth: Truth, version: int, *, keeps_epochs: bool) -> None:
        super().__init__(1, truth, keeps_epochs=keeps_epochs)
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

    def restart(self) -> None:
        """The client starts again: its InitProducerId gives it the next epoch."""
        client = self.client
        self.world.coordinators.init(client.transactional_id, client.log, client.version, client.timeout_ms)
        self.settle()
        self.start()

    def transact(self, *partitions: TopicPartition, commit: bool = True, lose: Collection[TopicPartition] = ()) -> None:
        """A whole transaction."""
        for partition in partitions:
            self.add_and_write(partition)
        self.ask_to_end(commit=commit, lose=lose)

    def lose_before_the_next_reading(self, end: int) -> None:
        """What the next barrier lists is lost before it is read, and records of another id have its place."""
        self.before_the_next_reading(lambda: (self.lose_from(end), self.start_another_id()))

    def before_the_next_reading(self, happen: Callable[[], object]) -> None:
        """Something happens after the next barrier is listed and before anything is read."""
        read = self.reader.attempt

        def happen_first(listed: ReaderListing) -> BatchResult:
            self.reader.attempt = read
            happen()
            return read(listed)

        self.reader.attempt = happen_first

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


VERSIONS = {"old client": 1, "transaction.version 2": 2}
BY_ELECTION, BY_POWER_FAILURE = {"keeps_epochs": False}, {"keeps_epochs": True}
LOSSES = {"lost in an election": BY_ELECTION, "lost under one leader epoch": BY_POWER_FAILURE}


@contextmanager
def a_script(version: int, loss: dict[str, bool]) -> Iterator[Script]:
    with witnessed(Truth()) as truth:
        yield Script(truth, version, **loss)


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


def one_ongoing_record_before_its_data(life: Script) -> None:
    """The same, and the client writes to A only after the reader has seen the present leader."""
    life.start()
    life.transact(A if life.client.version == 1 else B)
    life.batches(3)
    end = life.log_end
    known = life.world.coordinators.transactions[life.client.transactional_id]
    life.world.coordinators.add(known, A)
    life.settle()
    life.client.learn(life.world)
    life.lose_from(end)
    life.batches(3)
    life.add_and_write(A)
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
    life.restart()
    life.transact(A, lose=[A])
    life.lose_from(end)


def the_epoch_is_given_again(life: Script) -> None:
    """InitProducerId and the transaction are lost, and the same epoch is given again in the same micro-batch."""
    _lose_an_epoch(life)
    life.restart()


def the_epoch_is_given_again_before_the_data_is_read(life: Script) -> None:
    """The same, and A has no leader until the record is read."""
    _lose_an_epoch(life)
    life.world.data[A].has_leader = False
    life.batches(1)
    life.restart()
    life.batches(3)
    life.world.data[A].has_leader = True


def _lost_data_comes_back(life: Script, lose: Callable[[DataPartition], object]) -> None:
    """The same, but the data is lost, too; the present leaders are listed; then a replica that has the data leads."""
    life.start()
    life.batches(2)
    end, log = life.log_end, life.world.data[A]
    life.restart()
    life.transact(A, lose=[A])
    kept = list(log.entries), list(log.epochs)
    lose(log)
    log.former = kept
    life.lose_from(end)
    life.batches(3)
    life.restart()
    life.batches(3)
    log.return_with_own_log()
    life.settle()


def an_old_replica_brings_the_data_back(life: Script) -> None:
    """Another replica leads without the data, under a new epoch; then its former leader returns."""
    _lost_data_comes_back(life, lambda log: log.fail_over_unclean(0))


def a_follower_brings_the_lost_data_back(life: Script) -> None:
    """The leader loses its tail, and keeps its epoch if leaders do so here; then a follower with the tail leads."""
    keeps = life.world.keeps_epochs
    _lost_data_comes_back(life, lambda log: log.lose_power(0) if keeps else log.fail_over_unclean(0))


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


def read_records_are_lost_and_the_log_grows_again(life: Script) -> None:
    """The reader has read what is lost, and the log is longer than before when it reads again."""
    life.start()
    life.transact(A, commit=False)
    end = life.log_end
    for _ in range(4):
        life.start_another_id()
    life.batches(4)
    position = life.world.read_to[0]
    life.lose_from(end)
    life.transact(A, lose=[A])
    while life.log_end <= position:
        life.start_another_id()


def the_loss_is_between_the_listing_and_the_reading(life: Script) -> None:
    """The record that adds A was listed, and is lost before it is read; other records have its place then."""
    life.start()
    life.transact(A if life.client.version == 1 else B)
    life.batches(3)
    end = life.log_end
    life.add_and_write(A)
    life.lose_before_the_next_reading(end)
    life.batches(4)
    if life.client.version == 2:
        life.add_and_write(B)
    life.ask_to_end(commit=True)


def the_second_look_misses_the_record_of_an_owner(life: Script) -> None:
    """Data of nobody was looked at once; the record of a transaction that appends to it is listed, and lost unread."""
    life.start()
    if life.client.version == 2:
        life.transact(B)
    life.batches(3)
    end = life.log_end
    assert life.client.write(life.world, A, life.client.producer_id, life.client.producer_epoch, 1)
    life.settle()
    life.batches(1)
    life.add_and_write(A)
    life.lose_before_the_next_reading(end)
    life.batches(1)
    if life.client.version == 2:
        life.add_and_write(B)
    life.ask_to_end(commit=True)


def _nobodys_data_was_looked_at_once(life: Script) -> int:
    """Returns where the log ends."""
    life.start()
    life.batches(3)
    assert life.client.write(life.world, A, life.client.producer_id, life.client.producer_epoch, 1)
    life.settle()
    life.batches(1)
    return life.log_end


def a_transaction_between_the_listing_and_the_fresh_read(life: Script) -> None:
    """It appends to data of nobody, commits and is lost, after the second look is listed and before its fresh read."""
    end = _nobodys_data_was_looked_at_once(life)
    life.before_the_next_reading(lambda: (life.transact(A, lose=[A]), life.lose_from(end)))
    life.batches(1)


def the_same_in_a_batch_that_is_repeated(life: Script) -> None:
    """The watcher dies in the batch of the second look; the batch is repeated after the power failure."""
    end, reader = _nobodys_data_was_looked_at_once(life), life.reader
    attempt, tries = reader.attempt, []

    def repeated(listed: ReaderListing) -> BatchResult:
        tries.append(listed)
        if len(tries) == 2:
            reader.crashes, reader.attempt = 0.0, attempt
            reader.view.reconnects += 1
            life.transact(A, lose=[A])
            life.lose_from(end)
        return attempt(listed)

    reader.crashes, reader.attempt = 1.0, repeated
    life.batches(1)


LOST = [
    one_ongoing_record,
    one_ongoing_record_before_its_data,
    the_whole_transaction_and_its_marker,
    the_epoch_is_given_again,
    the_epoch_is_given_again_before_the_data_is_read,
    an_old_replica_brings_the_data_back,
    a_late_write_before_the_data,
    two_lost_markers,
    read_records_are_lost_and_the_log_grows_again,
    the_loss_is_between_the_listing_and_the_reading,
    the_second_look_misses_the_record_of_an_owner,
    a_transaction_between_the_listing_and_the_fresh_read,
    the_same_in_a_batch_that_is_repeated,
    a_follower_brings_the_lost_data_back,
]
