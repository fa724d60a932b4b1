"""The requests of one target: what its answers mean, when the next one is due, and what is reported.

A target that wants no more events is kept as such in its journal, where `txnwatch doctor` finds it.

Law: a message has the name of the target, its host and the status; never a path, a header or a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from txnwatch.push.http_client import HttpClient, Reply
from txnwatch.push.journal import STOPPED, Journal
from txnwatch.push.push_file import HttpTarget
from txnwatch.push.target_answers import Retries, TargetAnswer, answer_of, wait_of
from txnwatch.state.model.errors import SinkError
from txnwatch.state.model.ports import Log
from txnwatch.state.model.values import NO_TIME, DurationMs, TimestampMs

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
