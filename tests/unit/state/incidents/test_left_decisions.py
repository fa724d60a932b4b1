"""Two watchers, of which one has the lease and the other knows the outcome of a hang: who decides about an abort."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.fake_groups import FakeGroups
from support.incidents import an_update
from support.log_lines import LogLines
from support.watchers import Watchers
from txnwatch.state.evidence.ending import LOOK_AGAIN_MS
from txnwatch.state.incidents.automatic_abort import LEFT_MS, PASS_ON_AGAIN_MS


@pytest.fixture
def watchers() -> Watchers:
    return Watchers.of_one_hang()


def test_a_decision_is_left_to_the_one_that_knows_and_it_gets_the_lease(watchers: Watchers) -> None:
    reports = LogLines()
    later, lease = watchers.abort_of(watchers.later, "later", reports)
    knows, _ = watchers.abort_of(watchers.knows, "knows")
    for _ in range(3):
        watchers.batch(watchers.later, watchers.knows)
        later.on_batch()
    assert watchers.told == [("opened", "abort")]
    assert (lease.held, lease.passed_on) == (False, 1)
    assert len([line for line in reports if "left to another instance" in line]) == 1
    knows.on_batch()
    assert [str(event.expected_outcome) for event in watchers.log.records] == ["abort", "abort", "abort"]
    assert watchers.last.action is not None
    assert (watchers.last.action.by, watchers.last.action.result) == ("knows", "verified")


def test_nothing_is_passed_on_before_an_abort_is_due(watchers: Watchers) -> None:
    abort, lease = watchers.abort_of(watchers.later, "later")
    abort.abort.policy = replace(abort.abort.policy, after_ms=60_000)
    for _ in range(5):
        watchers.batch(watchers.later, after_ms=10_000)
        abort.on_batch()
    assert lease.passed_on == 0
    watchers.batch(watchers.later, after_ms=20_000)
    abort.on_batch()
    assert lease.passed_on == 1


def test_the_lease_is_passed_on_from_time_to_time_only_and_nobody_is_suspected(watchers: Watchers) -> None:
    reports = LogLines()
    abort, lease = watchers.abort_of(watchers.later, "later", reports)
    for number in range(2 * PASS_ON_AGAIN_MS // 10_000):
        watchers.batch(watchers.later, after_ms=10_000)
        lease.held = number % (PASS_ON_AGAIN_MS // 10_000) not in {1, 2, 3}  # it has it again after 30 s
        abort.on_batch()
    assert lease.passed_on == 2
    assert watchers.told == [("opened", "abort")]
    assert not [line for line in reports if "another member of the lease" in line]


def test_nothing_is_passed_on_once_the_other_has_decided(watchers: Watchers) -> None:
    abort, lease = watchers.abort_of(watchers.later, "later")
    knows, _ = watchers.abort_of(watchers.knows, "knows")
    knows.abort.mode = "dry-run"
    abort.on_batch()
    knows.on_batch()
    for _ in range(3):
        watchers.batch(watchers.later, watchers.knows, after_ms=PASS_ON_AGAIN_MS)
        lease.held = True
        abort.on_batch()
    assert lease.passed_on == 1


def test_a_decision_is_left_although_the_two_see_other_groups(watchers: Watchers) -> None:
    start, groups = watchers.named.span.start_offset, watchers.knows.groups
    assert isinstance(groups, FakeGroups)
    for _ in range(2):
        groups.commit("g", watchers.world.partition, start)
        watchers.batch(watchers.knows, watchers.later, after_ms=LOOK_AGAIN_MS)
    watchers.world.admin.plain(watchers.world.partition, 3)
    groups.leave("g")
    for _ in range(4):
        watchers.batch(watchers.knows, watchers.later, after_ms=LOOK_AGAIN_MS)
    assert watchers.last.consumer_groups
    abort, lease = watchers.abort_of(watchers.later, "later")
    for _ in range(30):
        watchers.batch(watchers.knows, watchers.later, after_ms=5_000)
        lease.held = True
        abort.on_batch()
    assert set(watchers.outcomes()) == {"abort"}


@pytest.mark.parametrize("decided", [False, True])
def test_if_nobody_decides_a_refusal_is_published_after_a_while(watchers: Watchers, *, decided: bool) -> None:
    abort, lease = watchers.abort_of(watchers.later, "later")
    if decided:
        knows, _ = watchers.abort_of(watchers.knows, "knows")
        knows.abort.mode = "dry-run"
        knows.on_batch()
    for _ in range(LEFT_MS // 60_000 + 2):
        watchers.batch(watchers.later, after_ms=60_000)
        lease.held = True
        abort.on_batch()
    decisions = [str(event.action.decision) for event in watchers.log.records if event.action is not None]
    assert decisions == (["dry_run"] if decided else ["refused"])


@pytest.mark.parametrize("is_claimed", [True, False])
def test_without_another_instance_a_refusal_is_published_at_once(watchers: Watchers, *, is_claimed: bool) -> None:
    watchers.later.is_another_there = lambda _: False
    if not is_claimed:
        watchers.log.records.append(replace(watchers.last, sequence=2, status="updated", expected_outcome="unknown"))
    abort, lease = watchers.abort_of(watchers.later, "later")
    watchers.batch(watchers.later)
    abort.on_batch()
    assert watchers.last.action is not None
    assert (watchers.last.action.refusal, lease.passed_on) == ("outcome_unknown", 0)


def test_a_refusal_that_another_record_precedes_is_published_after_it(watchers: Watchers) -> None:
    watchers.later.is_another_there = lambda _: False
    abort, _ = watchers.abort_of(watchers.later, "later")
    watchers.batch(watchers.later)
    watchers.log.records.append(replace(an_update(watchers.last, watchers.world.now_ms), sequence=2))
    for _ in range(2):
        abort.on_batch()
        watchers.batch(watchers.later)
    assert watchers.last.action is not None
    assert (watchers.last.sequence, watchers.last.action.refusal) == (3, "outcome_unknown")
