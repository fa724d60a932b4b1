"""What every target of a push has: a thread that outlives the query, its requests, and what the answers to them mean.

The table of answers is that of the CloudEvents web hook specification. An answer of a server that is not ready for us
(a rotated secret, a deployment) is tried again for ever; only 410 says that nobody wants the events any more.

A target that wants no more events is kept as such in its journal, where `txnwatch doctor` finds it.

Law: a message has the name of the target, its host and the status; never a path, a header or a secret.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Final

from txnwatch.push.http_client import HttpClient, Reply
from txnwatch.push.journal import STOPPED, Journal
from txnwatch.push.push_file import HttpTarget
from txnwatch.sinks.delivery.outbox import WorkerThread
from txnwatch.state.model.errors import SinkError
from txnwatch.state.model.ports import Log
from txnwatch.state.model.values import AT_ONCE, NO_TIME, DurationMs, TimestampMs, doubled

FIRST_PAUSE_MS, LONGEST_PAUSE_MS = DurationMs(1_000), DurationMs(30_000)
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


class Retries:
    """The failures in a row of one target, and when the next attempt is due.

    Attributes:
        in_a_row: failures since the last success.
        due_ms: no attempt before this time.
    """

    def __init__(self, spread: Callable[[float, float], float] = random.uniform) -> None:
        self.in_a_row = 0
        self.due_ms: TimestampMs = AT_ONCE
        self._spread = spread

    def failed(self, now_ms: TimestampMs, wait_ms: DurationMs = NO_TIME) -> None:
        """Takes a failure; the pause is at least what the target has asked for."""
        pause_ms = doubled(FIRST_PAUSE_MS, LONGEST_PAUSE_MS, self.in_a_row)
        spread_ms = DurationMs(int(pause_ms * self._spread(1 - _SPREAD, 1 + _SPREAD)))
        self.due_ms = now_ms + max(spread_ms, wait_ms)
        self.in_a_row += 1

    def succeeded(self) -> bool:
        """Takes a success; returns whether it ended a row of failures."""
        was_failing, self.in_a_row = self.in_a_row > 0, 0
        self.due_ms = AT_ONCE
        return was_failing


_AGENT: Final = ("User-Agent", "txnwatch")


class Sender:
    """Sends to one server; never raises.

    Attributes:
        name: the target's name in messages and metrics.
        failures: attempts that failed.
        refused: events that were set aside because the target has refused them.
        is_stopped: the target has answered 410, so nothing is sent until the next start.
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
                self._log.warning(f"{self.name}: {where} answers 410: nothing is sent to it until the next start")
            case _:
                wait_ms = wait_of(reply.headers.get("retry-after"), self._now_ms())
                self.fail(f"{where} answers {_described(reply)}", wait_ms)
        return answer

    def fail(self, why: str, wait_ms: DurationMs = NO_TIME) -> None:
        """Counts a failure, and reports the first one in a row."""
        self.failures += 1
        if not self._retries.in_a_row:
            self._log.warning(f"{self.name}: {why}; its events are kept and sent later")
        self._retries.failed(self._now_ms(), wait_ms)

    def succeed(self) -> None:
        """Takes a success, and reports the first one after failures."""
        if self._retries.succeeded():
            self._log.info(f"{self.name} takes events again")

    def set_aside(self, what: str) -> None:
        """Counts an event that the target refuses, and goes on with the next one."""
        self.refused += 1
        self._log.warning(f"{self.name}: {what} is refused again and again, and is not sent any more")
        self._retries.succeeded()


def _described(reply: Reply) -> str:
    if 300 <= reply.status < 400:
        return f"{reply.status}; a redirect is not followed"
    return f"{reply.status}: {reply.text}" if reply.text else str(reply.status)


class TargetThread:
    """The part of a MirrorQueue that does not depend on the kind of the target. A target has no view of incidents.

    `work` is that of WorkerThread.
    """

    def __init__(self, sender: Sender, work: Callable[[], float], log: Log) -> None:
        self._sender = sender
        self._lock = threading.Lock()
        self._thread = WorkerThread(sender.name, work, log)

    @property
    def name(self) -> str:
        """See MirrorQueue."""
        return self._sender.name

    @property
    def failures(self) -> int:
        """See MirrorQueue."""
        return self._sender.failures

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
