"""Which of two instances speaks on a real Kafka: the lease of a consumer group."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Protocol

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewPartitions

from support.broker_faults import await_complete
from support.incidents import an_event
from support.raw_producer import RawProducer
from support.topics import create_topic, unique
from support.waiting import eventually
from txnwatch.sinks.delivery.event_log import EventLog
from txnwatch.sinks.delivery.events_topic import KafkaEventsTopic, ensure_topic
from txnwatch.sinks.incidents import group_lease
from txnwatch.sinks.incidents.group_lease import GroupLease, SpeakerGate
from txnwatch.state.incidents.speaking import SESSION_MS, WHOLE
from txnwatch.state.model.errors import BadEventError
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.ports import LeaseView
from txnwatch.state.model.values import TopicPartition, lease_group, lease_groups, transactions_group
from txnwatch.streaming.admin.group_rights import strangers
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

JOINED_S, AT_ONCE_S = 20.0, 4.0


def clock_s() -> float:
    """Looked up at each call, so that a test can set it."""
    return time.monotonic()


class Instance:
    """One instance that asks for the leases, and whether it speaks."""

    def __init__(self, kafka: EmbeddedKafka, topic: str, cluster_id: str, topics: str = "0123456789") -> None:
        def join(group: str) -> GroupLease:
            return GroupLease({"bootstrap.servers": kafka.bootstrap_servers}, topic, group)

        self.lease = join(lease_group(cluster_id, topics))
        self.gate = SpeakerGate(self.lease, lambda: join(transactions_group(cluster_id)), lambda _: None, clock_s)

    def close(self) -> None:
        """Ends it in an orderly way."""
        self.lease.close()
        self.gate.close()

    def speaks(self) -> bool:
        """As the ledger asks in every round."""
        return self.gate.role().speaks


class Start(Protocol):
    """Starts an instance with a choice of topics."""

    def __call__(self, topics: str = ...) -> Instance: ...


@pytest.fixture
def start(kafka: EmbeddedKafka, cluster: Cluster) -> Iterator[Start]:
    topic = create_topic(cluster, unique("speaking"))[0].topic
    cluster_id = unique("cluster")
    with contextlib.ExitStack() as closing:

        def begin(topics: str = "0123456789") -> Instance:
            one = Instance(kafka, topic, cluster_id, topics)
            closing.callback(one.close)
            return one

        yield begin


def speakers_after(instances: list[Instance], seconds: float) -> list[set[int]]:
    """Who has spoken, in each of the rounds of some seconds."""
    until_s, found = time.monotonic() + seconds, []
    while time.monotonic() < until_s:
        found.append({number for number, one in enumerate(instances) if one.speaks()})
        time.sleep(0.1)
    return found


def test_the_lease_stays_with_the_instance_that_has_it_when_others_come(start: Start) -> None:
    first = start()
    eventually(first.speaks, JOINED_S, "the first instance")
    others = [start() for _ in range(3)]
    rounds = speakers_after([first, *others], 12.0)
    assert {frozenset(one) for one in rounds} == {frozenset({0})}, "nobody else, and never nobody"


def test_an_orderly_stop_hands_the_lease_over_at_once(start: Start) -> None:
    first, second = start(), start()
    eventually(lambda: first.speaks() or second.speaks(), JOINED_S, "a speaker")
    speakers_after([first, second], 5.0)
    (holder, other) = (first, second) if first.speaks() else (second, first)
    assert not other.speaks()
    holder.lease.close()
    eventually(other.speaks, AT_ONCE_S, "the other instance")


def test_of_the_speakers_of_different_topics_one_tells_transactions_until_it_stops(start: Start) -> None:
    first, second = start("orders"), start("payments")
    both = (first, second)
    eventually(lambda: any(one.gate.role() == WHOLE for one in both), JOINED_S, "one that tells transactions")
    eventually(lambda: all(one.gate.role().speaks for one in both), JOINED_S, "both speak")
    teller, other = both if first.gate.role() == WHOLE else (second, first)
    for _ in range(50):
        assert teller.gate.role() == WHOLE
        assert not other.gate.role().tells_transactions
        time.sleep(0.1)
    teller.close()
    eventually(lambda: other.gate.role() == WHOLE, AT_ONCE_S, "the other one")


def test_the_topic_is_read_once_all_that_is_there_has_been_returned(kafka: EmbeddedKafka) -> None:
    config, name = {"bootstrap.servers": kafka.bootstrap_servers}, unique("events")
    ensure_topic(config, name)
    with contextlib.closing(EventLog(config, name)) as log, contextlib.closing(KafkaEventsTopic(config, name)) as topic:
        assert list(log.history()) == []
        assert log.has_read(), "nothing is there"
        topic.publish([an_event(), an_event(sequence=2)])
        assert not log.has_read()
        found: list[object] = []
        eventually(lambda: found.extend(log.new_records()) or log.has_read(), JOINED_S, "the end")
    assert len(found) == 2


def test_a_partition_that_was_added_is_read_before_the_topic_counts_as_read(kafka: EmbeddedKafka) -> None:
    config, name, events = {"bootstrap.servers": kafka.bootstrap_servers}, unique("events"), 20
    ensure_topic(config, name)
    with contextlib.closing(EventLog(config, name)) as log:
        assert list(log.history()) == []
        admin = AdminClient(config)
        admin.create_partitions([NewPartitions(name, 3)])[name].result(JOINED_S)
        with contextlib.closing(KafkaEventsTopic(config, name)) as topic:
            topic.publish([an_event(f"incident-{number}") for number in range(events)])
        assert not log.has_read()
        found: list[object] = []
        eventually(lambda: found.extend(log.new_records()) or log.has_read(is_first=False), JOINED_S, "the end")
    assert len(found) == events


def test_neither_a_marker_at_the_end_nor_other_writers_keep_the_topic_unread(
    kafka: EmbeddedKafka, cluster: Cluster
) -> None:
    config, name = {"bootstrap.servers": kafka.bootstrap_servers}, unique("events")
    ensure_topic(config, name)
    cluster.refresh()
    place = TopicPartition(name, 0)
    with contextlib.closing(EventLog(config, name)) as log, contextlib.closing(KafkaEventsTopic(config, name)) as topic:
        assert list(log.history()) == []
        writer = RawProducer(cluster, unique("writer")).init()
        writer.add(place)  # without a record: a compacted topic wants keys
        writer.end(commit=False)
        await_complete(cluster, writer.transactional_id)
        assert not log.has_read()

        def is_read(*, writes: bool) -> bool:
            assert all(isinstance(one, IncidentEvent | BadEventError) for one in log.new_records())
            if writes:
                topic.publish([an_event(sequence=2)])
            return log.has_read(is_first=False)

        eventually(lambda: is_read(writes=False), JOINED_S, "the marker")
        topic.publish([an_event()])
        assert not log.has_read()
        eventually(lambda: is_read(writes=True), JOINED_S, "the first end")


def test_a_member_of_the_group_that_is_no_watcher_is_named(kafka: EmbeddedKafka, cluster: Cluster) -> None:
    topic, cluster_id = create_topic(cluster, unique("speaking"))[0].topic, unique("cluster")
    group = lease_group(cluster_id, "orders")
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    with contextlib.closing(GroupLease(servers, topic, group)) as lease:
        eventually(lambda: lease.view() is LeaseView.HELD, JOINED_S, "the lease")
        assert strangers(cluster, lease_groups(cluster_id)) == ()
    assignor = {"partition.assignment.strategy": "cooperative-sticky"}
    alien = Consumer({**servers, **assignor, "group.id": group, "client.id": "kafka-ui"})
    with contextlib.closing(alien):
        alien.subscribe([topic])
        eventually(lambda: alien.poll(0.1) or alien.assignment(), JOINED_S, "the other client")
        (found,) = strangers(cluster, lease_groups(cluster_id))
    assert found == f"kafka-ui at 127.0.0.1 in {group}"


def test_an_instance_whose_micro_batch_took_too_long_for_the_group_has_the_lease_again_at_once(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_lease, "LONGEST_BATCH_MS", SESSION_MS)
    first = start()
    eventually(first.speaks, JOINED_S, "the first instance")
    time.sleep(1.5 * SESSION_MS / 1000)
    assert first.speaks()


def test_a_lease_that_was_lost_and_is_regained_within_one_look_is_another_reign(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_lease, "LONGEST_BATCH_MS", SESSION_MS)
    first = start()
    eventually(first.speaks, JOINED_S, "the first instance")
    tenure = first.gate.role().tenure
    assert first.gate.role().tenure == tenure
    time.sleep(1.5 * SESSION_MS / 1000)
    role = first.gate.role()
    assert role.speaks
    assert role.tenure != tenure


def test_an_instance_that_was_stopped_speaks_again_only_as_the_coordinator_says(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = start()
    eventually(first.speaks, JOINED_S, "the first instance")
    monkeypatch.setattr(GroupLease, "is_held_now", lambda _: False)  # what the coordinator answers after the session
    later_s = time.monotonic() + 2 * SESSION_MS / 1000
    monkeypatch.setattr("txnwatch.sinks.incidents.group_lease.time.monotonic", lambda: later_s)
    assert not first.speaks()
    assert first.lease.view() is LeaseView.UNKNOWN, "no answer, until the coordinator gives one"
    monkeypatch.undo()
    assert first.speaks(), "one failed request is not the end"
