"""The verified abort on real brokers: what hangs moves again, and nothing else is ever touched."""

from __future__ import annotations

import contextlib
import json
import random
import shlex
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from support.aborts import IN_TIME_S, about, actions, batches, is_open, until
from support.broker_faults import await_complete, leaderless
from support.fake_groups import FakeGroups
from support.fake_lease import FakeLease
from support.fault_world import ABORTING, FaultWorld, begins, now_s, started_world
from support.incidents import an_event, an_evidence
from support.kafka_faults import late_write_after_abort
from support.log_lines import LogLines
from support.planted import as_it_was_found, plant
from support.raw_producer import RawProducer
from support.recording_sink import RecordingTopic
from support.seeds import in_proportion
from support.servers import Clusters
from support.topics import unique
from support.waiting import eventually
from txnwatch.cli.main import main
from txnwatch.sinks.abort.run_abort import RunningAbort
from txnwatch.sinks.delivery.outbox import TopicOutbox
from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.abort.abort_policy import AbortPolicy
from txnwatch.state.model.errors import TxnwatchError
from txnwatch.state.model.incident import IncidentEvent, latest
from txnwatch.state.model.ports import ActiveProducer, MarkerSpec, NotSent
from txnwatch.state.model.values import Problem, TopicPartition
from txnwatch.state.telling.commands import Origin
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch_demo.embedded.applications import CommittedReader

# Before the read of the command, before its decision, or before its first event.
THE_WATCH_WAS_FASTER = (
    "expected the requested open transaction, found ",
    "it does not hang",
    "another event of the incident came first; run the command again",
)
RACES = in_proportion(12)
CHANCES = 5


@pytest.fixture(scope="module")
def world(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultWorld]:
    with started_world(clusters, tmp_path_factory, "aborting", *ABORTING) as found:
        yield found


def note(text: str) -> None:
    """A figure, for who runs with -s."""
    sys.stderr.write(f"{text}\n")


def end_of(world: FaultWorld, partition: TopicPartition) -> IncidentEvent:
    eventually(lambda: about(world, partition)[-1].event.status == "resolved", IN_TIME_S, f"the end on {partition}")
    return about(world, partition)[-1].event


@contextlib.contextmanager
def reading(world: FaultWorld, partition: TopicPartition) -> Iterator[CommittedReader]:
    with contextlib.closing(CommittedReader(world.bootstrap, partition.topic, partition.partition + 1)) as reader:
        yield reader


def test_idle_is_not_dead_and_once_it_is_fenced_the_frozen_consumer_moves(world: FaultWorld) -> None:
    partition = world.partition(2)
    producer = late_write_after_abort(world.cluster, unique("zombie"), partition)
    after = RawProducer(world.cluster, unique("healthy")).init()
    after.add(partition)
    after.produce(partition, [b"behind it"])
    after.end(commit=True)
    with reading(world, partition) as reader:
        until(world, partition, "refused", "epoch_may_be_reused", None)
        for _ in range(20):
            reader.poll()
        assert reader.records[partition.partition] == 0, "it is frozen"
        assert is_open(world, partition, producer.producer_id)

        fenced_s = now_s()
        producer.init()
        until(world, partition, "abort", None, "verified")

        def moves() -> bool:
            reader.poll()
            return reader.records[partition.partition] == 1

        eventually(moves, IN_TIME_S, "the consumer to move again")
    end = end_of(world, partition)
    assert end.resolution is not None
    assert (end.resolution.how, end.resolution.by) == ("aborted", "txnwatch")
    assert actions(world, partition) == [
        ("refused", "epoch_may_be_reused", None),
        ("abort", None, None),
        ("abort", None, "verified"),
    ]
    assert end.action is not None
    assert end.action.marker_coordinator_epoch == end.coordinator_epoch, "the leader's, never a higher one"
    verified = next(one for one in about(world, partition) if one.event.action == end.action)
    note(f"from the fence to the verified abort: {verified.at_s - fenced_s:.2f} s")


def test_an_abort_that_lost_its_marker_is_completed_at_once(world: FaultWorld) -> None:
    partition = world.partition(3)
    producer = RawProducer(world.cluster, unique("aborted")).init()
    producer.add(partition)
    producer.produce(partition)
    with leaderless(world.kafka, world.cluster, partition, 3):
        producer.end(commit=False, version=5)
        await_complete(world.cluster, producer.transactional_id)
    hung_s = now_s()
    until(world, partition, "abort", None, "verified")
    opened = about(world, partition)[0]
    assert opened.event.expected_outcome == "abort"
    verified = next(
        one for one in about(world, partition) if one.event.action and one.event.action.result == "verified"
    )
    hang_s, event_s = verified.at_s - hung_s, opened.at_s - hung_s
    note(f"from the hang to the event {event_s:.2f} s, to the verified abort {hang_s:.2f} s")
    assert not is_open(world, partition, producer.producer_id)
    end_of(world, partition)


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The row of the JSON envelope that a command has printed last."""
    (row,) = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    found: dict[str, Any] = row
    return found


def test_a_committed_transaction_is_never_aborted_automatically_and_the_suggested_command_completes_it(
    world: FaultWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second transaction of a client, so that a marker of its own lies below: the logs must show whose it is."""
    partition = world.partition(3)
    producer = RawProducer(world.cluster, unique("it's app")).init()
    producer_id = producer.producer_id
    producer.add(partition)
    producer.produce(partition)
    producer.end(commit=True, version=5)
    eventually(lambda: begins(producer, partition), IN_TIME_S, "the first transaction to be complete")
    producer.produce(partition)
    with leaderless(world.kafka, world.cluster, partition, 3):
        producer.end(commit=True, version=5)
        await_complete(world.cluster, producer.transactional_id)
    until(world, partition, "refused", "outcome_was_commit", None)
    seen = batches(world)
    eventually(lambda: batches(world) >= seen + CHANCES, IN_TIME_S, "micro-batches in which it could be aborted")
    assert is_open(world, partition, producer_id)
    at = ("--topic", partition.topic, "--partition", str(partition.partition))
    alone = ("--bootstrap-server", world.bootstrap, "--format", "json")

    # Without the events of any watch.
    assert main(["explain", *at, *alone]) == 0
    explained = printed(capsys)
    assert "an ABORT marker would destroy acknowledged data" in " ".join(explained["text"])
    assert main(["find-hanging", *at, *alone]) == 0
    searched = printed(capsys)
    assert searched["expected_outcome"] == "commit"
    by_itself = [
        "abort",
        *at,
        *alone,
        "--events-topic",
        "nobody.writes",
        "--start-offset",
        str(searched["start_offset"]),
    ]
    assert main([*by_itself, "--yes"]) == 5
    assert printed(capsys)["result"] == "refused (outcome_was_commit)"

    # As it is suggested, by the watch and by whoever was asked.
    suggested = shlex.split(str(about(world, partition)[-1].event.suggested_command))
    assert "faults.events" in suggested, "the topic where the watch publishes its events"
    for arguments in (shlex.split(searched["next"]), shlex.split(explained["next"]), suggested):
        assert arguments[:2] == ["txnwatch", "abort"]
        assert main([*arguments[1:], "--dry-run", "--format", "json"]) == 0
        assert printed(capsys)["result"] == "dry_run"
    pasted = suggested[1:]
    assert main(pasted) == 5, "nobody can be asked here"
    assert is_open(world, partition, producer_id)
    capsys.readouterr()
    assert main([*pasted, "--yes", "--format", "json"]) == 0
    assert printed(capsys)["result"] == "verified"
    with reading(world, partition) as reader:

        def has_it() -> bool:
            reader.poll()
            return reader.records[partition.partition] > 1

        eventually(has_it, IN_TIME_S, "the committed data, all of it")
    end = end_of(world, partition)
    assert end.resolution is not None
    by_hand = [
        one.event for one in about(world, partition) if one.event.action and one.event.action.decision == "commit"
    ]
    assert {event.incident_id for event in by_hand} == {end.incident_id}, "it is told on the incident of the watch"
    assert (by_hand[0].status, by_hand[-1].status) == ("updated", "resolved")


def test_by_hand_the_same_rules_refuse(world: FaultWorld, capsys: pytest.CaptureFixture[str]) -> None:
    partition = world.partition(2)
    producer = RawProducer(world.cluster, unique("$live er's")).init()
    producer.add(partition)
    producer.produce(partition)
    where = [
        *("abort", "--bootstrap-server", world.bootstrap, "--topic", partition.topic, "--yes"),
        *("--partition", str(partition.partition), "--events-topic", "faults.events"),
    ]
    assert main([*where, "--producer-id", str(producer.producer_id)]) == 1
    assert "it does not hang" in capsys.readouterr().err
    assert main([*where, "--start-offset", "77"]) == 1
    assert "expected the requested open transaction, found one from offset " in capsys.readouterr().err
    producer.end(commit=True)
    eventually(lambda: not is_open(world, partition, producer.producer_id), IN_TIME_S, "its marker")
    producer.produce(partition)
    by_id = [*where, "--producer-id", str(producer.producer_id), "--format", "json"]
    assert main(by_id) == 5
    refused = printed(capsys)
    assert refused["result"] == "refused (epoch_may_be_reused)", "its client could go on"
    fencing = shlex.split(refused["detail"].partition(", or run: ")[2])
    assert fencing[:2] == ["txnwatch", "fence"]
    assert main([*fencing[1:], "--yes", "--format", "json"]) == 0
    assert printed(capsys)["result"] == "fenced"
    code = main(by_id)  # now it may; and the watch may be faster
    output = capsys.readouterr()
    eventually(lambda: ends(world, partition), IN_TIME_S, "the end of every incident")
    assert not is_open(world, partition, producer.producer_id)
    assert {end.resolution.how for end in ends(world, partition) if end.resolution is not None} == {"aborted"}
    # A watch that has found the hang before the fence has the fence in its incident.
    told = [event.action for event in counting(world, partition) if event.action is not None]
    by_hand = [action for action in told if action.initiator == "operator" and action.decision != "fence"]
    if code == 0:
        assert "verified" in output.out
        assert by_hand
    else:
        assert code == 1
        assert any(reason in output.err for reason in THE_WATCH_WAS_FASTER), output.err
        assert not by_hand, "nothing was written, and no event that counts was published"
        assert ("abort", None, "verified") in actions(world, partition), "by the watch"


def counting(world: FaultWorld, partition: TopicPartition) -> list[IncidentEvent]:
    """The events about a partition that count: of two records with one event id, the first."""
    first: dict[str, IncidentEvent] = {}
    for one in about(world, partition):
        first.setdefault(one.event.event_id, one.event)
    return list(first.values())


def ends(world: FaultWorld, partition: TopicPartition) -> list[IncidentEvent]:
    """The last event of every incident of the partition, once all are over."""
    last = latest(one.event for one in about(world, partition)).values()
    return [] if any(event.is_open for event in last) else list(last)


class Witness(ClusterAdmin):
    """An admin whose markers are counted."""

    markers: list[MarkerSpec]

    def write_marker(self, marker: MarkerSpec) -> Problem | NotSent | None:
        self.markers.append(marker)
        return super().write_marker(marker)


def test_no_healthy_transaction_is_aborted_whatever_an_incident_contains(world: FaultWorld) -> None:
    """A client continues at any moment, while the abort gets incident after incident about its transaction."""
    rng = random.Random(1)
    partition = world.partition(2)
    admin = Witness(world.cluster)
    admin.markers = []
    ledger = RunningLedger(
        Origin("cluster", world.bootstrap),
        admin,
        FakeGroups(),
        TopicOutbox(RecordingTopic(), LogLines()),
        wall_clock_ms,
    )
    policy = AbortPolicy(after_ms=0, budget_per_hour=None, breaker_incidents=None)
    abort = RunningAbort("on", policy, 0, ledger, FakeLease(), "racing", wall_clock_ms)
    with (
        contextlib.closing(type(world.cluster)(world.cluster.bootstrap, world.cluster.security)) as own,
        as_it_was_found(),
    ):
        client = RawProducer(own, unique("resuming")).init()
        committed = 0
        for number in range(RACES):
            version = rng.choice((4, 5))
            eventually(lambda: begins(client, partition), IN_TIME_S, "the transaction before to be complete")
            start = client.produce(partition)
            event = an_event(
                f"race-{number}",
                topic=partition.topic,
                partition=partition.partition,
                topic_id=own.known.topics[partition.topic].topic_id,
                producer_id=client.producer_id,
                producer_epoch=client.producer_epoch,
                transactional_id=client.transactional_id,
                txn_start_offset=start,
                detected_at_ms=0,
                cluster_id="cluster",
                expected_outcome="abort",
                evidence=an_evidence(),
            )
            failures: list[TxnwatchError] = []

            def go_on(pause_s: float, version: int, failures: list[TxnwatchError]) -> None:
                time.sleep(pause_s)
                try:
                    client.produce(partition)
                    client.end(commit=True, version=version)
                except TxnwatchError as exc:
                    failures.append(exc)

            thread = threading.Thread(target=go_on, args=(rng.random() * 0.1, version, failures))
            thread.start()
            ledger.ledger.store.known.clear()
            last = client._sequences[partition] - 1
            plant(ledger, event, ActiveProducer(client.producer_id, client.producer_epoch, last, 0, None, start))
            abort.abort._tries.clear()
            while thread.is_alive():
                abort.abort._tries.clear()
                abort.on_batch()
            thread.join()
            assert failures == []
            committed += 1
    assert committed == RACES
    assert admin.markers == []
    note(f"{RACES} races, decisions {dict(abort.counts)}")
