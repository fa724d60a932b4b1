"""Events that another client puts on the events topic never make the automatic abort act, nor stop it.

The ledger and the abort are the real ones; the topic is in memory, and anybody may write to it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.abort_stage import AT_ONCE
from support.forged_events import (
    Topic,
    forged,
)
from support.incidents import an_event, an_evidence


@pytest.mark.parametrize("restarted", [False, True])
def test_an_outcome_that_another_client_wrote_is_never_acted_upon(restarted: bool) -> None:  # noqa: FBT001
    stage = Topic()
    stage.an_acknowledged_hang()
    stage.log.records.append(forged(stage.last(), expected_outcome="abort", action=None))
    if restarted:
        stage.restart()
    for _ in range(5):
        stage.batch(after_ms=70_000)
    assert stage.admin.markers == []
    assert {one for one in stage.actions if one[0] == "abort"} == set()


def test_a_forged_outcome_is_corrected_and_the_abort_continues() -> None:
    stage = Topic()
    stage.hang_and_move_on()
    stage.log.records.append(forged(stage.last(), expected_outcome="commit"))
    stage.batch()
    assert stage.actions == [("abort", None, None), ("abort", None, "verified")]
    assert stage.last().expected_outcome == "abort"


def test_the_outcome_is_read_from_the_log_once_more_right_before_the_marker() -> None:
    stage = Topic()
    producer_id = stage.hang_and_move_on()
    stage.admin.partitions[stage.partition].starts.pop(producer_id)  # the log does not lead to it any more
    stage.batch()
    assert stage.admin.markers == []
    assert stage.actions == [("refused", "outcome_unknown", None)]


TIMES: dict[str, dict[str, Any]] = {
    "detected long ago": {"detected_at_ms": 0},
    "open since long ago": {"open_since_ms": 0},
    "published long ago": {"time_ms": 0},
}


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("changes", TIMES.values(), ids=TIMES.keys())
def test_a_time_that_another_client_wrote_does_not_shorten_the_wait(changes: dict[str, Any], restarted: bool) -> None:  # noqa: FBT001
    stage = Topic(policy=replace(AT_ONCE, after_ms=300_000))
    stage.hang_and_move_on()
    stage.log.records.append(forged(stage.last(), **changes))
    if restarted:
        stage.batch(after_ms=200_000)
        stage.restart()
    stage.batch(after_ms=299_000)
    assert stage.admin.markers == []
    stage.batch(after_ms=2_000)
    assert len(stage.admin.markers) == (0 if restarted else 1), "after a restart it waits anew"
    stage.batch(after_ms=300_000)
    assert len(stage.admin.markers) == 1


def test_the_lists_do_not_use_a_name_that_another_client_wrote() -> None:
    stage = Topic(policy=replace(AT_ONCE, id_prefixes=("payments-",)))
    stage.hang_and_move_on()
    stage.log.records.append(forged(stage.last(), transactional_id="payments-1"))
    for _ in range(3):
        stage.batch(after_ms=70_000)
    assert stage.admin.markers == []
    assert stage.actions == [("refused", "transactional_id_denied", None)]


@pytest.mark.parametrize("restarted", [False, True])
def test_events_that_are_changed_do_not_enlarge_the_budget(restarted: bool) -> None:  # noqa: FBT001
    stage = Topic(policy=replace(AT_ONCE, breaker_incidents=None))
    for number in range(4):
        stage.hang_and_move_on(f"checkout-{number}")
    stage.batch()
    assert len(stage.admin.markers) == 3
    for event in list({event.incident_id: event for event in stage.log.records}.values()):
        if event.action is not None and event.action.decision == "abort":
            stage.log.records.append(forged(event, action=replace(event.action, at_ms=1, by="me")))
    if restarted:
        stage.restart()
    stage.batch(after_ms=2_000)
    stage.batch(after_ms=70_000)
    assert len(stage.admin.markers) == 3


def test_an_opened_about_a_transaction_that_is_healthy_ends_and_is_never_acted_upon_nor_counted() -> None:
    stage = Topic(policy=replace(AT_ONCE, breaker_incidents=1))
    stage.batch()
    owner = stage.admin.begin("healthy", stage.partition)
    row = stage.admin.partitions[stage.partition].producers[owner.producer_id]
    for number in range(5):
        stage.log.records.append(
            an_event(
                f"{number:032x}",
                topic=stage.partition.topic,
                partition=stage.partition.partition,
                topic_id=stage.admin.partitions[stage.partition].topic_id,
                producer_id=owner.producer_id,
                producer_epoch=row.producer_epoch,
                transactional_id=None,
                txn_start_offset=row.txn_start_offset,
                detected_at_ms=0,
                open_since_ms=0,
                expected_outcome="abort",
                evidence=an_evidence(last_sequence=row.last_sequence),
            )
        )
    stage.hang_and_move_on()
    stage.batch()
    assert [marker.producer_id for marker in stage.admin.markers] != [owner.producer_id]
    assert len(stage.admin.markers) == 1, "and the real one is not stopped by them"
    for _ in range(3):
        stage.batch(after_ms=5_000)
    assert {one.producer_id for one in stage.ledger.open_incidents} <= {stage.emitted[0].producer_id}
    assert stage.is_open(owner.producer_id)
