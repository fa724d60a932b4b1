"""The contract of TransactionAdmin, on the fake and on a real broker; and what only the fake can do."""

from __future__ import annotations

import contextlib
import dataclasses
import random

import pytest

from contract.admin_contract import AdminContract, AdminStage, Owner
from contract.closing_marker_contract import ClosingMarkerContract
from simulation.client import Client
from simulation.coordinator import TIMEOUT_MS
from simulation.partition import DataPartition
from simulation.truth import Truth
from simulation.world import Setting, World
from simulation.world_admin import WorldAdmin
from support.answers import described
from support.fake_admin import FakeAdmin
from support.raw_producer import RawProducer
from support.servers import connect
from support.topics import create_topic, unique
from support.waiting import eventually
from txnwatch.state.model.ports import TransactionAdmin
from txnwatch.state.model.transaction import NotDescribed, TransactionState, UnknownTransactionalId
from txnwatch.state.model.values import Problem, TopicPartition
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka


class FakeStage:
    """The fake is its own stage."""

    def __init__(self) -> None:
        self.admin = FakeAdmin()
        self.create_topic = self.admin.create_topic

    def init(self, transactional_id: str) -> Owner:
        return dataclasses.replace(self.admin.init(transactional_id))

    def begin(self, owner: Owner, *partitions: TopicPartition) -> None:
        self.admin.begin(owner.transactional_id, *partitions)

    def end(self, owner: Owner, *, commit: bool) -> None:
        self.admin.end(owner.transactional_id, commit=commit)

    def stray_write(self, owner: Owner, partition: TopicPartition) -> None:
        self.admin.write(partition, owner.producer_id, owner.producer_epoch)


class BrokerStage:
    """A broker that does not verify writes, and raw producers."""

    def __init__(self, cluster: Cluster) -> None:
        self.admin = ClusterAdmin(cluster)
        self._cluster = cluster
        self._producers: dict[str, RawProducer] = {}

    def create_topic(self, name: str, partitions: int = 1, cleanup_policy: str = "delete") -> list[TopicPartition]:
        return create_topic(self._cluster, name, partitions, config={"cleanup.policy": cleanup_policy})

    def init(self, transactional_id: str) -> Owner:
        producer = self._producers.setdefault(transactional_id, RawProducer(self._cluster, transactional_id))
        return producer.init()

    def begin(self, owner: Owner, *partitions: TopicPartition) -> None:
        producer = self._producers[owner.transactional_id]
        producer.add(*partitions)
        for partition in partitions:
            producer.produce(partition)

    def end(self, owner: Owner, *, commit: bool) -> None:
        self._producers[owner.transactional_id].end(commit=commit)

    def stray_write(self, owner: Owner, partition: TopicPartition) -> None:
        self._producers[owner.transactional_id].produce(partition)


class WorldStage:
    """A simulated cluster in which nothing happens by itself, and clients that write what the suite wants."""

    def __init__(self) -> None:
        self.world = World(Setting(steps=0, clocks_differ=False, faults=frozenset()), random.Random(0))
        self.world.coordinators.max_epoch = 32767
        quiet = WorldAdmin(self.world, Truth(), 0)
        quiet.stands_still, quiet.unread_share = True, 0.0
        self.admin: TransactionAdmin = quiet
        self._clients: dict[str, Client] = {}

    def create_topic(self, name: str, partitions: int = 1, cleanup_policy: str = "delete") -> list[TopicPartition]:
        del cleanup_policy  # see TestWorldAdmin
        created = [TopicPartition(name, number) for number in range(partitions)]
        self.world.data.update({partition: DataPartition(partition, f"{name}-id") for partition in created})
        return created

    def init(self, transactional_id: str) -> Owner:
        client = self._clients.setdefault(transactional_id, Client(transactional_id, 0, 1, TIMEOUT_MS))
        self.world.coordinators.init(transactional_id, client.log, client.version, client.timeout_ms)
        self._settle()
        value = self.world.coordinators.transactions[transactional_id].value
        assert value is not None
        client.producer_id, client.producer_epoch = value.producer_id, value.producer_epoch
        return dataclasses.replace(client)

    def begin(self, owner: Owner, *partitions: TopicPartition) -> None:
        for partition in partitions:
            self.world.coordinators.add(self.world.coordinators.transactions[owner.transactional_id], partition)
            self._settle()
            self.stray_write(owner, partition)

    def end(self, owner: Owner, *, commit: bool) -> None:
        self.world.coordinators.end(self.world.coordinators.transactions[owner.transactional_id], commit=commit)
        self._settle()

    def stray_write(self, owner: Owner, partition: TopicPartition) -> None:
        client = self._clients[owner.transactional_id]
        assert client.write(self.world, partition, owner.producer_id, owner.producer_epoch, 1)
        self._settle()

    def _settle(self) -> None:
        """What the cluster does next: it commits what was appended, writes the markers, and completes."""
        self.world.replicate_all()
        while self.world.coordinators.markers:
            self.world.deliver_marker(self.world.coordinators.markers.pop())
        self.world.replicate_all()
        self.world.complete()
        self.world.replicate_all()


class TestFakeAdmin(AdminContract, ClosingMarkerContract):
    @pytest.fixture
    def stage(self) -> FakeStage:
        return FakeStage()


class TestClusterAdmin(AdminContract, ClosingMarkerContract):
    @pytest.fixture
    def stage(self, cluster: Cluster) -> BrokerStage:
        return BrokerStage(cluster)


class TestWorldAdmin(AdminContract, ClosingMarkerContract):
    """The admin of the simulation. What it cannot do is marked here, and fails as soon as it can."""

    @pytest.fixture
    def stage(self) -> WorldStage:
        return WorldStage()

    @pytest.mark.xfail(strict=True, reason="its last sequence is the offset of the last batch: see WorldAdmin")
    def test_the_last_sequence_counts_the_records_of_the_producer(self, stage: AdminStage) -> None:
        super().test_the_last_sequence_counts_the_records_of_the_producer(stage)

    @pytest.mark.xfail(strict=True, reason="topics of the simulation have no configuration")
    def test_cleanup_policies_are_returned_and_an_unknown_topic_is_missing(self, stage: AdminStage) -> None:
        super().test_cleanup_policies_are_returned_and_an_unknown_topic_is_missing(stage)


def test_a_budget_used_up_before_connecting_is_not_held_against_the_broker(
    kafka: EmbeddedKafka, cluster: Cluster
) -> None:
    (partition,) = create_topic(cluster, unique("at-once"))
    known = ClusterAdmin(cluster)
    eventually(lambda: known.read_partitions([partition])[partition].problem is None, 15.0, "its leader to know it")
    with contextlib.closing(connect(kafka)) as fresh:
        admin = ClusterAdmin(fresh)
        with admin.within(0):
            assert admin.read_partitions([partition])[partition].problem
        assert admin.read_partitions([partition])[partition].problem is None


class TestScriptsOfTheFake:
    def test_a_problem_belongs_to_what_it_is_about(self) -> None:
        fake = FakeAdmin()
        first, second = fake.create_topic("t", partitions=2)
        fake.init("known")
        fake.problems.update({first: "NOT_LEADER_OR_FOLLOWER", "known": "COORDINATOR_LOAD_IN_PROGRESS", "t": "away"})
        readings = fake.read_partitions([first, second])
        assert (readings[first].problem, readings[second].problem) == (Problem("NOT_LEADER_OR_FOLLOWER"), None)
        assert fake.describe_transactions(["known"])["known"] == NotDescribed(
            "known", Problem("COORDINATOR_LOAD_IN_PROGRESS")
        )
        assert fake.cleanup_policies(["t"]) == {}

    def test_a_leader_that_moves_while_it_is_read_spoils_that_reading_only(self) -> None:
        fake = FakeAdmin()
        (partition,) = fake.create_topic("t")
        fake.move_leader_while_read(partition, 2)
        assert "epoch 0, then 1" in str(fake.read_partitions([partition])[partition].problem)
        after = fake.read_partitions([partition])[partition]
        assert (after.problem, after.leader, after.leader_epoch) == (None, 2, 1)

    def test_something_can_happen_between_two_questions(self) -> None:
        fake = FakeAdmin()
        (partition,) = fake.create_topic("t")
        owner = fake.begin("id", partition)
        fake.before("describe_transactions", lambda: fake.end("id", commit=True))
        before = fake.read_partitions([partition])[partition]
        found = described(fake, "id")
        after = fake.read_partitions([partition])[partition]
        assert before.open_transaction(owner.producer_id) is not None
        assert found.state is TransactionState.COMPLETE_COMMIT
        assert after.open_transaction(owner.producer_id) is None
        assert fake.asked == ["read_partitions", "describe_transactions", "read_partitions"]

    def test_lost_markers_leave_a_completed_transaction_and_an_open_span(self) -> None:
        fake = FakeAdmin()
        (partition,) = fake.create_topic("t")
        owner = fake.begin("id", partition)
        fake.lose_markers("id", commit=True)
        assert described(fake, "id").state is TransactionState.COMPLETE_COMMIT
        assert fake.read_partitions([partition])[partition].open_transaction(owner.producer_id) is not None

    def test_a_prepared_transaction_still_lists_what_lacks_a_marker(self) -> None:
        fake = FakeAdmin()
        first, second = fake.create_topic("t", partitions=2)
        owner = fake.begin("id", first, second)
        fake.prepare("id", commit=False)
        owner.partitions.discard(first)
        found = described(fake, "id")
        assert found.is_live
        assert found.partitions == {second}

    def test_a_listing_with_a_problem_is_not_whole(self) -> None:
        fake = FakeAdmin()
        owner = fake.init("id")
        fake.listing_problems.append("broker 2: away")
        listing = fake.list_transactions([owner.producer_id])
        assert listing.problems == (Problem("broker 2: away"),)
        assert [row.transactional_id for row in listing.transactions] == ["id"]

    def test_a_topic_created_again_is_another_one(self) -> None:
        fake = FakeAdmin()
        (partition,) = fake.create_topic("t")
        fake.begin("id", partition)
        before = fake.read_partitions([partition])[partition]
        fake.create_topic("t")
        after = fake.read_partitions([partition])[partition]
        assert before.topic_id != after.topic_id
        assert after.producers == ()

    def test_a_forgotten_id_is_unknown_and_not_listed(self) -> None:
        fake = FakeAdmin()
        owner = fake.init(unique("id"))
        fake.forget(owner.transactional_id)
        name = owner.transactional_id
        assert fake.describe_transactions([name]) == {name: UnknownTransactionalId(name, 1)}
        assert fake.list_transactions([owner.producer_id]).transactions == ()
