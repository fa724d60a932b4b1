"""What every TransactionAdmin answers: the suite that the fake and the real one pass alike.

A subclass brings the fixture `stage`: an admin, and a cluster on which situations can be made.
"""

from __future__ import annotations

from typing import Protocol

from support.answers import described, is_live
from support.topics import unique
from support.waiting import eventually
from txnwatch.state.model.ports import MarkerSpec, NotSent, PartitionReading, SpanHistory, TransactionAdmin
from txnwatch.state.model.transaction import (
    DescribedTransaction,
    NotDescribed,
    TransactionState,
    UnknownTransactionalId,
)
from txnwatch.state.model.values import SpanStart, TopicPartition, log_numbered

_IN_TIME_S = 15.0


class Owner(Protocol):
    """A transactional id with the producer id and epoch it has now."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class AdminStage(Protocol):
    """Where situations are made."""

    admin: TransactionAdmin

    def create_topic(self, name: str, partitions: int = 1, cleanup_policy: str = "delete") -> list[TopicPartition]:
        """A topic that is ready."""

    def init(self, transactional_id: str) -> Owner:
        """A producer; asked again, the same with the next epoch."""

    def begin(self, owner: Owner, *partitions: TopicPartition) -> None:
        """Opens a transaction at the coordinator and writes one record to each partition."""

    def end(self, owner: Owner, *, commit: bool) -> None:
        """Asks the coordinator to end the transaction."""

    def stray_write(self, owner: Owner, partition: TopicPartition) -> None:
        """Writes one transactional record of which the coordinator knows nothing."""


def marker(partition: TopicPartition, owner: Owner, coordinator_epoch: int = 0) -> MarkerSpec:
    """An ABORT marker."""
    return MarkerSpec(partition, owner.producer_id, owner.producer_epoch, coordinator_epoch)


class AdminContract:
    """The suite."""

    def test_an_open_transaction_is_described_with_its_start_offset(self, stage: AdminStage) -> None:
        (partition,) = stage.create_topic(unique("described"))
        earlier, owner = stage.init(unique("earlier")), stage.init(unique("open"))
        stage.begin(earlier, partition)
        stage.end(earlier, commit=True)
        eventually(lambda: closed(stage, partition, earlier), _IN_TIME_S, "the earlier transaction to end")
        stage.begin(owner, partition)
        stage.begin(owner, partition)

        reading = stage.admin.read_partitions([partition])[partition]

        assert reading.problem is None
        row = reading.open_transaction(owner.producer_id)
        assert row is not None
        assert row.txn_start_offset == 2, "one record and its marker stand before it"
        assert (row.producer_epoch, row.coordinator_epoch) == (owner.producer_epoch, None)
        assert (reading.last_stable_offset, reading.high_watermark, reading.log_start_offset) == (2, 4, 0)
        assert (reading.end_before, reading.end_after) == (4, 4)
        assert reading.leader == 1
        assert reading.leader_epoch >= 0
        assert reading.topic_id

    def test_the_last_sequence_counts_the_records_of_the_producer(self, stage: AdminStage) -> None:
        (partition,) = stage.create_topic(unique("sequence"))
        earlier, owner = stage.init(unique("earlier")), stage.init(unique("sequence"))
        for writer in (earlier, owner, owner):
            stage.begin(writer, partition)
        reading = stage.admin.read_partitions([partition])[partition]
        row = reading.open_transaction(owner.producer_id)
        assert row is not None
        assert row.last_sequence == 1

    def test_the_coordinators_log_has_a_leader_epoch(self, stage: AdminStage) -> None:
        stage.init(unique("epochs"))
        (epoch,) = stage.admin.log_epochs([log_numbered(0)]).values()
        assert isinstance(epoch, int)
        assert epoch >= 0

    def test_a_closed_transaction_has_no_open_row(self, stage: AdminStage) -> None:
        (partition,) = stage.create_topic(unique("closed"))
        owner = stage.init(unique("closed"))
        stage.begin(owner, partition)
        stage.end(owner, commit=True)

        eventually(lambda: closed(stage, partition, owner), _IN_TIME_S, "the transaction to end")
        reading = eventually(lambda: replicated(stage, partition, 2), _IN_TIME_S, "its marker to be replicated")
        assert reading.open_transaction(owner.producer_id) is None
        assert reading.last_stable_offset == reading.high_watermark == 2
        (row,) = reading.producers
        assert (row.producer_id, row.txn_start_offset) == (owner.producer_id, None)
        assert row.coordinator_epoch is not None, "it has had a marker"

    def test_an_aborted_transaction_has_no_open_row_either(self, stage: AdminStage) -> None:
        (partition,) = stage.create_topic(unique("aborted"))
        owner = stage.init(unique("aborted"))
        stage.begin(owner, partition)
        stage.end(owner, commit=False)
        eventually(lambda: closed(stage, partition, owner), _IN_TIME_S, "the transaction to end")
        reading = eventually(lambda: replicated(stage, partition, 2), _IN_TIME_S, "its marker to be replicated")
        assert reading.open_transaction(owner.producer_id) is None
        assert reading.last_stable_offset == reading.high_watermark == 2

    def test_an_empty_partition_has_no_producers_and_no_problem(self, stage: AdminStage) -> None:
        (partition,) = stage.create_topic(unique("untouched"))
        reading = stage.admin.read_partitions([partition])[partition]
        assert (reading.problem, reading.producers, reading.high_watermark) == (None, (), 0)

    def test_an_unknown_partition_is_a_problem_of_that_partition_only(self, stage: AdminStage) -> None:
        (good,) = stage.create_topic(unique("one-partition"))
        beyond, elsewhere = TopicPartition(good.topic, 7), TopicPartition(unique("no-such-topic"), 0)
        owner = stage.init(unique("beside-unknown"))
        stage.begin(owner, good)

        readings = stage.admin.read_partitions([beyond, good, elsewhere])

        assert set(readings) == {beyond, good, elsewhere}
        assert readings[beyond].problem
        assert (readings[elsewhere].is_absent, readings[good].is_absent) == (True, False)
        assert readings[elsewhere].problem
        assert readings[good].problem is None
        assert readings[good].open_transaction(owner.producer_id) is not None

    def test_a_partition_asked_for_twice_is_answered_once(self, stage: AdminStage) -> None:
        first, second = stage.create_topic(unique("twice"), partitions=2)
        readings = stage.admin.read_partitions([second, first, second])
        assert {partition: reading.partition for partition, reading in readings.items()} == {
            first: first,
            second: second,
        }

    def test_an_unknown_transactional_id_has_no_state_and_no_problem(self, stage: AdminStage) -> None:
        name = unique("nobody")
        found = stage.admin.describe_transactions([name])[name]
        assert found == UnknownTransactionalId(name, 1)
        assert not is_live(found)

    def test_an_idle_transactional_id_is_empty(self, stage: AdminStage) -> None:
        owner = stage.init(unique("idle"))
        found = described(stage.admin, owner.transactional_id)
        assert (found.state, found.start_ms, found.partitions) == (TransactionState.EMPTY, None, frozenset())
        assert (found.producer_id, found.producer_epoch) == (owner.producer_id, owner.producer_epoch)

    def test_an_ongoing_transaction_lists_its_partitions(self, stage: AdminStage) -> None:
        first, second, other = stage.create_topic(unique("participants"), partitions=3)
        owner = stage.init(unique("ongoing"))
        stage.begin(owner, first, second)

        found = described(stage.admin, owner.transactional_id)

        assert found.state is TransactionState.ONGOING
        assert found.is_live
        assert found.partitions == {first, second}
        assert other not in found.partitions
        assert (found.producer_id, found.producer_epoch) == (owner.producer_id, owner.producer_epoch)
        assert found.timeout_ms == 60_000
        assert found.start_ms is not None
        assert found.start_ms > 0
        assert found.coordinator == 1

    def test_a_completed_transaction_is_not_live_and_has_no_partition_left(self, stage: AdminStage) -> None:
        (partition,) = stage.create_topic(unique("completed"))
        committed, aborted = stage.init(unique("committed")), stage.init(unique("aborted"))
        for owner, commit in ((committed, True), (aborted, False)):
            stage.begin(owner, partition)
            stage.end(owner, commit=commit)
        names = [committed.transactional_id, aborted.transactional_id]

        def completed() -> bool:
            return not any(map(is_live, stage.admin.describe_transactions(names).values()))

        eventually(completed, _IN_TIME_S, "both transactions to complete")
        found = {name: described(stage.admin, name) for name in names}
        assert [found[name].state for name in names] == [
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        ]
        assert [found[name].partitions for name in names] == [frozenset(), frozenset()]

    def test_known_and_unknown_ids_are_answered_side_by_side(self, stage: AdminStage) -> None:
        owner, nobody = stage.init(unique("known")), unique("nobody")
        found = stage.admin.describe_transactions([nobody, owner.transactional_id])
        assert found[nobody] == UnknownTransactionalId(nobody, 1)
        known = found[owner.transactional_id]
        assert isinstance(known, DescribedTransaction)
        assert known.state is TransactionState.EMPTY

    def test_listing_finds_a_transaction_by_its_producer_id_and_is_whole(self, stage: AdminStage) -> None:
        (partition,) = stage.create_topic(unique("listed"))
        owner, idle, other = stage.init(unique("listed")), stage.init(unique("idle")), stage.init(unique("other"))
        stage.begin(owner, partition)

        listing = stage.admin.list_transactions([owner.producer_id, idle.producer_id])

        assert listing.problems == ()
        assert {(row.transactional_id, row.producer_id, row.state) for row in listing.transactions} == {
            (owner.transactional_id, owner.producer_id, TransactionState.ONGOING),
            (idle.transactional_id, idle.producer_id, TransactionState.EMPTY),
        }
        assert other.producer_id not in {row.producer_id for row in listing.transactions}

    def test_listing_a_producer_id_that_no_id_owns_is_whole_and_empty(self, stage: AdminStage) -> None:
        stage.init(unique("somebody"))
        listing = stage.admin.list_transactions([987_654_321])
        assert (listing.transactions, listing.problems) == ((), ())

    def test_a_marker_ends_a_stray_write_and_the_last_stable_offset_moves(self, stage: AdminStage) -> None:
        (partition,) = stage.create_topic(unique("hanging"))
        owner = stage.init(unique("hanging"))
        stage.stray_write(owner, partition)
        before = stage.admin.read_partitions([partition])[partition]
        assert (before.last_stable_offset, before.high_watermark) == (0, 1)

        assert stage.admin.write_marker(marker(partition, owner)) is None

        after = stage.admin.read_partitions([partition])[partition]
        assert after.open_transaction(owner.producer_id) is None
        assert (after.last_stable_offset, after.high_watermark) == (2, 2)
        assert after.producers[0].coordinator_epoch == 0

    def test_the_history_of_a_span_is_its_first_epoch_and_the_last_marker_below(self, stage: AdminStage) -> None:
        (partition,) = stage.create_topic(unique("history"))
        owner = stage.init(unique("history"))
        first = owner.producer_epoch
        stage.stray_write(owner, partition)
        assert history_of(stage, partition, owner, 0) == SpanHistory(first, None, is_first=True)
        assert stage.admin.write_marker(marker(partition, owner)) is None
        for _ in range(2):  # data of two more epochs, in one span
            stage.stray_write(stage.init(owner.transactional_id), partition)
        history = history_of(stage, partition, owner, 2)
        assert history.start_epoch == first + 1
        assert history.last_marker is not None
        assert (history.last_marker.offset, history.last_marker.producer_epoch) == (1, first)
        nowhere = history_of(stage, TopicPartition("nowhere", 0), owner, 0)
        assert nowhere.problem is not None, "not known, because nobody could be asked"
        assert nowhere == SpanHistory(problem=nowhere.problem)
        beyond = history_of(stage, partition, owner, 9)
        assert (beyond.start_epoch, beyond.problem) == (None, None), "not known, because nothing is there"

    def test_the_histories_of_many_spans_are_read_in_parallel(self, stage: AdminStage) -> None:
        here, there = stage.create_topic(unique("histories"), partitions=2)
        owners = [stage.init(unique("histories")) for _ in range(4)]
        spans = []
        for offset, owner in enumerate(owners):
            for partition in (here, there):
                stage.stray_write(owner, partition)
                spans.append(SpanStart(partition, owner.producer_id, offset))
        found = stage.admin.read_span_histories(spans)
        assert found == {span: SpanHistory(owners[0].producer_epoch, None, is_first=True) for span in spans}
        with stage.admin.within(0):
            assert all(history.problem for history in stage.admin.read_span_histories(spans).values())

    def test_a_marker_on_nothing_open_is_taken_as_well_and_proves_nothing(self, stage: AdminStage) -> None:
        (partition,) = stage.create_topic(unique("nothing-open"))
        owner = stage.init(unique("nothing-open"))
        assert stage.admin.write_marker(marker(partition, owner)) is None
        assert stage.admin.write_marker(marker(partition, owner)) is None
        assert stage.admin.read_partitions([partition])[partition].high_watermark == 2

    def test_a_marker_of_an_older_producer_epoch_is_refused_by_name(self, stage: AdminStage) -> None:
        (partition,) = stage.create_topic(unique("older-epoch"))
        name = unique("older-epoch")
        stage.init(name)
        owner = stage.init(name)
        assert owner.producer_epoch == 1
        stage.stray_write(owner, partition)

        refused = stage.admin.write_marker(marker(partition, owner)._replace(producer_epoch=0))

        assert str(refused) == "INVALID_PRODUCER_EPOCH"
        reading = stage.admin.read_partitions([partition])[partition]
        assert reading.open_transaction(owner.producer_id) is not None, "it is as open as before"

    def test_a_marker_of_an_older_coordinator_is_refused_by_name(self, stage: AdminStage) -> None:
        (partition,) = stage.create_topic(unique("older-coordinator"))
        owner = stage.init(unique("older-coordinator"))
        assert stage.admin.write_marker(marker(partition, owner, coordinator_epoch=5)) is None
        stage.stray_write(owner, partition)
        refused = stage.admin.write_marker(marker(partition, owner, coordinator_epoch=4))
        assert str(refused) == "TRANSACTION_COORDINATOR_FENCED"
        assert stage.admin.write_marker(marker(partition, owner, coordinator_epoch=5)) is None

    def test_a_marker_under_another_leader_epoch_is_not_written(self, stage: AdminStage) -> None:
        (partition,) = stage.create_topic(unique("another-leader"))
        owner = stage.init(unique("another-leader"))
        stage.stray_write(owner, partition)
        epoch = stage.admin.read_partitions([partition])[partition].leader_epoch
        refused = stage.admin.write_marker(marker(partition, owner)._replace(leader_epoch=epoch + 1))
        assert refused == NotSent(f"the leader changed (epoch {epoch + 1}, now {epoch})")
        assert stage.admin.read_partitions([partition])[partition].high_watermark == 1
        assert stage.admin.write_marker(marker(partition, owner)._replace(leader_epoch=epoch)) is None

    def test_a_marker_for_a_partition_that_is_not_there_is_not_sent(self, stage: AdminStage) -> None:
        owner = stage.init(unique("nowhere"))
        missing = TopicPartition(unique("no-such-topic"), 0)
        assert stage.admin.write_marker(marker(missing, owner)) == NotSent("no leader")

    def test_cleanup_policies_are_returned_and_an_unknown_topic_is_missing(self, stage: AdminStage) -> None:
        deleting, compacted, unknown = unique("deleting"), unique("compacted"), unique("no-such-topic")
        stage.create_topic(deleting)
        stage.create_topic(compacted, cleanup_policy="compact,delete")
        assert stage.admin.cleanup_policies([deleting, unknown, compacted]) == {
            deleting: "delete",
            compacted: "compact,delete",
        }

    def test_a_budget_that_is_used_up_gives_problems_and_no_exception(self, stage: AdminStage) -> None:
        (partition,) = stage.create_topic(unique("no-time"))
        owner = stage.init(unique("no-time"))
        stage.begin(owner, partition)
        admin, name = stage.admin, owner.transactional_id
        with admin.within(0):
            assert admin.read_partitions([partition])[partition].problem
            assert isinstance(admin.describe_transactions([name])[name], NotDescribed)
            listing = admin.list_transactions([owner.producer_id])
            assert listing.problems
            assert listing.transactions == ()
            assert admin.cleanup_policies([partition.topic]) == {}
            assert isinstance(admin.write_marker(marker(partition, owner)), NotSent)

        reading = admin.read_partitions([partition])[partition]
        assert reading.problem is None, "what comes after has all the time again"
        assert reading.high_watermark == 1, "and the marker was not written"
        assert described(admin, name).state is TransactionState.ONGOING

    def test_within_an_ample_budget_everything_is_answered(self, stage: AdminStage) -> None:
        (partition,) = stage.create_topic(unique("ample"))
        owner = stage.init(unique("ample"))
        with stage.admin.within(20_000):
            assert stage.admin.read_partitions([partition])[partition].problem is None
            assert described(stage.admin, owner.transactional_id).coordinator == 1
            assert stage.admin.list_transactions([owner.producer_id]).problems == ()


def history_of(stage: AdminStage, partition: TopicPartition, owner: Owner, start_offset: int) -> SpanHistory:
    """The history of one span."""
    span = SpanStart(partition, owner.producer_id, start_offset)
    return stage.admin.read_span_histories([span])[span]


def closed(stage: AdminStage, partition: TopicPartition, owner: Owner) -> PartitionReading | None:
    """The partition's reading, once the owner has nothing open there."""
    reading = stage.admin.read_partitions([partition])[partition]
    return reading if reading.problem is None and reading.open_transaction(owner.producer_id) is None else None


def replicated(stage: AdminStage, partition: TopicPartition, end: int) -> PartitionReading | None:
    """The partition's reading, once its leader shows committed records up to an end."""
    reading = stage.admin.read_partitions([partition])[partition]
    return reading if reading.last_stable_offset == reading.high_watermark == end else None
