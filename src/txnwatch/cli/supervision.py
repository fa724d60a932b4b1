"""Starts the query of `txnwatch run`, restarts it with a backoff, and stops it after the current micro-batch."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from txnwatch.app import CertificateFiles, Watch
from txnwatch.cli.log_output import ROOT as LOG
from txnwatch.cli.log_output import log_step, log_to_stdout
from txnwatch.config import THRESHOLDS, RunSettings
from txnwatch.owners.owners_file import read_owners
from txnwatch.state.model.clocks import set_by_ms
from txnwatch.state.model.errors import AuthorizationError, BrokerError, QueryError, TxnwatchError
from txnwatch.state.model.values import doubled
from txnwatch.state.text import Said
from txnwatch.streaming.client.clock import clock_base
from txnwatch.streaming.client.cluster import why_not_reached
from txnwatch.streaming.job.failures import Failure, Repeats, failure_of, failure_of_ours, text_of
from txnwatch.watch.coverage import TimeoutLimit
from txnwatch.web.server import WebServer
from txnwatch.web.web_config import read_web_config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# A stop by SIGTERM or Ctrl-C, which ends the process within three seconds in every phase.
#
# Law: no step that can block (a connection, Spark, a destination) runs in the main thread. A step that does not end in
# time is left behind, and the process exits without it. The interpreter's own end takes time too, so it is left out.
# All this is as safe as `kill -9`: a micro-batch that is not committed is repeated at the next start, and an event that
# is not delivered is found again.
#
# A signal handler interrupts the main thread anywhere, also while it holds the lock of an event or of standard output.
# So the handler takes no lock: a thread writes the line and sets the event.

_POLL_S = 0.05
_INSISTING_S = 1.0  # a signal to a process and to its group counts once
_T = TypeVar("_T")


class StopRequestedError(Exception):
    """The stop was requested while a step was running."""


class StepTooLongError(Exception):
    """A step did not end within its limit."""


class StopRequest:
    """Whether and since when the process is to stop.

    Attributes:
        has_left_steps: whether a step is left behind.
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        self._requested_at = math.inf
        self.has_left_steps = False

    def is_set(self) -> bool:
        """Whether the stop is requested."""
        return self._event.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Waits for the request; returns whether it is there."""
        return self._event.wait(timeout_s)

    def set(self) -> None:
        """Requests the stop."""
        self._requested_at = min(self._requested_at, time.monotonic())
        self._event.set()

    def run(self, step: Callable[[], _T], *, limit_s: float = math.inf, grace_s: float = 0.0) -> _T:
        """The result of a step that may block. A step that ends by itself at a stop has `grace_s` seconds for it.

        Raises:
            StopRequestedError: the stop was requested first; the step is left behind.
            StepTooLongError: the step did not end within the limit; it is left behind.
        """
        outcome = _in_thread(step)
        deadline = time.monotonic() + limit_s
        while not outcome.done():
            with contextlib.suppress(TimeoutError):
                outcome.exception(_POLL_S)
            if time.monotonic() > deadline and not outcome.done():
                self.has_left_steps = True
                raise StepTooLongError
            if self.is_set() and time.monotonic() >= self._requested_at + grace_s and not outcome.done():
                self.has_left_steps = True
                raise StopRequestedError
        return outcome.result()

    def finish(self, *steps: Callable[[], object], until_s: float) -> bool:
        """Runs the steps at the same time until so many seconds after the request; returns whether all have ended.

        Without a request the time counts from now. The errors of the steps are ignored: the process ends anyway.
        """
        deadline = min(self._requested_at, time.monotonic()) + until_s
        for outcome in [_in_thread(step) for step in steps]:
            try:
                outcome.exception(max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                self.has_left_steps = True
                return False
        return True

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        """SIGTERM and Ctrl-C request the stop while the block runs; a second Ctrl-C ends it at once."""
        received: SimpleQueue[int | None] = SimpleQueue()  # its `put` may be called in a signal handler

        def on_signal(number: int, _: FrameType | None) -> None:
            now = time.monotonic()
            if self._requested_at == math.inf:
                self._requested_at = now
                received.put(number)
            elif now - self._requested_at > _INSISTING_S:
                raise KeyboardInterrupt

        def request() -> None:
            number = received.get()
            if number is not None:
                LOG.info(f"{signal.Signals(number).name}: stopping after the current micro-batch")
                self.set()

        threading.Thread(target=request, name="signals", daemon=True).start()
        former = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)
            received.put(None)


def exit_now(code: int) -> NoReturn:
    """Ends the process without waiting for its threads, and without the interpreter's own end, which takes time."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _in_thread(step: Callable[[], _T]) -> Future[_T]:
    outcome: Future[_T] = Future()

    def work() -> None:
        try:
            outcome.set_result(step())
        except BaseException as exc:  # noqa: BLE001 - the main thread raises it
            outcome.set_exception(exc)

    threading.Thread(target=work, name="step", daemon=True).start()
    return outcome


# SIGHUP: `txnwatch run` reads its configuration again and applies what can change without a restart.
#
# Changed certificate files need no signal.
#
# Law: the handler only sets a flag, and takes no lock, because the thread that it interrupts may hold that lock. The
# thread that supervises the query reads the configuration. A SIGHUP never ends the process: if anything in the
# configuration is invalid, nothing changes.
#
# Settings that the query or the ledger has are applied by starting the query again in the same Spark session, between
# two micro-batches. This is the restart that follows an error of the query, so it loses and repeats nothing.

LIMITS = ("max_offsets_per_trigger", "max_bytes_per_trigger", "max_bytes_per_second", "max_read_ms_per_trigger")
ABORTS = tuple(name for name in RunSettings.model_fields if name.startswith(("abort_", "auto_abort")))
OWNERS = "owners_file"
OF_THE_QUERY = frozenset((*THRESHOLDS, *LIMITS, *ABORTS, OWNERS))
AT_ONCE = frozenset({"log_format"})


class Reload:
    """A request to read the configuration again.

    Args:
        load: reads the settings from flags, environment and file.

    Attributes:
        requested: whether a SIGHUP has come since the last reading.
        is_due: the query has to start again; no micro-batch begins until then.
        server: the HTTP server, if there is one.
        certificates: the files that are used without a signal when they change.
        timeout_limit: the limit that the query gets without a signal when it changes.
    """

    def __init__(self, load: Callable[[], RunSettings]) -> None:
        self._load = load
        self.requested = False
        self.is_due = False
        self.server: WebServer | None = None
        self.certificates: CertificateFiles | None = None
        self.timeout_limit: TimeoutLimit | None = None

    def request(self) -> None:
        """Requests it; `apply` does the work."""
        self.requested = True

    @contextlib.contextmanager
    def on_signal(self) -> Iterator[None]:
        """SIGHUP requests it while the block runs."""

        def on_signal(_: int, __: FrameType | None) -> None:
            self.request()

        former = signal.signal(signal.SIGHUP, on_signal)
        try:
            yield
        finally:
            signal.signal(signal.SIGHUP, former)

    def apply(self, watch: Watch) -> bool:
        """Applies what has changed, if it was requested. Returns whether the query has to start again."""
        if not self.requested:
            return self._is_due_without_a_signal()
        self.requested = False
        former = watch.settings
        try:
            fresh = self._load()
            web = read_web_config(former.http_web_config_file)
            owners = read_owners(fresh.owners_file)
        except (TxnwatchError, OSError) as exc:
            LOG.warning(f"SIGHUP: nothing is reloaded: {exc}")
            return self.is_due
        changed = [name for name in RunSettings.model_fields if getattr(fresh, name) != getattr(former, name)]
        if owners != watch.owners and OWNERS not in changed:  # the content of the file has changed
            changed.append(OWNERS)
        watch.owners = owners
        reloaded = [name for name in changed if name in OF_THE_QUERY | AT_ONCE]
        watch.settings = former.model_copy(update={name: getattr(fresh, name) for name in reloaded})
        log_to_stdout(watch.settings.log_format)
        if self.server is not None:
            self.server.protect(web)
        self.is_due |= not OF_THE_QUERY.isdisjoint(reloaded)
        LOG.info(_summary(reloaded, [name for name in changed if name not in reloaded], is_due=self.is_due))
        return self.is_due

    def _is_due_without_a_signal(self) -> bool:
        """The clients of the events topic read certificates only when they are made, so they are made again."""
        if not self.is_due and self.certificates is not None and self.certificates.are_renewed():
            LOG.info("the certificate files have changed, and the query starts again")
            self.is_due = True
        change = self.timeout_limit.take_change() if self.timeout_limit is not None else None
        if change is not None:
            LOG.info(f"{change}: the query starts again")
            self.is_due = True
        return self.is_due


def _summary(reloaded: list[str], left: list[str], *, is_due: bool) -> str:
    found = f"reloaded {', '.join(reloaded)}" if reloaded else "no setting that can be reloaded has changed"
    again = ", and the query starts again" if is_due else ""
    restart = f"; txnwatch has to be restarted for {', '.join(left)}" if left else ""
    return f"SIGHUP: {found}{again}{restart}"


POLL_S = 0.1
SILENCE_S = 15.0
_FIRST_BATCH_S = 30.0
FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_PROCESSING = "Processing new data"  # Spark's text
_SLOW = "a broker throttles its reads, a disk is slow, or the machine is busy"
_WATCH_S = 0.6  # after the request to stop: Spark may stand still, so that no call of it returns
_BATCH_S = 1.2  # after the request to stop


def supervise(watch: Watch, session: SparkSession, stop: StopRequest, reload: Reload) -> None:
    """Runs the query until the process is to stop.

    Raises:
        StopRequestedError: the stop was requested while the query started, or Spark does not answer.
        TxnwatchError: the query cannot run, and a restart does not help.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415 - Spark's packages take a second to import

    from txnwatch.streaming.job.failures import check_jvm  # noqa: PLC0415

    failures, repeats = 0, Repeats()
    while not stop.is_set():
        before = watch.batches
        try:
            why = _run_query(watch, session, stop, reload, repeats)
            if why is None:
                continue
            message = f"the query ended: {why}; restarting it"
        except (BrokerError, QueryError) as exc:
            if isinstance(exc, AuthorizationError) and watch.batches == 0:
                raise  # an operator is needed; a right that is taken away later may come back
            if isinstance(exc, BrokerError):  # a QueryError has been counted where it was raised
                _check_repeats(exc, repeats)
            stop.run(functools.partial(check_jvm, session, watch.spark_log, wait_s=0.0))
            message = f"{exc}; next attempt"
        except (Py4JError, ConnectionError):
            stop.run(functools.partial(check_jvm, session, watch.spark_log))
            raise
        has_progressed = watch.batches > before
        pause_s = doubled(FIRST_PAUSE_S, _LONGEST_PAUSE_S, failures)
        LOG.warning(f"{message} in {pause_s:.0f} s")
        stop.wait(pause_s)
        failures = 0 if has_progressed else failures + 1


def _run_query(watch: Watch, session: SparkSession, stop: StopRequest, reload: Reload, repeats: Repeats) -> str | None:
    """Runs the query until it ends. Returns why it ended, None if the stop or a reload was requested.

    Raises:
        BrokerError, QueryError: it could not be started, and a later attempt may succeed.
        TxnwatchError: as `supervise`.
    """
    reload.is_due, before = False, watch.batches
    ledger = stop.run(watch.open_ledger)
    if ledger.open_incidents:
        LOG.info(f"{len(ledger.open_incidents)} incidents are still open from before the start")
    query = stop.run(functools.partial(_started, watch, session, repeats))
    why = stop.run(functools.partial(watch_query, watch, query, stop, session, reload), grace_s=_WATCH_S)
    if watch.batches > before:
        repeats.clear()
    if stop.is_set():
        if not stop.finish(functools.partial(_stop_between_batches, query), until_s=_BATCH_S):
            LOG.info("the current micro-batch is interrupted; the next start repeats it")
        return None
    if reload.is_due:
        stop.run(functools.partial(_stop_between_batches, query))
        return None
    try:
        return why or why_it_ended(query, repeats, watch)
    finally:
        _ignoring_errors(query.stop)


def _check_repeats(error: BrokerError, repeats: Repeats) -> None:
    """Counts an error that came before the query was started.

    Raises:
        BrokerError: it has come so often that another start does not help.
    """
    failure = repeats.add(failure_of_ours(error))
    if failure.advice:
        raise BrokerError(f"{failure.cause}; {failure.advice}") from error


def _stop_between_batches(query: StreamingQuery) -> None:
    """Waits for the end of the current micro-batch, and stops the query. The job lets no other micro-batch begin."""
    while query.isActive and query.status["isTriggerActive"]:
        time.sleep(0.01)
    _ignoring_errors(query.stop)


def _started(watch: Watch, session: SparkSession, repeats: Repeats) -> StreamingQuery:
    """Starts the query.

    Raises:
        CheckpointError, SparkError: the error is permanent.
        QueryError: Spark could not plan the query, for example because its Python workers do not start.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        query = watch.start_query(session)
    except (Py4JError, PySparkException, ImportError) as exc:
        failure = repeats.add(failure_of(text_of(exc)))
        error = failure.error(f"more details may be in Spark's output: {watch.spark_log}")
        raise error if failure.advice else QueryError(f"the query could not be started: {error}") from exc
    if watch.batches == 0:
        log_step("3 of 3: the first micro-batches read the logs")
    return query


def watch_query(
    watch: Watch, query: StreamingQuery, stop: StopRequest, session: SparkSession, reload: Reload
) -> str | None:
    """Waits until the query ends or has to end; reports when it is ready, and when micro-batches stop.

    Returns why the query has to start again although it runs, None if it need not. Spark waits for a time of the wall
    clock between two micro-batches: if that clock is set back by an hour, the next one comes an hour later.
    """
    from txnwatch.streaming.job.query import is_executing  # noqa: PLC0415

    first = seen = watch.batches
    since, looks_s, warnings = time.monotonic(), 0.0, 0
    said = Said[str]()
    base = clock_base()
    while not stop.wait(POLL_S) and query.isActive and not reload.apply(watch):
        waited_s = time.monotonic() - since
        set_ms = set_by_ms(base, clock_base())
        if set_ms:
            return f"the clock of this machine was set {'forward' if set_ms > 0 else 'back'} by {abs(set_ms) // 1000} s"
        if watch.batches != seen:
            is_back = said.is_over("silent")
            if watch.coverage.is_ready and said.is_new("ready"):
                LOG.info(f"ready: {watch.coverage.reach}")
            elif is_back:
                LOG.info("micro-batches complete again")
            seen, since = watch.batches, time.monotonic()
        elif time.monotonic() > looks_s and waited_s > SILENCE_S:
            looks_s = time.monotonic() + SILENCE_S
            if not is_executing(session):
                return None
            if seen == first and waited_s > doubled(_FIRST_BATCH_S, math.inf, warnings):
                where = f"if the brokers answer, the reason is in Spark's output: {watch.spark_log}"
                LOG.warning(f"no micro-batch has completed since the start, {waited_s:.0f} s ago; {where}")
                warnings += 1
            elif seen != first and said.is_new("silent"):
                LOG.warning(_silence(query, watch))
    return None


def _silence(query: StreamingQuery, watch: Watch) -> str:
    """What is known about a query whose micro-batches stop: a batch does not end, or there is nothing to begin one."""
    if query.status["message"] == _PROCESSING:
        return f"the current micro-batch has not completed for {SILENCE_S:.0f} s: {_SLOW}"
    why = why_not_reached(watch.options.bootstrap, watch.options.security)
    now = f"a new connection fails: {why}" if why is not None else "a new connection succeeds now"
    return f"no broker of {watch.settings.bootstrap_server} has answered for {SILENCE_S:.0f} s; {now}"


def why_it_ended(query: StreamingQuery, repeats: Repeats, watch: Watch) -> str:
    """The reason why the query ended.

    Raises:
        CheckpointError, SparkError: the error is permanent.
    """
    error, ours = query.exception(), watch.batch_errors.last
    if error is None:
        found = Failure("it ended without an error")
    else:
        found = failure_of(text_of(error)) if ours is None else failure_of_ours(ours)
    failure = repeats.add(found)
    where = f"more details may be in Spark's output: {watch.spark_log}"
    if failure.advice:
        raise failure.error(where)
    return failure.cause if error is not None else f"{failure.cause}; {where}"


def _ignoring_errors(action: Any) -> None:  # noqa: ANN401 - a callable of py4j
    """Runs an action and ignores its errors: they must not end the watch, and are of no use."""
    with contextlib.suppress(Exception):
        action()
