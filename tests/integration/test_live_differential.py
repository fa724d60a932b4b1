"""Our fold and state against a real leader: random requests, then DescribeProducers and the last stable offset.

One broker, raw requests of applications, zombies and administrators; what we read through Fetch has to hold open
exactly what the leader does, whenever we look and however much we have read at a time.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from support.live_script import LiveScript
from support.live_watcher import LiveWatcher
from support.mutants import MUTANTS
from support.seeds import in_proportion
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster

TOPICS = in_proportion(4)
LOOKS = 50
TOPICS_FOR_A_MUTANT = 8
NOTICED = [
    "only a newer epoch closes",
    "a newer epoch in data begins anew",
    "a marker is dropped",
    "the state never closes",
]
REFUSALS = {"INVALID_PRODUCER_EPOCH", "TRANSACTION_COORDINATOR_FENCED", "INVALID_TXN_STATE"}


class DifferenceError(AssertionError):
    """The leader and we do not agree."""


def run(cluster: Cluster, seed: int) -> tuple[LiveScript, LiveWatcher]:
    """A few steps and a look, again and again, on a topic of their own.

    Raises:
        DifferenceError: with the seed and all that was done.
    """
    random = Random(seed)
    admin = ClusterAdmin(cluster)
    script = LiveScript(cluster, random)
    watcher = LiveWatcher(cluster, script.partitions)
    for number in range(LOOKS):
        for _ in range(random.randint(1, 5)):
            script.step()
        is_last = number == LOOKS - 1
        readings = admin.read_partitions(script.partitions)
        assert [reading.problem for reading in readings.values()] == [None] * len(readings)
        ends = {
            partition: random.choice((reading.high_watermark, reading.high_watermark, at))
            for partition, reading in readings.items()
            if is_last or random.random() < 0.5
            for at in [random.randint(watcher.positions[partition], reading.high_watermark)]
        }
        watcher.read(ends)
        watcher.heal()
        if (found := watcher.difference(readings)) is not None:
            raise DifferenceError(f"seed {seed}, look {number}: {found}\n  " + "\n  ".join(script.steps))
    return script, watcher


def run_until_it_differs(cluster: Cluster) -> None:
    """Some topics, at most."""
    for seed in range(TOPICS_FOR_A_MUTANT):
        run(cluster, seed)


def test_we_hold_open_what_the_leader_does(cluster: Cluster) -> None:
    refused: Counter[str] = Counter()
    comparisons = most_open = healings = 0
    for seed in range(TOPICS):
        script, watcher = run(cluster, seed)
        refused += script.refused
        comparisons += watcher.comparisons
        healings += watcher.healings
        most_open = max(most_open, watcher.most_open)
    assert comparisons > TOPICS * LOOKS / 2
    assert most_open > 2
    assert healings > 0
    assert refused.keys() >= REFUSALS


@pytest.mark.parametrize("name", NOTICED)
def test_a_planted_bug_makes_a_difference(cluster: Cluster, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name].plant(monkeypatch)
    with pytest.raises(DifferenceError, match=r"we hold .*, its leader"):
        run_until_it_differs(cluster)
