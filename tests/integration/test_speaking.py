"""Which of two instances speaks on a real Kafka: the lease of a consumer group."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest

from support.topics import create_topic, unique
from support.waiting import eventually
from txnwatch.sinks.incidents import group_lease
from txnwatch.sinks.incidents.group_lease import GroupLease, SpeakerGate
from txnwatch.state.incidents.speaking import SESSION_MS
from txnwatch.state.model.values import lease_group
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

JOINED_S, AT_ONCE_S = 20.0, 4.0


def clock_s() -> float:
    """Looked up at each call, so that a test can set it."""
    return time.monotonic()


class Instance:
    """One instance that asks for the lease, and whether it speaks."""

    def __init__(self, kafka: EmbeddedKafka, topic: str, group: str) -> None:
        self.lease = GroupLease({"bootstrap.servers": kafka.bootstrap_servers}, topic, group)
        self.gate = SpeakerGate(self.lease, "", lambda _: None, clock_s)

    def speaks(self) -> bool:
        """As the ledger asks in every round."""
        return self.gate.voice().speaks


Start = Callable[[], Instance]


@pytest.fixture
def start(kafka: EmbeddedKafka, cluster: Cluster) -> Iterator[Start]:
    topic = create_topic(cluster, unique("speaking"))[0].topic
    group = lease_group(unique("cluster"), "0123456789")
    with contextlib.ExitStack() as closing:

        def begin() -> Instance:
            one = Instance(kafka, topic, group)
            closing.callback(one.lease.close)
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


def test_an_instance_whose_micro_batch_took_too_long_for_the_group_has_the_lease_again_at_once(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_lease, "LONGEST_BATCH_MS", SESSION_MS)
    first = start()
    eventually(first.speaks, JOINED_S, "the first instance")
    time.sleep(1.5 * SESSION_MS / 1000)
    assert first.speaks()


def test_an_instance_that_was_stopped_speaks_again_only_as_the_coordinator_says(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = start()
    eventually(first.speaks, JOINED_S, "the first instance")
    monkeypatch.setattr(GroupLease, "is_held_now", lambda _: False)  # what the coordinator answers after the session
    later_s = time.monotonic() + 2 * SESSION_MS / 1000
    monkeypatch.setattr("txnwatch.sinks.incidents.group_lease.time.monotonic", lambda: later_s)
    assert not first.speaks()
