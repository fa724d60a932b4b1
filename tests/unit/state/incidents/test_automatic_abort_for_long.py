"""What the automatic abort keeps to over time: crashes, budgets, breakers, and the alert that comes first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.abort_stage import AT_ONCE, AbortStage
from support.incidents import an_event
from txnwatch.state.evidence.ending import no_longer_open, partition_gone
from txnwatch.state.incidents.abort_protocol import action
from txnwatch.state.model.incident import ActionResult, Decision, EndKind, Initiator, resolved, updated
from txnwatch.state.model.ports import MarkerSpec


@pytest.fixture
def stage() -> AbortStage:
    return AbortStage()


ANNOUNCED, VERIFIED = ("abort", None, None), ("abort", None, "verified")


@pytest.mark.parametrize("is_written", [True, False])
@pytest.mark.parametrize("instance", ["here", "elsewhere"])
def test_after_a_crash_between_marker_and_event_the_event_still_comes_once(is_written: bool, instance: str) -> None:  # noqa: FBT001
    stage = AbortStage()
    producer_id = stage.hang_and_move_on()

    class Crash(Exception):  # noqa: N818
        pass

    def crash() -> None:
        if is_written:
            stage.admin.mark(MarkerSpec(stage.partition, producer_id, 0, 0))
        raise Crash

    stage.admin.before("write_marker", crash)
    with pytest.raises(Crash):
        stage.batch()
    assert stage.actions == [ANNOUNCED]

    stage.mode, stage.instance = "off", instance
    stage.restart()
    stage.batch()
    if instance == "elsewhere":
        assert stage.actions == [ANNOUNCED], "it may still be at it"
        stage.batch(after_ms=61_000)
    assert stage.actions == [ANNOUNCED, ("abort", None, "verified" if is_written else "still_open")]
    stage.restart()
    stage.batch()
    assert len(stage.actions) == 2


def test_a_commit_by_hand_whose_process_is_gone_gets_its_result_from_the_log() -> None:
    stage = AbortStage(mode="off")
    stage.hang_and_move_on()
    stage.batch()
    begun = action(Decision.COMMIT, "somebody@host", stage.now_ms, initiator=Initiator.OPERATOR)
    stage.topic.published.append(updated(replace(stage.last(), action=begun), stage.now_ms))
    stage.restart()
    stage.batch()
    assert stage.actions == [("commit", None, None)], "it may still be at it"
    stage.batch(after_ms=61_000)
    assert stage.actions == [("commit", None, None), ("commit", None, "still_open")]


GONE, OVER = partition_gone(5), no_longer_open(5, "the partition's leader no longer has the transaction open")
ABORTED, COMMITTED = replace(OVER, how=EndKind.ABORTED), replace(OVER, how=EndKind.COMMITTED)


@pytest.mark.parametrize(
    ("decision", "recorded", "end", "result"),
    [
        pytest.param("abort", None, ABORTED, "verified", id="its marker is there"),
        pytest.param("commit", None, COMMITTED, "verified", id="its marker is there, a commit"),
        pytest.param("abort", None, COMMITTED, "unknown", id="another marker is there"),
        pytest.param("abort", None, OVER, "unknown", id="over, and nobody saw how"),
        pytest.param("abort", None, GONE, "unknown", id="the topic is gone"),
        pytest.param(
            "abort", None, replace(OVER, how=EndKind.ABSORBED), "unknown", id="taken in by the next transaction"
        ),
        pytest.param("abort", "still_open", ABORTED, "still_open", id="recorded before"),
        pytest.param("dry_run", None, ABORTED, None, id="no marker was announced"),
        pytest.param("refused", None, GONE, None, id="refused"),
    ],
)
def test_an_end_verifies_a_marker_only_by_such_a_marker(
    decision: str, recorded: str | None, end: dict[str, object], result: str | None
) -> None:
    done = replace(
        action(Decision(decision), "here", 1), result=ActionResult(recorded) if recorded is not None else None
    )
    found = resolved(an_event(action=done), 9, end).action
    assert found is not None
    assert (found.decision, found.result) == (decision, result)


def test_a_topic_that_was_re_created_after_the_announcement_verifies_nothing(stage: AbortStage) -> None:
    stage.hang_and_move_on()

    def vanish() -> None:
        stage.admin.create_topic(stage.partition.topic)
        raise KeyboardInterrupt

    stage.admin.before("write_marker", vanish)
    with pytest.raises(KeyboardInterrupt):
        stage.batch()
    stage.restart()
    for _ in range(3):
        stage.batch(after_ms=61_000)
    assert stage.last().status == "resolved"
    assert stage.actions == [ANNOUNCED, ("abort", None, "unknown")]


def test_the_budget_holds_and_outlives_a_restart() -> None:
    stage = AbortStage(policy=replace(AT_ONCE, breaker_incidents=None))
    for number in range(4):
        stage.hang_and_move_on(f"checkout-{number}")
    stage.batch()
    assert [decision for decision in stage.actions if decision == VERIFIED] == [VERIFIED] * 3
    stage.restart()
    stage.batch(after_ms=2_000)
    assert ("refused", "budget_exhausted", None) in stage.actions
    assert len(stage.admin.markers) == 3
    stage.batch(after_ms=3_600_000)
    assert len(stage.admin.markers) == 4


def test_the_budget_holds_if_our_clock_is_set_back() -> None:
    stage = AbortStage(policy=replace(AT_ONCE, breaker_incidents=None))
    for number in range(3):
        stage.hang_and_move_on(f"checkout-{number}")
    stage.batch()
    stage.now_ms -= 600_000
    stage.hang_and_move_on("checkout-3")
    stage.batch()
    assert len(stage.admin.markers) == 3
    assert stage.actions[-1] == ("refused", "budget_exhausted", None)


@pytest.mark.parametrize("ahead_ms", [-3_600_000, -60_000, 0, 3_600_000])
def test_a_marker_of_another_instance_counts_for_an_hour_from_when_it_was_read(ahead_ms: int) -> None:
    stage = AbortStage(policy=replace(AT_ONCE, breaker_incidents=None))
    for number in range(4):
        stage.hang_and_move_on(f"checkout-{number}")
    for event in list(stage.ledger.ledger.book.open_incidents)[:3]:
        done = replace(action(Decision.ABORT, "elsewhere", stage.now_ms + ahead_ms), result=ActionResult.STILL_OPEN)
        stage.topic.published.append(updated(replace(event, action=done), stage.now_ms + ahead_ms))
    stage.restart()
    stage.batch()
    stage.batch(after_ms=3_599_000)
    assert set(stage.actions[3:]) == {("refused", "budget_exhausted", None)}
    assert stage.admin.markers == []
    stage.batch(after_ms=3_599_000)
    assert len(stage.admin.markers) == 3


def test_too_many_at_once_is_something_larger(stage: AbortStage) -> None:
    for number in range(3):
        stage.hang_and_move_on(f"checkout-{number}")
    stage.batch()
    assert stage.actions == [("refused", "breaker_open", None)] * 3


def test_the_alert_comes_first_and_the_act_after_its_time() -> None:
    stage = AbortStage(policy=replace(AT_ONCE, after_ms=300_000))
    stage.hang_and_move_on()
    stage.batch()
    assert stage.actions == []
    stage.batch(after_ms=300_000)
    assert stage.actions == [ANNOUNCED, VERIFIED]


def test_a_hang_with_an_unread_history_is_published_and_read_again(stage: AbortStage) -> None:
    stage.hang_and_move_on()
    stage.admin.problems["checkout-1"] = "COORDINATOR_NOT_AVAILABLE"
    stage.batch()
    assert stage.actions == [("refused", "evidence_incomplete", None)]
    del stage.admin.problems["checkout-1"]
    stage.batch(after_ms=2_000)
    assert stage.actions[-1] == VERIFIED
