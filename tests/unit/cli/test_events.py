"""Which events `txnwatch events` prints: of a time, the last ones, those of one incident."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from support.incidents import a_life, an_event, id_of
from txnwatch.cli import events
from txnwatch.cli.events import WantedEvents, point_in_time
from txnwatch.cli.main import main
from txnwatch.state.model.errors import BadEventError, SkipReason
from txnwatch.state.model.incident import IncidentEvent

NOW_MS = 1_700_000_000_000
AT = datetime(2026, 11, 26, 17, 0, tzinfo=UTC)
TIMES: dict[str, int] = {
    "30s": NOW_MS - 30_000,
    "15m": NOW_MS - 900_000,
    "2h": NOW_MS - 7_200_000,
    "7d": NOW_MS - 604_800_000,
    "2026-11-26T17:00:00Z": int(AT.timestamp() * 1000),
    "2026-11-26 17:00": int(AT.timestamp() * 1000),
    "2026-11-26T17:00:00.250Z": int(AT.timestamp() * 1000) + 250,
    "2026-11-26T17:00:00+02:00": int(AT.replace(tzinfo=timezone(timedelta(hours=2))).timestamp() * 1000),
    "2026-11-26": int(datetime(2026, 11, 26, tzinfo=UTC).timestamp() * 1000),
}


@pytest.mark.parametrize(("text", "time_ms"), TIMES.items())
def test_a_point_in_time_is_an_age_or_a_time_in_utc(text: str, time_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "wall_clock_ms", lambda: NOW_MS)
    assert point_in_time(text) == time_ms


@pytest.mark.parametrize("text", ["", "soon", "5", "5w", "-5m", "2026-13-01", "9999999999d", "1764176400000"])
def test_another_text_is_no_point_in_time(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected how long ago"):
        point_in_time(text)


@pytest.mark.parametrize("text", ["", "x", "A" * 32, "0" * 31])
def test_an_incident_is_named_by_its_id(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["events", "-b", "127.0.0.1:1", "--incident", text])
    assert ended.value.code == 2
    assert "expected the id of an incident" in capsys.readouterr().err


BAD = BadEventError(SkipReason.WRONG_KEY, "a record")
OLD, *REST = [replace(an_event(str(at)), time_ms=at) for at in (1_000, 2_000, 3_000, 4_000)]
TOPIC = [OLD, BAD, *REST]
ALL = WantedEvents(None, None, None)
WANTED: dict[str, tuple[WantedEvents, list[Any]]] = {
    "all": (ALL, TOPIC),
    "since": (replace(ALL, since_ms=3_000), [BAD, *REST[1:]]),
    "last": (replace(ALL, last=2), [BAD, *REST[1:]]),
    "more than there are": (replace(ALL, last=9), [BAD, OLD, *REST]),
    "the last one since": (replace(ALL, since_ms=2_000, last=1), [BAD, REST[-1]]),
    "none since": (replace(ALL, since_ms=9_000, last=1), [BAD]),
    "of an incident": (replace(ALL, incident_id=id_of("2000")), [BAD, REST[0]]),
    "the last of an incident": (replace(ALL, incident_id=id_of("1000"), last=1), [BAD, OLD]),
}


@pytest.mark.parametrize(("wanted", "expected"), WANTED.values(), ids=WANTED.keys())
def test_the_wanted_events_of_the_topic(wanted: WantedEvents, expected: list[Any]) -> None:
    assert list(wanted.of_history(TOPIC)) == expected


def test_events_that_come_later_are_selected_too_and_do_not_count_as_the_last(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened, *later = a_life("mine")
    given: list[bool] = []

    def reading(_: argparse.Namespace, of_history: Any, *, follow: bool) -> Iterator[IncidentEvent]:
        given.append(follow)
        history: Iterable[IncidentEvent] = [an_event("other"), opened]
        yield from of_history(history)
        yield from [an_event("another"), *later]

    monkeypatch.setattr(events, "read_events_topic", reading)
    flags = ("--incident", id_of("mine"), "--last", "1", "--follow")
    assert main(["events", "-b", "127.0.0.1:1", *flags, "-o", "json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert given == [True]
    assert len(lines) == 1 + len(later)
    assert all(id_of("mine") in line for line in lines)
