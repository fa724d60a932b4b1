"""The automatic abort on a cluster in memory: announced, written, read again, published; and all that stops it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from support.abort_stage import COOLDOWN_MS, AbortStage
from txnwatch.cli.output import event_line
from txnwatch.state.model.ports import MarkerSpec


@pytest.fixture
def stage() -> AbortStage:
    return AbortStage()


ANNOUNCED, VERIFIED = ("abort", None, None), ("abort", None, "verified")


def test_an_abort_is_announced_written_read_again_and_reported(stage: AbortStage) -> None:
    producer_id = stage.hang_and_move_on()
    published_before_marker: list[int] = []
    stage.admin.before("write_marker", lambda: published_before_marker.append(len(stage.actions)))
    stage.admin.asked.clear()

    stage.batch()

    assert stage.actions == [ANNOUNCED, VERIFIED]
    assert published_before_marker == [1]
    assert stage.admin.markers == [MarkerSpec(stage.partition, producer_id, 0, 0, leader_epoch=0)]
    assert stage.admin.asked[-12:] == [
        "read_partitions",
        "list_transactions",
        "describe_transactions",
        "read_partitions",
        "log_epochs",
        "read_span_histories",
        "write_marker",
        *("read_partitions", "closing_marker", "closing_marker"),
        *("read_partitions", "closing_marker"),
    ]
    action = stage.last().action
    assert action is not None
    assert (action.last_stable_offset_before, action.last_stable_offset_after) == (0, 2)
    assert (action.marker_producer_epoch, action.marker_coordinator_epoch, action.by) == (0, 0, "here")
    assert action.principal == "User:watcher", "the result keeps that of the announcement"
    assert not stage.is_open(producer_id)
    assert stage.last().is_open, "the log itself shows the end"
    stage.batch()
    assert len(stage.admin.markers) == 1


def test_the_text_lines_have_the_decision(stage: AbortStage) -> None:
    stage.hang_and_move_on()
    stage.batch()
    lines = [event_line(event) for event in stage.topic.published]
    assert [line.rsplit("  ", 1)[1] for line in lines[1:]] == ["abort: announced", "abort: verified"]


def test_off_does_nothing_and_dry_run_only_publishes_its_decision_once(stage: AbortStage) -> None:
    stage.hang_and_move_on()
    stage.abort.abort.mode = "off"
    stage.batch()
    assert stage.actions == []
    stage.abort.abort.mode = "dry-run"
    for _ in range(5):
        stage.batch(after_ms=70_000)
    assert stage.actions == [("dry_run", None, None)]
    assert stage.admin.markers == []


def test_idle_is_not_dead_and_the_refusal_is_published_once(stage: AbortStage) -> None:
    producer_id = stage.hang_and_move_on()
    stage.admin.transactions["checkout-1"].producer_epoch = 0
    for _ in range(5):
        stage.batch(after_ms=70_000)
    assert stage.actions == [("refused", "epoch_may_be_reused", None)]
    assert stage.is_open(producer_id)

    stage.admin.init("checkout-1")  # what an operator does: fence it
    stage.batch(after_ms=70_000)
    assert stage.actions[1:] == [ANNOUNCED, VERIFIED]


def test_a_refusal_is_not_published_again_after_a_restart(stage: AbortStage) -> None:
    stage.hang_and_move_on()
    stage.admin.transactions["checkout-1"].producer_epoch = 0
    stage.batch()
    stage.restart()
    stage.batch()
    assert stage.actions == [("refused", "epoch_may_be_reused", None)]


def test_the_transaction_of_a_client_that_resumed_is_not_aborted(stage: AbortStage) -> None:
    producer_id = stage.hang_and_move_on()
    owner = stage.admin.transactions["checkout-1"]
    owner.producer_epoch = 0
    stage.admin.begin("checkout-1", stage.partition)
    stage.batch()
    assert stage.actions == [("refused", "still_owned", None)]
    assert stage.is_open(producer_id)
    assert stage.abort.counts["circuit breaker opened"] == 1


def test_data_after_the_outcome_was_found_may_have_another_owner(stage: AbortStage) -> None:
    producer_id = stage.hang_and_move_on()
    stage.admin.write(stage.partition, producer_id)
    stage.batch()
    assert stage.actions == [("refused", "changed_since_opened", None)]


def test_none_from_the_broker_is_not_success(stage: AbortStage) -> None:
    stage.hang_and_move_on()
    stage.admin.mark = lambda _: None  # type: ignore[method-assign,assignment]
    stage.batch()
    assert stage.actions == [ANNOUNCED, ("abort", None, "still_open")]
    stage.batch(after_ms=2_000)
    assert len(stage.admin.markers) == 1, "and the breaker is open"
    assert stage.actions[2:] == [("refused", "breaker_open", None)]
    assert any("stops for 600 s" in line for line in stage.reports)


def test_another_leader_may_have_another_log_and_gets_no_marker(stage: AbortStage) -> None:
    producer_id = stage.hang_and_move_on()
    stage.admin.before("write_marker", lambda: stage.admin.move_leader(stage.partition, 2))
    stage.batch()
    assert stage.actions == [ANNOUNCED, ("abort", None, "failed")]
    assert stage.is_open(producer_id)
    assert stage.admin.markers == []
    stage.batch(after_ms=600_000)
    assert stage.actions[2:] == [ANNOUNCED, VERIFIED], "no broker had the marker, so the breaker stayed closed"


def test_the_breaker_closes_after_its_time(stage: AbortStage) -> None:
    stage.hang_and_move_on()
    real, stage.admin.mark = stage.admin.mark, lambda _: None  # type: ignore[method-assign,assignment]
    stage.batch()
    stage.admin.mark = real  # type: ignore[method-assign]
    stage.batch(after_ms=COOLDOWN_MS)
    assert stage.actions[-2:] == [ANNOUNCED, VERIFIED]


def test_a_missing_right_is_a_refusal_that_names_what_to_grant(stage: AbortStage) -> None:
    stage.hang_and_move_on()
    stage.admin.mark = lambda _: "CLUSTER_AUTHORIZATION_FAILED"  # type: ignore[method-assign,assignment]
    stage.batch()
    assert stage.actions == [ANNOUNCED, ("refused", "not_authorized", None)]
    action = stage.last().action
    assert action is not None
    assert "grant ALTER on the cluster" in action.detail


def test_a_refused_marker_is_failed_and_a_lost_answer_is_settled_by_reading(stage: AbortStage) -> None:
    stage.hang_and_move_on()
    real, stage.admin.mark = stage.admin.mark, lambda _: "INVALID_PRODUCER_EPOCH"  # type: ignore[method-assign,assignment]
    stage.batch()
    assert stage.actions[-1] == ("abort", None, "failed")

    def times_out(marker: MarkerSpec) -> str:
        real(marker)
        return "the time budget was used up"

    stage.admin.mark = times_out  # type: ignore[method-assign]
    stage.batch(after_ms=COOLDOWN_MS)
    assert stage.actions[-1] == VERIFIED


def test_an_outcome_that_is_not_abort_or_none_is_never_touched() -> None:
    stage = AbortStage()
    candidate = stage.hang()
    view = candidate.view
    assert view is not None
    stage.batch(replace(candidate, view=replace(view, epoch_use="shared")))  # type: ignore[arg-type]
    stage.admin.init("checkout-1")
    stage.batch()
    assert stage.actions == [("refused", "outcome_unknown", None)]
    assert stage.admin.markers == []


def test_nothing_is_written_before_the_announcement_is_delivered(stage: AbortStage) -> None:
    stage.hang_and_move_on()
    stage.topic.is_away = True
    stage.batch()
    assert stage.admin.markers == []
    stage.topic.is_away = False
    stage.batch(after_ms=60_000)
    assert stage.actions[:2] == [ANNOUNCED, ("abort", None, "failed")]
    stage.batch(after_ms=60_000)
    assert stage.actions[-1] == VERIFIED


def test_an_instance_without_the_lease_does_and_publishes_nothing(stage: AbortStage) -> None:
    stage.hang_and_move_on()
    stage.lease.held = False
    stage.batch()
    assert stage.actions == []


def test_an_instance_that_cannot_ask_for_the_lease_reports_it_once_and_blames_nobody_else(stage: AbortStage) -> None:
    stage.hang_and_move_on()
    stage.lease.held, stage.lease.problem = False, "the right is missing"
    for _ in range(10):
        stage.batch(after_ms=70_000)
    assert stage.actions == []
    about = [line for line in stage.reports if "lease" in line or "aborts nothing" in line]
    assert about == ["warning: this instance aborts nothing automatically: the right is missing"]


def test_an_instance_that_lost_the_lease_right_before_the_marker_does_not_write_it(stage: AbortStage) -> None:
    stage.hang_and_move_on()
    stage.lease.held_now = False
    stage.batch()
    assert stage.actions == [ANNOUNCED, ("abort", None, "failed")]
    assert stage.admin.markers == []


def test_a_reading_that_has_grown_old_is_no_reason_to_write(stage: AbortStage) -> None:
    stage.hang_and_move_on()

    def slow() -> None:
        stage.now_ms += 6_000

    stage.lease.before_asking = slow
    stage.batch()
    assert stage.actions == [ANNOUNCED, ("abort", None, "failed")]
    assert stage.admin.markers == []
