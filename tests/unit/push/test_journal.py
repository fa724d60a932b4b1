"""The position of a target: what it has taken stays known, with a bounded file, whatever ends the process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from support.incidents import a_life, an_event
from support.log_lines import LogLines
from txnwatch.push.sender import MOST_KEPT, Journal, TargetPosition
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import TimestampMs

NOW_MS = an_event().time_ms + 60_000


def position_in(path: Path, log: LogLines | None = None) -> TargetPosition:
    return TargetPosition(Journal(path, (log if log is not None else LogLines()).warning), NOW_MS)


def accepted(event: IncidentEvent, position: TargetPosition) -> bool:
    return position.has_taken(event)


def test_what_was_taken_is_known_after_a_restart(tmp_path: Path) -> None:
    opened, later, over = a_life("incident")
    position = position_in(tmp_path / "position")
    position.take(opened)
    position.take(later)
    again = position_in(tmp_path / "position")
    assert [accepted(event, again) for event in (opened, later, over)] == [True, True, False]


def test_what_was_made_before_the_first_start_is_below_the_floor(tmp_path: Path) -> None:
    position, over = position_in(tmp_path / "position"), a_life("incident")[-1]
    assert not position.is_above_floor(over.time_ms)
    assert position.is_above_floor(TimestampMs(NOW_MS + 1)), "it ended since"


def test_a_floor_is_only_raised_and_outlives_a_restart(tmp_path: Path) -> None:
    position, over = position_in(tmp_path / "position"), a_life("incident")[-1]
    for to_ms in (NOW_MS + 60_000, NOW_MS + 1_000):
        position.raise_floor(to_ms)
        position.keep_floor()
    again = position_in(tmp_path / "position")
    ends = [replace(over, time_ms=NOW_MS + after_ms) for after_ms in (60_000, 60_001)]
    assert [again.is_above_floor(end.time_ms) for end in ends] == [False, True]


def test_a_floor_that_rises_with_each_micro_batch_is_written_once_a_minute(tmp_path: Path) -> None:
    path = tmp_path / "position"
    position = position_in(path)
    for after_ms in range(0, 600_000, 1_000):
        position.raise_floor(TimestampMs(NOW_MS + after_ms))
        position.keep_floor()
    assert len(path.read_text().splitlines()) == 10


def test_what_happened_while_the_process_was_away_is_new(tmp_path: Path) -> None:
    position_in(tmp_path / "position")
    later = [replace(event, time_ms=NOW_MS + event.sequence) for event in a_life("incident")]
    again = position_in(tmp_path / "position")
    assert all(again.is_above_floor(event.time_ms) for event in later)


@pytest.mark.parametrize("cut", range(2, 40, 3))
def test_a_line_that_the_end_of_the_process_has_cut_costs_only_itself(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "position"
    first, second, third = (an_event(f"incident {number}") for number in range(3))
    position = position_in(path)
    position.take(first)
    position.take(second)
    path.write_bytes(path.read_bytes()[:-cut])
    again = position_in(path)
    assert accepted(first, again)
    assert not accepted(second, again), "it is sent again"
    again.take(third)
    once_more = position_in(path)
    assert accepted(first, once_more)
    assert accepted(third, once_more)


@pytest.mark.parametrize("text", ["", "\n\n", "{}\n", '["floor", "x"]\n', '["a", [1]]\n', "\x00\xff\n", "[" * 10_000])
def test_a_file_that_somebody_has_damaged_is_no_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "position").write_text(text)
    position = position_in(tmp_path / "position")
    position.take(an_event())
    assert accepted(an_event(), position_in(tmp_path / "position"))


def test_the_file_of_one_long_life_stays_short(tmp_path: Path) -> None:
    path = tmp_path / "position"
    position, opened = position_in(path), an_event()
    for sequence in range(1, 5_000):
        position.take(replace(opened, sequence=sequence))
    assert len(path.read_text().splitlines()) < 1_100
    assert accepted(replace(opened, sequence=4_999), position_in(path))


def test_an_incident_that_ended_long_ago_makes_place_and_is_still_not_new(tmp_path: Path) -> None:
    position = position_in(tmp_path / "position")
    opened, _, over = a_life("incident")
    still_open = replace(opened, incident_id="f" * 32)
    position.take(still_open)
    ended = [
        replace(over, incident_id=f"{number:032x}", time_ms=NOW_MS + 1_000 + number) for number in range(MOST_KEPT + 5)
    ]
    for event in ended:
        position.take(event)
    again = position_in(tmp_path / "position")
    assert len((tmp_path / "position").read_text().splitlines()) < 2 * MOST_KEPT + 2_000
    assert accepted(still_open, again)
    assert all(accepted(event, again) or not again.is_above_floor(event.time_ms) for event in ended)
    assert again.is_above_floor(TimestampMs(ended[-1].time_ms + 1))


def test_a_disk_that_is_full_is_reported_once_and_stops_nothing(tmp_path: Path) -> None:
    log = LogLines()
    position = position_in(tmp_path / "missing" / "position", log)
    for event in a_life("incident"):
        position.take(event)
        assert accepted(event, position)
    assert len(log) == 1
    assert "the position is not saved" in log[0]
