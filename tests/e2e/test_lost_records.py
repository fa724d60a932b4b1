"""What a real broker loses while its clients are told "committed": the automatic abort never destroys that data.

A broker acknowledges a record of `__transaction_state` before the record is on a disk. The scenarios take the record
away before the watch has read it, or a marker that the coordinator counts as written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions as Wanted
from confluent_kafka import TopicPartition as Committed

from support.aborts import (
    IN_TIME_S,
    aborted,
    actions,
    begin,
    hangs,
    is_open,
    log_of,
    outcomes,
    pass_chances,
    until,
)
from support.broker_faults import await_complete, cut_tail, leaderless
from support.fault_world import ABORTING, EVENTS, OFFSETS, FaultWorld, started_world
from support.kafka_faults import LONG_TIMEOUT_MS, end_by_hand
from support.offset_producer import OffsetProducer
from support.raw_producer import RawProducer
from support.servers import Clusters
from support.topics import admin_of, unique
from support.waiting import eventually
from txnwatch.cli.main import main
from txnwatch.state.model.incident import WaitingGroup
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.wire.internal_topics import TransactionLogValue, decode_value
from txnwatch.streaming.wire.record_batch import records, walk
from txnwatch_demo.late_write import await_end

pytestmark = pytest.mark.long

OLD_CLIENT, TV2 = 4, 5  # the version of EndTxn: from 5 on each end raises the epoch
VERSIONS = pytest.mark.parametrize("version", [OLD_CLIENT, TV2], ids=["old_client", "transaction_version_2"])
ELECTION = frozenset({"log_election", "began_before_election"})


@pytest.fixture(scope="module")
def world(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultWorld]:
    """The coordinators are on node 1, and the groups' offsets on node 2."""
    with started_world(clusters, tmp_path_factory, "lost_records", *ABORTING, offsets_on=2) as found:
        yield found


def transact(world: FaultWorld, client: RawProducer, partition: TopicPartition, version: int) -> None:
    """A whole transaction that is committed, and read by the watch."""
    begin(client, partition)
    client.produce(partition)
    client.end(commit=True, version=version)
    await_complete(world.cluster, client.transactional_id)
    pass_chances(world)


def only_record(batch: bytes) -> TransactionLogValue:
    """The one record of a batch of the coordinators' log."""
    ((at, header),) = walk(batch)
    (record,) = records(batch, at, header)
    assert record.value is not None
    return decode_value(record.value)


@VERSIONS
def test_data_of_a_lost_record_is_not_aborted_although_no_record_names_its_transaction(
    world: FaultWorld, capsys: pytest.CaptureFixture[str], version: int
) -> None:
    orders, elsewhere = world.partition(2), world.partition(3)
    client = RawProducer(world.cluster, unique("shop"), LONG_TIMEOUT_MS).init()
    transact(world, client, orders if version == OLD_CLIENT else elsewhere, version)
    with world.watch.paused():
        begin(client, orders)
        client.produce(orders, [b"paid"])
        lost = only_record(cut_tail(world.kafka, world.cluster, log_of(world, client), 1))
        assert (lost.state, lost.producer_id) == (TransactionState.ONGOING, client.producer_id)
        assert lost.partitions == ((orders.topic, (orders.partition,)),)

    # The client notices nothing. It goes on after the watch has found the data.
    eventually(lambda: outcomes(world, orders, client), IN_TIME_S, "the hang")
    if version == TV2:
        client.add(elsewhere)
        client.produce(elsewhere, [b"paid"])
    # Everything rests on this answer: it is NONE, else an error is raised here. The client has committed its data.
    client.end(commit=True, version=version)
    await_complete(world.cluster, client.transactional_id)
    client.init()  # the application restarts
    until(world, orders, "refused", "outcome_unknown", None)
    doubted = [event for event in hangs(world, orders, client) if event.outcome_doubt in ELECTION]
    assert doubted, outcomes(world, orders, client)
    assert all(f"{log_of(world, client)}: leader epoch " in str(event.outcome_detail) for event in doubted)
    shown = dry_run(world, orders, client, capsys)
    assert shown["result"] == "dry_run"
    assert "an election can remove records that nobody has read" in shown["detail"]

    begin(client, elsewhere)
    client.produce(elsewhere)
    pass_chances(world)
    assert {outcome for outcome, _ in outcomes(world, orders, client)} == {"unknown"}
    assert {decision for decision, _, _ in actions(world, orders)} == {"refused"}
    assert is_open(world, orders, client.producer_id)
    assert aborted(world, orders, client) == 0
    end_by_hand(world.cluster, orders, client.producer_id, commit=True)
    client.end(commit=True, version=version)


def dry_run(
    world: FaultWorld, partition: TopicPartition, client: RawProducer, capsys: pytest.CaptureFixture[str]
) -> dict[str, Any]:
    """The row that `txnwatch abort --dry-run` prints."""
    at = ("--topic", partition.topic, "--partition", str(partition.partition))
    which = ("--producer-id", str(client.producer_id), "--events-topic", EVENTS, "--dry-run", "--format", "json")
    capsys.readouterr()
    main(["abort", "--bootstrap-server", world.bootstrap, *at, *which])
    (row,) = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    found: dict[str, Any] = row
    return found


def late_offsets(world: FaultWorld, source: TopicPartition, group: str, version: int) -> OffsetProducer:
    """Commits offset 1 of a group in a transaction, and offset 2 after its end; returns once the watch reports it."""
    client = OffsetProducer(world.cluster, unique("stream"), LONG_TIMEOUT_MS)
    client.init()
    client.add_offsets(group)
    client.commit_offset(group, source, 1)
    client.end(commit=True, version=version)
    await_end(world.cluster, client, OFFSETS)
    await_complete(world.cluster, client.transactional_id)
    client.commit_offset(group, source, 2)
    eventually(
        lambda: ("none", None) in outcomes(world, OFFSETS, client),
        IN_TIME_S,
        lambda: f"the late commit; published {outcomes(world, OFFSETS, client)}",
    )
    return client


@VERSIONS
def test_committed_offsets_are_not_aborted_although_a_late_commit_was_there_before(
    world: FaultWorld, version: int
) -> None:
    """The group coordinator writes each batch with the base sequence 0: the sequence does not tell the data apart."""
    source, elsewhere, group = world.partition(2), world.partition(3), unique("group")
    client = late_offsets(world, source, group, version)
    client.add_offsets(group)
    client.commit_offset(group, source, 1000)
    with leaderless(world.kafka, world.cluster, OFFSETS, 2):
        client.end(commit=True, version=version)  # the answer is NONE, else an error is raised here
        await_complete(world.cluster, client.transactional_id)
    if version == OLD_CLIENT:
        client.init()  # the application restarts
    begin(client, elsewhere)
    client.produce(elsewhere)
    eventually(
        lambda: outcomes(world, OFFSETS, client)[-1][0] != "none",
        IN_TIME_S,
        lambda: f"the end of the outcome none; decided {actions(world, OFFSETS)}",
    )
    pass_chances(world)
    assert is_open(world, OFFSETS, client.producer_id)
    assert aborted(world, OFFSETS, client) == 0
    end_by_hand(world.cluster, OFFSETS, client.producer_id, commit=True)
    eventually(lambda: committed_offset(world, group, source) == 1000, IN_TIME_S, "the offset that was acknowledged")
    client.end(commit=True, version=version)


def committed_offset(world: FaultWorld, group: str, source: TopicPartition) -> int:
    """The committed offset of a group, -1 if there is none."""
    wanted = Wanted(group, [Committed(source.topic, source.partition)])
    admin = admin_of(world.cluster)
    (found,) = admin.list_consumer_group_offsets([wanted])[group].result(15.0).topic_partitions
    return int(found.offset) if found.offset >= 0 else -1


def test_a_late_commit_of_offsets_is_aborted_once_its_client_is_fenced(world: FaultWorld) -> None:
    group, source = unique("group"), world.partition(2)
    client = late_offsets(world, source, group, OLD_CLIENT)
    opened = hangs(world, OFFSETS, client)[0]
    assert opened.waiting_groups == (WaitingGroup(group_id=group, partitions=(str(source),)),)
    client.init()

    def is_verified() -> bool:
        return any(event.action and event.action.result == "verified" for event in hangs(world, OFFSETS, client))

    eventually(is_verified, IN_TIME_S, lambda: f"the abort; decided {actions(world, OFFSETS)}")
    assert not is_open(world, OFFSETS, client.producer_id)
    assert aborted(world, OFFSETS, client) == 1
    assert committed_offset(world, group, source) == 1, "as it was before the late commit"
