"""What the events topic tells about a week: each incident once, with a bound."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import Any

import pytest

from support.incidents import a_life, an_event, id_of
from txnwatch.owners.owner_table import owners_of
from txnwatch.state.incidents.past_incidents import PLACES, IncidentHistory
from txnwatch.state.incidents.past_summary import (
    BEFORE,
    Facet,
    PastSummary,
    PastWindow,
    as_csv,
    as_markdown,
    headline_of,
    how_ended,
    remarks,
    summary_of,
)
from txnwatch.state.model.errors import BadEventError, SkipReason
from txnwatch.state.model.incident import (
    SPENT_SEQUENCE,
    Action,
    Decision,
    IncidentEvent,
    Initiator,
    Overwritten,
    repeat_incident_id,
)
from txnwatch.state.model.ownership import NO_OWNERS
from txnwatch.state.model.values import DAY_MS, WEEK_MS, TimestampMs

NOW_MS = TimestampMs(1_764_000_000_000)
WINDOW = PastWindow(TimestampMs(NOW_MS - WEEK_MS), NOW_MS)
WHOLE: dict[str, Any] = {"topic": None, "partition": None, "topic_id": None, "txn_start_offset": None, "reason": None}
HOUR_MS = 3_600_000


def at(name: str, ago_ms: int, **changes: Any) -> IncidentEvent:
    """The event that opens an incident some time ago, one second after its transaction was opened."""
    return an_event(name, time_ms=NOW_MS - ago_ms, age_ms=1_000, **changes)


def life(name: str, ago_ms: int) -> list[IncidentEvent]:
    """An incident that was opened some time ago, and ended 2 s later."""
    return [replace(one, time_ms=one.time_ms + NOW_MS - ago_ms - a_life(name)[0].time_ms) for one in a_life(name)]


def read(*records: Any, most: int = 100, cluster_id: str | None = None, owners: Any = NO_OWNERS) -> PastSummary:
    history = IncidentHistory(owners, most)
    for one in records:
        history.take(one)
    return summary_of(history, WINDOW, cluster_id)


def test_an_incident_with_several_events_counts_once_and_ends_once() -> None:
    (all_of,) = read(*life("a", HOUR_MS)).groups(Facet.VERDICT)
    assert (all_of.incidents, all_of.still_open, all_of.ends) == (1, 0, (("aborted", 1),))
    assert all_of.total_ms == all_of.longest_ms == 3_234


def test_one_that_was_opened_before_and_one_that_is_still_open_say_so() -> None:
    before = life("before", WEEK_MS + HOUR_MS)
    ended = replace(before[-1], time_ms=NOW_MS - HOUR_MS, age_ms=WEEK_MS)
    found = read(*before[:2], ended, at("open", 2 * DAY_MS), *life("long ago", WEEK_MS + HOUR_MS))
    assert [one.incident_id for one in found.incidents] == [id_of("open"), id_of("before")]
    assert (found.still_open, found.opened_before) == (1, 1)
    assert [(one.name, one.incidents, one.opened_before) for one in found.groups(Facet.DAY)] == [
        (BEFORE, 1, 1),
        ("2025-11-22", 1, 0),
    ]
    assert headline_of(found) == (
        "2 incidents since 2025-11-17 16:00:00 UTC, 1 opened before, 1 still open. "
        "The longest was open for at least 7 d 0 h."
    )


def test_an_end_at_the_edge_of_the_window_is_inside() -> None:
    *_, ended = life("edge", WEEK_MS + HOUR_MS)
    assert len(read(replace(ended, time_ms=WINDOW.from_ms)).incidents) == 1
    assert len(read(replace(ended, time_ms=WINDOW.from_ms - 1)).incidents) == 0


def test_a_transaction_on_several_partitions_counts_on_each() -> None:
    places = tuple(f"orders-{number}" for number in range(PLACES + 3))
    found = read(at("stuck", HOUR_MS, verdict="stuck_prepare", pending_partitions=places, **WHOLE), at("h", HOUR_MS))
    groups = {one.name: one.incidents for one in found.groups(Facet.PARTITION)}
    assert (groups["orders-3"], groups["orders-0"], len(groups)) == (2, 1, PLACES)
    assert found.incidents[0].subject.more_places + found.incidents[1].subject.more_places == 3


def test_the_owner_is_that_of_the_readers_table_and_not_of_the_event() -> None:
    table = owners_of({"owner": [{"team": "ledger", "topics": ["orders"]}]}, "the test")
    claimed = at("a", HOUR_MS, owner={"team": "evil", "name": "Evil", "found_by": "topic"})
    assert [one.name for one in read(claimed, owners=table).groups(Facet.OWNER)] == ["ledger"]
    assert [one.name for one in read(claimed).groups(Facet.OWNER)] == ["none"]


def test_what_is_no_event_is_counted_and_tells_nothing() -> None:
    bad = BadEventError(SkipReason.INVALID, "x", id_of("a"))
    found = read(bad, bad, Overwritten(id_of("a")), *life("a", HOUR_MS))
    assert (found.skipped, len(found.incidents)) == ({SkipReason.INVALID: 2}, 1)
    assert list(remarks(found)) == ["2 records were no valid event (invalid)."]


def test_the_future_and_another_cluster_are_left_out_and_counted() -> None:
    found = read(at("a", -HOUR_MS), at("b", HOUR_MS, cluster_id="other"), *life("c", HOUR_MS), cluster_id="cluster")
    assert (found.ahead, found.elsewhere, len(found.incidents)) == (1, 1, 1)


def test_an_abort_by_hand_is_no_second_incident_of_the_same_hang() -> None:
    watched = at("x", HOUR_MS)
    action = Action(decision=Decision.ABORT, by="me@host", at_ms=NOW_MS, initiator=Initiator.OPERATOR)
    hand = replace(watched, incident_id=repeat_incident_id(watched.first_id or "", NOW_MS), action=action)
    assert hand.is_by_hand
    found = read(watched, hand)
    assert (len(found.incidents), found.by_hand) == (1, 1)


@pytest.mark.parametrize("is_reversed", [False, True])
def test_the_highest_sequence_counts_also_if_another_clock_is_behind(*, is_reversed: bool) -> None:
    opened, *_, ended = life("a", HOUR_MS)
    ended = replace(ended, time_ms=TimestampMs(opened.time_ms - 10))
    assert read(*(reversed if is_reversed else list)([opened, ended])).still_open == 0


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_spent_event_counts_only_as_the_end_of_a_known_incident(*, is_reversed: bool) -> None:
    opened, *_, ended = life("a", HOUR_MS)
    spent_open, spent_end = (replace(one, sequence=SPENT_SEQUENCE) for one in (opened, ended))
    order = reversed if is_reversed else list
    assert read(spent_open).incidents == read(spent_end).incidents == []
    assert read(*order([opened, spent_open])).still_open == 1
    assert [how_ended(one) for one in read(*order([opened, spent_end])).incidents] == ["aborted by administrator"]


def test_beyond_the_bound_those_that_ended_first_are_left_out_and_it_says_so() -> None:
    history = IncidentHistory(NO_OWNERS, most=20)
    for number in range(25):
        for one in life(str(number), (30 - number) * HOUR_MS):
            history.take(one)
    found = summary_of(history, WINDOW)
    assert len(found.incidents) <= 20
    assert found.incidents[0].incident_id == id_of("24")
    assert not found.is_complete
    gone = life("0", 30 * HOUR_MS)
    for one in gone:
        history.take(one)
    assert id_of("0") not in {one.incident_id for one in history.incidents if one.kind.how is not None}
    assert "There are too many" in "".join(remarks(found))


def test_forgetting_leaves_the_open_ones() -> None:
    history = IncidentHistory(NO_OWNERS)
    for one in (*life("a", 9 * DAY_MS), at("open", 9 * DAY_MS), *life("b", HOUR_MS)):
        history.take(one)
    history.forget(TimestampMs(NOW_MS - 8 * DAY_MS))
    assert {one.incident_id for one in history.incidents} == {id_of("open"), id_of("b")}
    assert summary_of(history, WINDOW).is_complete


def test_long_names_are_cut_and_still_differ() -> None:
    names = ["n" * 5_000 + end for end in ("a", "b")]
    found = read(*(at(name[-1], HOUR_MS, transactional_id=name) for name in names))
    assert len({one.subject.name for one in found.incidents}) == 2
    assert max(len(one.subject.name or "") for one in found.incidents) <= 200


HOSTILE = (
    "=1+2",
    "+cmd",
    "-1",
    "@team",
    "\ttab",
    "a|b",
    "``x`",
    "`",
    "[a](http://e)",
    "<img src=x>",
    "a\nb\u202e",
    " ",
)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_stays_a_cell_without_a_formula(name: str) -> None:
    found = read(at("a", HOUR_MS, transactional_id=name))
    for text in (as_csv(found), as_csv(found, Facet.TRANSACTIONAL_ID)):
        rows = list(csv.reader(io.StringIO(text)))
        assert len(rows) == 2
        assert len(rows[0]) == len(rows[1])
        assert [cell for cell in rows[1] if cell.startswith(("=", "+", "-", "@", "\t", "\r"))] == []


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_stays_within_its_code_span_and_column(name: str) -> None:
    text = as_markdown(read(at("a", HOUR_MS, transactional_id=name)), "cluster", list(Facet))
    for line in text.splitlines():
        bars = line.count("|")
        assert bars in {0, 9}, line
        assert line.isprintable()
        outside = "".join(part for at, part in enumerate(spans(line)) if at % 2 == 0)
        assert not set(outside) & set("<[@"), line


def spans(line: str) -> list[str]:
    """The parts of a line outside and inside of its code spans, as CommonMark takes it apart."""
    parts, at = [""], 0
    while at < len(line):
        if line[at] != "`":
            parts[-1] += line[at]
            at += 1
            continue
        fence = len(line) - at - len(line[at:].lstrip("`"))
        end = at + fence
        while (end := line.find("`" * fence, end)) >= 0:
            run = len(line) - end - len(line[end:].lstrip("`"))
            if run == fence:
                break
            end += run
        assert end >= 0, line
        parts += [line[at + fence : end], ""]
        at = end + fence
    return parts


def test_without_incidents_it_says_so() -> None:
    found = read()
    assert headline_of(found) == "No incident since 2025-11-17 16:00:00 UTC."
    assert as_csv(found).count("\n") == 1
