"""Asks the watchers of one cluster for their facts, and fills the store of the cluster.

If the cluster has several watchers, each of them sees the whole. The page shows one, and stays with it as long as it
answers and has evaluated lately. Else it shows the one that has evaluated last. The others are named beside it, with
what is wrong with them.

Apart: cli/page.py makes the sources from flags and files, and this asks the watchers of one of them.

Law:
    * No answer is unknown. What a watcher has told before stays below the sentence, and gets old.
    * An answer about another cluster, of another format, or with one value that is not valid, is used nowhere.
    * Two watchers of one entry with other settings of topics see other partitions. Neither is believed alone.
    * An answer is as old as the moment in which it was asked for. Ages are by the clock of the watcher and the
      monotonic clock of this process, so two wall clocks that differ change nothing.
    * Each watcher has a thread of its own, so one that does not answer delays no other one.
    * No error and no log line has a secret.
"""

from __future__ import annotations

import base64
import functools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

from txnwatch.http_client import HttpClient
from txnwatch.page.store import KnownNow, PageStore, WatcherRow
from txnwatch.page.truth import JUDGED_WITHIN_MS
from txnwatch.page.watcher_facts import MOST_BYTES, WatcherFacts, decoded
from txnwatch.sinks.delivery.outbox import WorkerThread
from txnwatch.state.model.errors import ConfigError, SinkError, TxnwatchError
from txnwatch.state.model.ports import Log
from txnwatch.state.model.values import DurationMs, TimestampMs
from txnwatch.state.telling.commands import Origin
from txnwatch.state.text import Said, printable, redacted

_LOOKED_AT_S: Final = 1.0
_PAUSE_S: Final = 5.0
_TIMES_SLOWER: Final = 4  # a watcher that needs long for an answer is asked less often
_AT_ONCE_S: Final = 0.0
_NOT_ASKED: Final = "it has not answered yet"
# What the status of another answer means.
_STATUS: Final = {
    401: "it refuses the login",
    403: "it refuses the request",
    404: "it has no facts for this page: another version, or no watcher",
    421: "it does not know its host by this name: `http_names` of the watcher names it",
    503: "it is not connected to its cluster yet",
}


@dataclass(frozen=True, slots=True)
class WatcherLogin:
    """A user, and the file with the password, which is read for each request."""

    user: str
    password_file: Path

    def check(self) -> None:
        """Reads the password once.

        Raises:
            ConfigError: it cannot be read.
        """
        try:
            self.header()
        except SinkError as exc:
            raise ConfigError(str(exc)) from exc

    def header(self) -> tuple[str, str]:
        """The header of a request.

        Raises:
            SinkError: the password cannot be read.
        """
        try:
            password = self.password_file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as exc:
            raise SinkError(f"password_file {self.password_file} cannot be read: {type(exc).__name__}") from exc
        return "Authorization", f"Basic {base64.b64encode(f'{self.user}:{password}'.encode()).decode()}"


@dataclass(frozen=True, slots=True)
class WatcherPlace:
    """One watcher.

    Attributes:
        url: its address, as the operator has written it.
        client: asks for its facts.
    """

    url: str
    client: HttpClient
    login: WatcherLogin | None = None

    def ask(self) -> WatcherFacts:
        """Its facts.

        Raises:
            SinkError: there is no answer, or one without facts.
            BadFactsError: the facts cannot be believed.
        """
        headers = [self.login.header()] if self.login is not None else []
        try:
            status, body = self.client.read(headers, MOST_BYTES)
        except SinkError as exc:  # the address is beside the reason anyway
            raise SinkError(str(exc).removeprefix(f"{self.client.address.shown}: ")) from exc
        if body is not None:
            return decoded(body)
        if status == 401 and self.login is None:
            raise SinkError("it asks for a login: give user and password_file")
        raise SinkError(_STATUS.get(status, f"it answers with the status {status}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSource:
    """Where the knowledge about one cluster is.

    Attributes:
        name: how the page calls the cluster; a watcher that has a name for it must have the same.
        cluster_id: the id that its watchers must have; None for any.
        origin_of: the cluster, its owners, and what its commands share, by its id.
    """

    name: str
    watchers: Sequence[WatcherPlace]
    origin_of: Callable[[str], Origin]
    cluster_id: str | None = None


class _Answer(NamedTuple):
    """The last answer of one watcher; times are monotonic, in seconds."""

    facts: WatcherFacts | None = None
    problem: str | None = _NOT_ASKED
    asked_s: float = 0.0
    took_s: float = 0.0


@dataclass(slots=True)
class ClusterAsker:
    """Asks the watchers of one cluster until it is stopped.

    Attributes:
        is_looked_at: whether somebody looks at the page; else a watcher is asked less often.
    """

    source: ClusterSource
    store: PageStore
    wall_ms: Callable[[], TimestampMs]
    log: Log
    is_looked_at: Callable[[], bool] = lambda: False
    clock_s: Callable[[], float] = time.monotonic
    _answers: list[_Answer] = field(default_factory=list)
    _topics: dict[int, str] = field(default_factory=dict)
    _shown: int | None = None
    _clock: tuple[TimestampMs, float] | None = None
    _said: Said[int] = field(default_factory=Said)
    _alone: threading.Lock = field(default_factory=threading.Lock)
    _threads: list[WorkerThread] = field(default_factory=list)

    def __post_init__(self) -> None:
        for number, place in enumerate(self.source.watchers):
            self._answers.append(_Answer())
            name = f"{self.source.name} at {place.url}"
            self._threads.append(WorkerThread(name, functools.partial(self.ask, number), self.log))
        self._show()

    def start(self) -> None:
        """Starts the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends the threads; one that waits for a watcher is left behind."""
        for thread in self._threads:
            thread.stop(_AT_ONCE_S)

    def now_ms(self) -> TimestampMs:
        """The clock of the watcher that is shown; that of this process until one has answered."""
        clock = self._clock
        if clock is None:
            return self.wall_ms()
        told_ms, asked_s = clock
        return TimestampMs(told_ms + int((self.clock_s() - asked_s) * 1000))

    def ask(self, number: int) -> float:
        """Asks one watcher; returns the pause in milliseconds until the next time."""
        place, began_s = self.source.watchers[number], self.clock_s()
        facts, problem = None, None
        try:
            facts = place.ask()
            problem = self._refusal(facts)
        except TxnwatchError as exc:
            problem = redacted(str(exc))
        took_s = self.clock_s() - began_s
        with self._alone:
            if facts is not None and problem is None:
                self._topics[number] = facts.topics_digest
            self._answers[number] = _Answer(facts if problem is None else None, problem, began_s, took_s)
            self._say(number)
            self._show()
        pause_s = _LOOKED_AT_S if self.is_looked_at() else _PAUSE_S
        return 1000 * min(_PAUSE_S, max(pause_s, took_s * _TIMES_SLOWER))

    def _refusal(self, facts: WatcherFacts) -> str | None:
        """Why the facts are about another cluster than the one that is asked for; None if they are not."""
        wanted, identity = (self.source.cluster_id, self.source.name), (facts.cluster_id, facts.cluster_name)
        for expected, told in zip(wanted, identity, strict=True):
            if expected is not None and told is not None and told != expected:
                return f"it speaks for another cluster: expected {expected}, found {printable(told)}"
        return None

    def _say(self, number: int) -> None:
        """Logs what has changed about one watcher."""
        where, problem = f"{self.source.name}: {self.source.watchers[number].url}", self._answers[number].problem
        if problem is None:
            if self._said.is_over(number):
                self.log.info(f"{where} answers again")
        elif self._said.is_new(number, problem):
            self.log.warning(f"{where}: {problem}")

    # What is shown.

    def _show(self) -> None:
        """Fills the store anew, from the answers."""
        answered = [number for number, answer in enumerate(self._answers) if answer.facts is not None]
        problem = self._problem(answered)
        self._shown = self._chosen(answered) if problem is None else None
        if self._shown is None:
            seen = replace(self.store.seen, is_source_read=False)
        else:
            seen = self._take(self._answers[self._shown])
        rows = [self._row(number) for number in range(len(self._answers))]
        since_ms = (self.store.seen.problem_ms or self.now_ms()) if problem is not None else None
        self.store.replace(replace(seen, problem=problem, problem_ms=since_ms, watchers=rows))

    def _problem(self, answered: Sequence[int]) -> str | None:
        """Why nobody is believed; None if one is."""
        all_facts = [self._answers[number].facts for number in answered]
        if not all_facts:
            pairs = zip(self.source.watchers, self._answers, strict=True)
            return "; ".join(f"{place.url}: {answer.problem}" for place, answer in pairs)
        if len({facts.cluster_id for facts in all_facts if facts is not None}) > 1:
            return "its watchers speak for several clusters: each cluster needs an entry of its own"
        if len(set(self._topics.values())) > 1:  # also of one that does not answer now
            return "its watchers watch other topics: each of them needs an entry of its own"
        return None

    def _chosen(self, answered: Sequence[int]) -> int:
        """The watcher to show: the last one while it has evaluated lately, else the one that has evaluated last."""
        last = self._shown
        if last is not None and last in answered and self._age_ms(last) <= JUDGED_WITHIN_MS:
            return last
        return min(answered, key=self._age_ms)

    def _age_ms(self, number: int) -> float:
        """How long ago a watcher has evaluated."""
        answer = self._answers[number]
        if answer.facts is None or answer.facts.judged_ms is None:
            return float("inf")
        return answer.facts.now_ms - answer.facts.judged_ms + (self.clock_s() - answer.asked_s) * 1000

    def _take(self, answer: _Answer) -> KnownNow:
        """Takes everything from an answer that the store has beside what is known now."""
        facts, store = answer.facts, self.store
        assert facts is not None
        store.origin = origin = self.source.origin_of(facts.cluster_id)
        seen = facts.known(origin.owners)
        store.access = facts.access
        store.lives = facts.lived(seen.incidents or ())
        store.latencies_ms = (facts.latency_p99_ms,) if facts.latency_p99_ms is not None else ()
        store.step, store.warning, store.told_exposures = facts.step, facts.warning, facts.exposures
        self._clock = facts.now_ms, answer.asked_s
        return seen

    def _row(self, number: int) -> WatcherRow:
        place, answer = self.source.watchers[number], self._answers[number]
        facts, age_ms = answer.facts, self._age_ms(number)
        if facts is None:
            return WatcherRow(place.url, is_shown=False, problem=answer.problem)
        return WatcherRow(
            place.url,
            is_shown=number == self._shown,
            problem=None,
            took_ms=DurationMs(int(answer.took_s * 1000)),
            instance=facts.instance,
            version=facts.version,
            view=facts.access,
            judged_ms=TimestampMs(self.now_ms() - int(age_ms)) if age_ms < float("inf") else None,
        )
