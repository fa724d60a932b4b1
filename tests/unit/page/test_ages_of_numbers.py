"""Each number is of now, or has its time; and what a list cuts is said to be the least."""

from __future__ import annotations

from typing import Any

import pytest

from support.page_world import PageWorld, a_busy_cluster
from txnwatch.page import details
from txnwatch.page.picture import picture_of
from txnwatch.state.model.values import Offset, TopicPartition
from txnwatch.state.model.verdicts import Verdict

PAYMENTS = TopicPartition("payments", 0)
END = 18_300_000


def waits(world: PageWorld) -> dict[str, Any]:
    hang = next(one for one in world.incidents if one.verdict is Verdict.HANGING)
    found = details.incident(world.knowledge(), hang.incident_id)
    assert found is not None
    answer: dict[str, Any] = found["waits"]
    return answer


def event_ms(world: PageWorld) -> int:
    return next(one.time_ms for one in world.incidents if one.verdict is Verdict.HANGING)


@pytest.fixture
def later() -> PageWorld:
    """Records were written since the last event of the hang."""
    world = a_busy_cluster()
    world.ends[PAYMENTS] = Offset(END)
    world.batch()
    return world


def test_a_group_that_stands_is_behind_the_end_of_now(later: PageWorld) -> None:
    found = {one["name"]: (one["behind"], one["behind_at_ms"]) for one in waits(later)["groups"]}
    assert found["fraud-scoring"] == (END - 18_210_442, None)
    assert waits(later)["hidden"] == END - 18_210_442, "of the same moment, in one tree"


def test_a_group_that_reads_on_has_the_time_of_its_number(later: PageWorld) -> None:
    found = {one["name"]: (one["behind"], one["behind_at_ms"]) for one in waits(later)["groups"]}
    assert found["audit-export"] == (158_554, event_ms(later))


def test_without_the_end_each_number_has_its_time(later: PageWorld) -> None:
    later.ends.clear()
    found = waits(later)
    assert (found["hidden"], found["hidden_at_ms"]) == (48_112, event_ms(later))
    assert {one["behind_at_ms"] for one in found["groups"]} == {event_ms(later)}
    row = next(row for row in picture_of(later.knowledge())["incidents"].values() if row["verdict"] == "hanging")
    assert (row["hidden"], row["hidden_at_ms"]) == (48_112, event_ms(later))


def test_a_partition_has_the_lag_that_kafka_reports_and_the_real_one(later: PageWorld) -> None:
    groups = {one["name"]: one for one in details.partition(later.knowledge(), PAYMENTS)["groups"]}
    fraud = groups["fraud-scoring"]
    assert (fraud["lag"], fraud["behind"], fraud["behind_at_ms"]) == (0, END - 18_210_442, None)
    assert (groups["audit-export"]["lag"], groups["audit-export"]["behind_at_ms"]) == (110_442, event_ms(later))


def test_hidden_records_of_a_transaction_are_the_least_if_an_end_is_not_known() -> None:
    world = a_busy_cluster()
    del world.ends[TopicPartition("orders", 14)]
    row = next(row for row in picture_of(world.knowledge())["incidents"].values() if row["verdict"] == "stuck_prepare")
    assert (row["hidden"], row["hidden_is_least"], row["hidden_at_ms"]) == (4_800, True, None)


def test_what_the_lists_may_lack_is_said(later: PageWorld) -> None:
    """Of 9,871 open transactions they have 9: on each partition may be more."""
    lane = picture_of(later.knowledge())["lanes"]["payments-0"]
    assert (lane["more"], lane["more_is_least"]) == (0, True)
    assert details.partition(later.knowledge(), PAYMENTS)["more_is_least"] is True
    later.young = 0
    later.batch()
    lane = picture_of(later.knowledge())["lanes"]["payments-0"]
    assert (lane["more"], lane["more_is_least"]) == (0, False)


def test_the_number_of_the_others_is_that_of_the_barrier(later: PageWorld) -> None:
    others = picture_of(later.knowledge())["others"]
    assert others["count"] == later.young
    assert others["listed"] == 0
    oldest = details.oldest(later.knowledge(), 2)
    assert (len(oldest["rows"]), oldest["more"]) == (2, later.young + 7)
