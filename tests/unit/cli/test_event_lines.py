"""The line of an event has what an operator would act on, and stays a line."""

from __future__ import annotations

from typing import Any

import pytest

from support.incidents import a_life, an_event, an_update
from txnwatch.cli.output import event_line
from txnwatch.state.model.incident import (
    Action,
    AffectedGroup,
    Decision,
    GroupState,
    IncidentEvent,
    Refusal,
    WaitingGroup,
)

REFUSED = Action(decision=Decision.REFUSED, refusal=Refusal.OUTCOME_UNKNOWN, detail="why", by="one", at_ms=1)


def a_group(name: str, state: str = "stopped") -> AffectedGroup:
    return AffectedGroup(group_id=name, state=GroupState(state), committed_offset=99, hidden_lag=21)


def refused(**changes: Any) -> IncidentEvent:
    """Each later event repeats the decision."""
    opened = an_event()
    decided = an_update(opened, opened.time_ms + 1_000, action=REFUSED)
    return an_update(decided, opened.time_ms + 11_000, **changes)


def test_an_opened_hang() -> None:
    assert event_line(an_event()) == (
        "2023-11-14 22:13:21.234Z  OPENED    hanging/already_completed  orders-3@99  "
        "payments-\u00fc (producer id 4711, epoch 2)  21 records hidden  detected in 0.8s"
    )


def test_an_update_of_a_hang_without_a_decision_shows_how_long_it_is_open() -> None:
    opened = an_event()
    line = event_line(an_update(opened, opened.time_ms + 60_000, consumer_groups=(a_group("billing"),)))
    assert line.endswith("  stopped: billing  21 records hidden  open for at least 1m01s")


def test_a_group_that_stopped_is_named_beside_a_decision_from_before() -> None:
    line = event_line(refused(consumer_groups=(a_group("billing"), a_group("audit", "at_risk"))))
    assert line.endswith("  stopped: billing  21 records hidden  refused: outcome_unknown")


def test_more_hidden_records_are_shown_beside_an_earlier_decision() -> None:
    assert event_line(refused(hidden_records=2_100)).endswith("  2100 records hidden  refused: outcome_unknown")


@pytest.mark.parametrize(
    ("names", "expected"),
    [(("a", "b"), "stopped: a, b"), (("a", "b", "c", "d"), "stopped: a, b and 2 more (`txnwatch status` names all)")],
)
def test_a_line_names_two_groups_and_counts_the_others(names: tuple[str, ...], expected: str) -> None:
    assert f"  {expected}  " in event_line(refused(consumer_groups=tuple(map(a_group, names))))


def test_groups_that_wait_for_their_offsets_are_named() -> None:
    waiting = tuple(WaitingGroup(group_id=name, partitions=("orders-0",)) for name in ("a", "b", "c"))
    assert "  waiting for their offsets: a, b and 1 more (`txnwatch status` names all)  " in event_line(
        refused(waiting_groups=waiting)
    )


def test_a_command_that_no_longer_fits_has_a_reason() -> None:
    line = event_line(refused(transaction_state="Ongoing", suggested_command=None))
    assert "  held by its producer's next transaction (Ongoing)  " in line


def test_an_end_shows_how() -> None:
    assert event_line(a_life("one")[-1]).endswith("  aborted by the marker at 120, open for at least 3.2s")
