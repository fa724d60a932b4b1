"""What every target of a push has: its thread, its requests, what the answers mean, and the file with its position.

The thread outlives the query. The table of answers is that of the CloudEvents web hook specification. An answer of a
server that is not ready for us (a rotated secret, a deployment) is tried again for ever; only 410 says that nobody
wants the events any more.

The position is kept in a journal, so that a restart loses nothing and repeats at most one delivery. A target that wants
no more events is kept as such there, too, where `txnwatch doctor` finds it.

Law:
    * A message has the name of the target, its host and the status; never a path, a header or a secret.
    * A value is written after the delivery that it describes. One line is appended for each value, and the file is
      replaced as a whole once it has more old lines than new ones. A line that the end of the process has cut is left
      out. If the file cannot be written, deliveries go on, and a restart repeats them.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

from txnwatch.http_client import Address, HttpClient, Reply
from txnwatch.push.push_file import AlertmanagerTarget, HttpTarget
from txnwatch.sinks.delivery.outbox import DeliveryCounts, WorkerThread
from txnwatch.state.model.errors import SinkError
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.pauses import Attempts
from txnwatch.state.model.ports import Log
from txnwatch.state.model.values import NO_TIME, DurationMs, TimestampMs
from txnwatch.state.text import Said, read_json

_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = DurationMs(1_000), DurationMs(30_000)
LONGEST_WAIT_MS: Final = DurationMs(300_000)
TRIES_OF_A_REFUSED_EVENT: Final = 3
_SPREAD: Final = 0.2


class TargetAnswer(StrEnum):
    """What happens with the events of a delivery."""

    TAKEN = "taken"
    AGAIN = "again"
    REFUSED = "refused"
    GONE = "gone"


_REFUSALS: Final = frozenset({400, 413, 415, 422})
_GONE: Final = 410


def answer_of(status: int) -> TargetAnswer:
    """The meaning of an HTTP status. A redirect is not followed: its new place was not configured by the operator."""
    if 200 <= status < 300:
        return TargetAnswer.TAKEN
    if status == _GONE:
        return TargetAnswer.GONE
    return TargetAnswer.REFUSED if status in _REFUSALS else TargetAnswer.AGAIN


def wait_of(retry_after: str | None, now_ms: TimestampMs) -> DurationMs:
    """How long the header Retry-After asks to wait, in seconds or as a date; at most 5 minutes, 0 if it is invalid."""
    if retry_after is None:
        return NO_TIME
    text = retry_after.strip()
    if text.isascii() and text.isdecimal():
        return DurationMs(min(int(text[:9]) * 1000, LONGEST_WAIT_MS))
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return NO_TIME
    aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    from_now_ms = int((aware - datetime.fromtimestamp(now_ms / 1000, UTC)).total_seconds() * 1000)
    return DurationMs(max(0, min(from_now_ms, LONGEST_WAIT_MS)))


class Retries(Attempts):
    """The attempts of one target; the pauses of several watchers differ."""

    def __init__(self, spread: Callable[[float, float], float] = random.uniform) -> None:
        super().__init__(_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS)
        self._spread = spread

    def put_off(self, now_ms: TimestampMs, wait_ms: DurationMs = NO_TIME) -> None:
        """See Attempts; the pause is at least what the target has asked for."""
        spread_ms = DurationMs(int(self.next() * self._spread(1 - _SPREAD, 1 + _SPREAD)))
        self.due_ms = now_ms + max(spread_ms, wait_ms)


_AGENT: Final = ("User-Agent", "txnwatch")


class Sender:
    """Sends to one server; never raises.

    Attributes:
        name: the target's name in messages and metrics.
        failures: attempts that failed.
        refused: events that were set aside because the target has refused them.
        is_stopped: the target has answered 410, so nothing is sent until the next start.
        error: why the last attempt failed; None if it did not.
    """

    def __init__(
        self,
        name: str,
        target: HttpTarget,
        client: HttpClient,
        journal: Journal,
        now_ms: Callable[[], TimestampMs],
        log: Log,
    ) -> None:
        self.name = name
        self.failures = 0
        self.refused = 0
        self.is_stopped = False
        self.error: str | None = None
        self._target = target
        self._client = client
        self._journal = journal
        self._now_ms = now_ms
        self._log = log
        self._retries = Retries()
        if STOPPED in journal.values:
            journal.keep(STOPPED, None)  # each start asks the target again

    def wait_ms(self) -> DurationMs:
        """How long the next request has to wait."""
        return DurationMs(max(0, self._retries.due_ms - self._now_ms()))

    def ask(self, method: str, headers: Sequence[tuple[str, str]], body: bytes = b"") -> Reply | None:
        """Sends one request; None without an answer, which is a failure."""
        try:
            return self._client.request(method, [_AGENT, *self._target.fixed_headers(), *headers], body)
        except SinkError as exc:
            self.fail(str(exc))
            return None

    def post(self, headers: Sequence[tuple[str, str]], body: bytes) -> TargetAnswer:
        """Sends one delivery, and returns what its answer means."""
        reply = self.ask("POST", headers, body)
        if reply is None:
            return TargetAnswer.AGAIN
        answer = answer_of(reply.status)
        where = self._client.address.shown
        match answer:
            case TargetAnswer.TAKEN:
                self.succeed()
            case TargetAnswer.GONE:
                self.is_stopped = True
                self._journal.keep(STOPPED, self._now_ms())
                self.error = f"{where} answers 410: nothing is sent to it until the next start"
                self._log.warning(f"{self.name}: {self.error}")
            case _:
                wait_ms = wait_of(reply.headers.get("retry-after"), self._now_ms())
                self.fail(f"{where} answers {_described(reply)}", wait_ms)
        return answer

    def fail(self, why: str, wait_ms: DurationMs = NO_TIME) -> None:
        """Counts a failure, and reports the first one in a row."""
        self.failures += 1
        self.error = why
        if not self._retries.times:
            self._log.warning(f"{self.name}: {why}; its events are kept and sent later")
        self._retries.put_off(self._now_ms(), wait_ms)

    def succeed(self) -> None:
        """Takes a success, and reports the first one after failures."""
        self.error = None
        if self._retries.end():
            self._log.info(f"{self.name} takes events again")

    def set_aside(self, what: str) -> None:
        """Counts an event that the target refuses, and goes on with the next one."""
        self.refused += 1
        self._log.warning(f"{self.name}: {what} is refused again and again, and is not sent any more")
        self._retries.end()


def _described(reply: Reply) -> str:
    if 300 <= reply.status < 400:
        return f"{reply.status}; a redirect is not followed"
    return f"{reply.status}: {reply.text}" if reply.text else str(reply.status)


class Undelivered(NamedTuple):
    """The number of events that a target has not taken, and the time of the oldest one; None for none."""

    events: int
    oldest_ms: TimestampMs | None


class TargetThread:
    """The part of a MirrorQueue that does not depend on the kind of the target. A target has no view of incidents.

    While another instance speaks, nothing is sent, and nothing counts as undelivered: that instance delivers it. What
    is queued here waits for `take_over`, which wakes the thread.

    `work` is that of WorkerThread, and `undelivered` returns what the target has not taken.

    Attributes:
        may_send: whether this instance speaks.
    """

    def __init__(
        self, sender: Sender, work: Callable[[], float], undelivered: Callable[[], Undelivered], log: Log
    ) -> None:
        self._sender = sender
        self._undelivered = undelivered
        self._lock = threading.Lock()
        self.may_send: Callable[[], bool] = lambda: True
        self._delivered = 0
        self._thread = WorkerThread(sender.name, work, log)

    @property
    def name(self) -> str:
        """See MirrorQueue."""
        return self._sender.name

    @property
    def failures(self) -> int:
        """See MirrorQueue."""
        return self._sender.failures

    @property
    def _goes_on(self) -> bool:
        """Whether the next request may be sent."""
        return self.may_send() and not self._thread.is_stopping and not self._sender.is_stopped

    @property
    def waiting(self) -> int:
        """See MirrorQueue."""
        return self._undelivered().events if self.may_send() else 0

    @property
    def tally(self) -> DeliveryCounts:
        """See MirrorQueue."""
        sender, speaks = self._sender, self.may_send()
        oldest_ms = self._undelivered().oldest_ms if speaks else None
        error = sender.error if speaks or sender.is_stopped else None
        return DeliveryCounts(self._delivered, sender.refused, oldest_ms, sender.is_stopped, error)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Ends the thread; after the timeout, a request that is under way is left behind. No alert is ended."""
        self._thread.stop(timeout_s)

    def deliver(self, _: TimestampMs) -> None:
        """The thread has been woken by `put`."""

    def deliver_last(self, _: TimestampMs) -> None:
        """The thread outlives the query, and the position outlives the process."""

    def has_lost_everything(self) -> bool:
        """A target that was restarted gets the next events or renewals."""
        return False

    def forget(self, has_ended: Callable[[str], bool], now_ms: TimestampMs) -> None:
        """A web hook keeps no incidents, and an alert that nobody renews ends by itself."""


# The journal, and what it says about events.

MOST_KEPT: Final = 10_000
_AT_A_TIME: Final = 500
_PREFIX: Final = "txnwatch-push-"
_SPARE_LINES: Final = 1_000
_FLOOR: Final = "floor"
_FLOOR_STEP_MS: Final = DurationMs(60_000)
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
        self._said = Said[str]()
        self._is_cut = False
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
            if self._said.is_new("not saved"):
                self._report(f"{self._path}: the position is not saved, so a restart sends events again: {exc}")
            self._is_cut = True
        else:
            self._said.is_over("not saved")

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
    """Which events a target has taken: the last sequence of each incident, and a floor.

    What is not after the floor is no news of an incident that is over, although the target may not have taken it from
    this instance: it is from before the first start, another instance has told it, or there was no more place for it.
    """

    def __init__(self, journal: Journal, now_ms: TimestampMs) -> None:
        self._journal = journal
        floor = journal.values.get(_FLOOR, now_ms)
        self._floor_ms = TimestampMs(floor) if isinstance(floor, int) else TimestampMs(0)
        self.keep_floor()

    def has_taken(self, event: IncidentEvent) -> bool:
        """Whether the target has taken the event, or a later one of its incident."""
        told = self._of(event.incident_id)
        return told is not None and told.sequence >= event.sequence

    def is_above_floor(self, made_ms: TimestampMs) -> bool:
        """Whether an event of the topic was made after the floor."""
        return made_ms > self._floor_ms

    def is_known(self, event: IncidentEvent) -> bool:
        """Whether the target has taken an event of the incident."""
        return self._of(event.incident_id) is not None

    def raise_floor(self, to_ms: TimestampMs) -> None:
        """Takes that what was made until then is told; `keep_floor` writes it."""
        self._floor_ms = max(self._floor_ms, to_ms)

    def keep_floor(self) -> None:
        """Writes the floor if it is a minute above the one in the file: it may rise with each micro-batch."""
        written = self._journal.values.get(_FLOOR)
        if not isinstance(written, int) or self._floor_ms - written >= _FLOOR_STEP_MS:
            self._journal.keep(_FLOOR, self._floor_ms)

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
        told = ((key, self._of(key)) for key in list(self._journal.values))
        ended = sorted((last.time_ms, key) for key, last in told if last is not None and not last.is_open)[:_AT_A_TIME]
        for _, key in ended:
            self._journal.keep(key, None)
        if ended:
            self.raise_floor(ended[-1][0])
            self._journal.keep(_FLOOR, self._floor_ms)
