"""No healthy transaction is ever aborted, and no reported outcome is false: thousands of races, with faults.

A planted bug is a rule of the table taken out: each must be found. That an outcome is true is asked of many more
lives of one id in tests/property/test_outcome_properties.py.
"""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager
from unittest import mock

import pytest

from simulation.abort import believing, run_race, run_with_abort
from simulation.run import USUAL
from simulation.world import Setting
from support.seeds import in_proportion
from txnwatch.state.abort import rules as abort_plan
from txnwatch.state.abort.rules import REFUSALS
from txnwatch.state.detection import view
from txnwatch.state.evidence import outcome as outcome_rule
from txnwatch.state.model.incident import Refusal

RACES, WHOLE_RUNS = in_proportion(10), in_proportion(12)
TOO_OFTEN = 400
NEAR_IT = 40  # a seed that shows the harm comes soon after
LATE_OR_LOST = Setting(faults=frozenset({"stray write", "lost marker"}), batches=40)
LOG_IS_CUT_FIRST = Setting(
    *(1, 1, 1), batches=3, rate=0.5, head_start=150, faults=frozenset({"unclean failover of the log", "lost marker"})
)
CUT_BEFORE_THE_WATCH = range(1580, 1580 + in_proportion(40))  # seeds of which one needs the rule


def test_no_healthy_transaction_is_harmed_whatever_the_incidents_contain() -> None:
    seen: Counter[str] = Counter()
    for seed in range(RACES):
        problems, happened = run_race(seed)
        assert not problems, f"seed {seed}: {problems}"
        seen += happened
    counts = {name: count for name, count in seen.items() if name.startswith("abort")}
    assert seen["abort: marker"] > 2 * RACES, counts
    for refusal in ("still_owned", "epoch_may_be_reused", "changed_since_opened", "outcome_was_commit"):
        assert seen[f"aborts refused ({refusal})"] > 0, counts


@pytest.mark.parametrize("setting", [USUAL, LATE_OR_LOST], ids=["usual", "late or lost"])
def test_the_whole_product_reports_no_false_outcome_and_harms_no_transaction(setting: Setting) -> None:
    seen: Counter[str] = Counter()
    for seed in range(WHOLE_RUNS):
        outcome = run_with_abort(seed, setting)
        assert not outcome.problems, f"seed {seed}: {outcome.problems}"
        seen += outcome.seen
    assert WHOLE_RUNS < 100 or (seen["outcome: none"] and seen["outcome: abort"]), seen


@pytest.mark.parametrize("setting", [USUAL, LATE_OR_LOST], ids=["usual", "late or lost"])
def test_forged_events_harm_no_transaction_and_suppress_no_incident(
    setting: Setting,
) -> None:
    seen: Counter[str] = Counter()
    for seed in range(WHOLE_RUNS):
        outcome = run_with_abort(seed, setting, forging=True, hides=bool(seed % 2))
        assert not outcome.problems, f"seed {seed}: {outcome.problems}"
        seen += outcome.seen
    assert seen["forged"] > WHOLE_RUNS, seen
    assert seen["forged: no event"] > WHOLE_RUNS / 4, seen


def test_trusting_the_outcome_on_the_events_topic_harms_a_transaction() -> None:
    def is_harmed(seed: int) -> bool:
        found = run_with_abort(seed, LATE_OR_LOST, forging=True).problems
        return any("HARM" in problem for problem in found)

    with believing():
        found = next((seed for seed in range(NEAR_IT, NEAR_IT + TOO_OFTEN) if is_harmed(seed)), None)
    assert found is not None, f"the topic's outcome is believed, and {TOO_OFTEN} runs do not show it"
    assert not is_harmed(found)


def test_data_whose_owner_was_cut_off_before_the_watch_began_is_not_said_to_be_of_nobody() -> None:
    def is_false(seed: int) -> bool:
        return any("FALSE OUTCOME" in problem for problem in run_with_abort(seed, LOG_IS_CUT_FIRST).problems)

    assert not any(map(is_false, CUT_BEFORE_THE_WATCH))
    with (
        mock.patch.object(view, "used_before", lambda view: view),
        mock.patch.object(outcome_rule, "of_election", return_value=None),
    ):
        assert any(map(is_false, CUT_BEFORE_THE_WATCH))


def without(refusal: Refusal) -> AbstractContextManager[object]:
    """The table without a row."""
    return mock.patch.object(abort_plan, "REFUSALS", tuple(rule for rule in REFUSALS if rule.refusal is not refusal))


@pytest.mark.parametrize(
    ("refusal", "first"),
    [(Refusal.OUTCOME_WAS_COMMIT, 0), (Refusal.EPOCH_MAY_BE_REUSED, 48), (Refusal.CHANGED_SINCE_OPENED, 12)],
)
def test_without_a_rule_a_transaction_is_harmed(refusal: Refusal, first: int) -> None:
    with without(refusal):
        found = next((seed for seed in range(first, first + TOO_OFTEN) if run_race(seed)[0]), None)
    assert found is not None, f"{refusal} can be taken out, and {TOO_OFTEN} races do not show it"
    assert not run_race(found)[0]
