"""Whatever another client puts on the events topic: a hang is reported, and a due abort comes.

The ledger and the abort are the real ones; the topic is in memory, and anybody may write to it.
"""

from __future__ import annotations

import pytest

from support.forged_events import (
    EVIL,
    FORGERIES,
    Forgery,
    Topic,
    a_command,
    an_announcement,
)
from support.ledger_world import LedgerWorld


@pytest.mark.parametrize("forge", FORGERIES)
@pytest.mark.parametrize("restarted", [False, True])
def test_whatever_is_forged_the_hang_is_reported_one_round_later(forge: Forgery, restarted: bool) -> None:  # noqa: FBT001
    stage = Topic(mode="off")
    candidate = stage.hang()
    stage.emitted.append(candidate)
    stage.batch(candidate)
    for _ in range(3):  # again and again
        stage.log.records.append(forge(stage.last()))
        if restarted:
            stage.restart()
        stage.batch()
        stage.batch()
        published = stage.log.records[0]
        (known,) = [one for one in stage.ledger.open_incidents if one.span == published.span]
        assert (known.verdict, known.suggested_command) == ("hanging", published.suggested_command)
        assert EVIL not in {one.suggested_command for one in stage.shown()}
        assert known.incident_id in {one.incident_id for one in stage.shown()}
    ours = [event for event in stage.log.records if event.suggested_command == EVIL]
    assert len(ours) == (3 if forge is a_command else 0), "only the forger's events have it"
    for _ in range(5):  # incidents of places that do not exist end as well
        stage.batch(after_ms=61_000)
    assert [one.span for one in stage.ledger.open_incidents] == [stage.log.records[0].span]
    stage.batch(LedgerWorld.abort(stage, candidate))
    stage.batch()
    assert stage.ledger.open_incidents == stage.shown() == []
    assert stage.last().status == "resolved"


@pytest.mark.parametrize("forge", FORGERIES)
def test_whatever_is_forged_a_due_abort_comes_and_is_reported_correctly(forge: Forgery) -> None:
    stage = Topic()
    producer_id = stage.hang_and_move_on()
    stage.log.records.append(forge(stage.last()))
    stage.batch()
    stage.batch(after_ms=70_000)
    assert not stage.is_open(producer_id)
    assert len(stage.admin.markers) == 1
    published = [event for event in stage.log.records if event.action is not None and event.action.by == "here"]
    assert published[-1].action is not None
    assert published[-1].action.result == "verified"


def test_a_forged_announcement_gets_the_result_that_the_log_shows() -> None:
    stage = Topic(mode="off")
    candidate = stage.hang()
    stage.batch(candidate)
    stage.log.records.append(an_announcement(stage.last()))
    stage.batch()
    stage.batch()
    published = stage.last().action
    assert published is not None
    assert published.result == "still_open"
    assert "this result is from the log: the transaction is open" in published.detail
    assert not stage.abort.counts, "no abort of ours"
