"""The files in which a target keeps its position, so that a restart loses nothing and repeats at most one delivery.

Law: a value is written after the delivery that it describes. One line is appended for each value, and the file is
replaced as a whole once it has more old lines than new ones. A line that the end of the process has cut is left out. If
the file cannot be written, deliveries go on, and a restart repeats them.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from txnwatch.push.http_client import Address
from txnwatch.push.push_file import AlertmanagerTarget, HttpTarget
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import TimestampMs
from txnwatch.state.text import read_json

MOST_KEPT: Final = 10_000
_AT_A_TIME: Final = 500
_PREFIX: Final = "txnwatch-push-"
_SPARE_LINES: Final = 1_000
_FLOOR: Final = "floor"
STOPPED: Final = "stopped"  # the time at which the target answered that it wants no more events


def journal_name(target: HttpTarget, address: Address) -> str:
    """The name of the file in which a server of a target has its position, beside the checkpoint."""
    if not isinstance(target, AlertmanagerTarget):
        return f"{_PREFIX}{target.name}.jsonl"
    # Two peers differ in their address, which is no name of a file.
    return f"{_PREFIX}{target.name}-{hashlib.sha256(address.shown.encode()).hexdigest()[:8]}.jsonl"


class Journal:
    """Values by key, in a file.

    Attributes:
        values: the values as they are now.
    """

    def __init__(self, path: Path, report: Callable[[str], None]) -> None:
        self._path = path
        self._report = report
        self._is_failing = self._is_cut = False
        self.values: dict[str, Any] = {}
        self._lines = 0
        self._load()

    def _load(self) -> None:
        try:
            text = self._path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return
        except OSError as exc:
            self._report(f"{self._path}: the position cannot be read, so open incidents are sent again: {exc}")
            return
        lines = text.splitlines()
        self._lines, self._is_cut = len(lines), not text.endswith("\n")
        for line in lines:
            try:
                key, value = read_json(line)
                self._set(str(key), value)
            except (ValueError, TypeError):
                continue  # cut by the end of the process

    def _set(self, key: str, value: Any) -> None:  # noqa: ANN401 - any value of JSON
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = value

    def keep(self, key: str, value: Any) -> None:  # noqa: ANN401 - any value of JSON
        """Sets a value; None removes it."""
        self._set(key, value)
        try:
            if self._lines > 2 * len(self.values) + _SPARE_LINES:
                self._replace()
            else:
                self._append(key, value)
        except OSError as exc:
            if not self._is_failing:
                self._report(f"{self._path}: the position is not saved, so a restart sends events again: {exc}")
            self._is_failing = self._is_cut = True
        else:
            self._is_failing = False

    def _append(self, key: str, value: Any) -> None:  # noqa: ANN401 - any value of JSON
        with self._path.open("a", encoding="utf-8") as file:
            file.write(("\n" if self._is_cut else "") + _line(key, value))
        self._is_cut = False
        self._lines += 1

    def _replace(self) -> None:
        temporary = self._path.with_suffix(".new")
        temporary.write_text("".join(_line(key, value) for key, value in self.values.items()), encoding="utf-8")
        os.replace(temporary, self._path)  # noqa: PTH105 - atomic, also over an existing file
        self._is_cut = False
        self._lines = len(self.values)


def _line(key: str, value: Any) -> str:  # noqa: ANN401 - any value of JSON
    return json.dumps([key, value], separators=(",", ":")) + "\n"


class _Accepted(NamedTuple):
    """The last event of an incident that a target has taken."""

    sequence: int
    is_open: bool
    time_ms: TimestampMs


class TargetPosition:
    """Which events a target has taken: the last sequence of each incident.

    At the first start the target is told about open incidents only: everything older is below the floor. So is an
    incident that ended, once there is no more place for it.
    """

    def __init__(self, journal: Journal, now_ms: TimestampMs) -> None:
        self._journal = journal
        if _FLOOR not in journal.values:
            journal.keep(_FLOOR, now_ms)

    def is_new(self, event: IncidentEvent, *, is_latest: bool) -> bool:
        """Whether the target has not taken the event. `is_latest` is whether the incident is open if the event says so.

        Of an unknown incident, an event from before the floor is new only if the incident is open now.
        """
        known = self._of(event.incident_id)
        if known is not None:
            return event.sequence > known.sequence
        return event.time_ms > self._floor_ms or (is_latest and event.is_open)

    @property
    def _floor_ms(self) -> TimestampMs:
        floor = self._journal.values.get(_FLOOR)
        return TimestampMs(floor) if isinstance(floor, int) else TimestampMs(0)

    def _of(self, incident_id: str) -> _Accepted | None:
        try:
            sequence, is_open, time_ms = self._journal.values[incident_id]
            return _Accepted(int(sequence), bool(is_open), TimestampMs(int(time_ms)))
        except (KeyError, ValueError, TypeError):
            return None

    def take(self, event: IncidentEvent) -> None:
        """Keeps that the target has taken the event."""
        self._journal.keep(event.incident_id, _Accepted(event.sequence, event.is_open, event.time_ms))
        if len(self._journal.values) > MOST_KEPT:
            self._make_place()

    def _make_place(self) -> None:
        known = ((key, self._of(key)) for key in list(self._journal.values))
        ended = sorted((one.time_ms, key) for key, one in known if one is not None and not one.is_open)[:_AT_A_TIME]
        for _, key in ended:
            self._journal.keep(key, None)
        if ended:
            self._journal.keep(_FLOOR, max(self._floor_ms, ended[-1][0]))
