"""Our fold and state against the class that Kafka's leaders keep their producers in, over thousands of random logs.

The class is `ProducerStateManager` of Kafka's own jars, in one JVM without a broker. A difference is reported with
its seed and with the shortest script that still makes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.log_scripts import ScriptStep, shortened
from support.mutants import MUTANTS, Mutant
from support.producer_state_diff import ComparisonTally, check, first_difference
from support.producer_state_oracle import ProducerStateOracle
from support.seeds import in_proportion

LOGS = in_proportion(800)
LOGS_FOR_A_MUTANT = 1500
EVERY_KIND = frozenset(
    {"data", "marker", "plain", "nobody", "old", "emptied data", "emptied marker"}
    | {"truncate", "snapshot", "restart", "expire", "lose"}
)
EVERY_REFUSAL = frozenset(
    {
        "InvalidProducerEpochException",
        "OutOfOrderSequenceException",
        "InvalidTxnStateException",
        "TransactionCoordinatorFencedException",
    }
)


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProducerStateOracle]:
    with ProducerStateOracle(tmp_path_factory.mktemp("oracle")) as started:
        yield started


def test_the_open_transactions_are_those_of_kafka(oracle: ProducerStateOracle) -> None:
    tally = ComparisonTally()
    for seed in range(LOGS):
        check(oracle, seed, tally)
    assert tally.logs == LOGS
    assert tally.comparisons > 10 * LOGS
    if LOGS >= 800:
        rare = {"a newer epoch joined", "leader has forgotten", "several open", "opened", "closed"}
        assert {name for name, times in tally.seen.items() if times} == EVERY_KIND | EVERY_REFUSAL | rare


FOUND_FROM = {MUTANTS["a cut takes nothing"]: 1_270}  # others are found within the first 50 logs


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())
def test_a_planted_bug_makes_a_difference(
    oracle: ProducerStateOracle, mutant: Mutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant.plant(monkeypatch)
    begin = FOUND_FROM.get(mutant, 0)
    assert first_difference(oracle, range(begin, begin + LOGS_FOR_A_MUTANT)) is not None


def test_a_difference_is_reported_with_the_shortest_script_that_makes_it(
    oracle: ProducerStateOracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    MUTANTS["a marker is dropped"].plant(monkeypatch)
    seed = first_difference(oracle, range(LOGS_FOR_A_MUTANT))
    assert seed is not None
    with pytest.raises(AssertionError, match=rf"(?s)^seed {seed}: .* hold .*, Kafka .*Step\(kind='marker'") as raised:
        check(oracle, seed)
    assert str(raised.value).count("Step(") <= 3


def test_a_script_is_shortened_to_the_steps_that_matter() -> None:
    steps = [ScriptStep("data", 3, number, 0, 0, 0, 0, 0, flag=False) for number in range(30)]
    wanted = {steps[4], steps[17], steps[29]}
    assert set(shortened(steps, lambda fewer: wanted <= set(fewer))) == wanted


def test_a_test_has_the_reason_why_kafkas_side_ended(tmp_path: Path) -> None:
    ended = pytest.raises(AssertionError, match=r"(?s)Kafka's side has ended: .*no such command: 63")
    with ProducerStateOracle(tmp_path) as oracle, ended:
        oracle.run([b"?"])
