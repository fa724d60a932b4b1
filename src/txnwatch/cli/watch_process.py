"""The process of `txnwatch run`: it begins the JVM, and SIGTERM and Ctrl-C stop it; SIGHUP reloads the configuration.

A stop is between two micro-batches, so that the next start continues exactly there; a micro-batch that takes too long
is interrupted, and the next start repeats it. A query that ends by itself is restarted with a backoff, unless its error
is permanent. run.py has the flags, and imports this module when Spark is installed.

Apart: watching.py has the watch, and is imported beside the JVM.

Law:
    * This module imports only what the JVM needs to begin.
    * No step that can block (a connection, Spark, a destination) runs in the main thread. A step that does not end in
      time is left behind, and the process exits without it, within three seconds after the request in every phase.
    * A signal handler takes no lock: it interrupts the main thread anywhere, also while that holds the lock of an event
      or of standard output. At a stop, a thread writes the line and sets the event; SIGHUP only sets a flag.
    * A SIGHUP never ends the process: if anything in the configuration is invalid, nothing changes.
"""

from __future__ import annotations

import argparse
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
from importlib import import_module
from queue import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, TypeVar

from txnwatch.cli.output import JSON, LOG, log_to_stdout
from txnwatch.config import THRESHOLDS, RunSettings
from txnwatch.named_files import read_named_files
from txnwatch.owners.owner_table import read_owners
from txnwatch.setting_sources import ENVIRONMENT_PREFIX, load_settings
from txnwatch.spark_start import SparkStart
from txnwatch.state.model.errors import TxnwatchError
from txnwatch.streaming.job.checkpoint import absolute
from txnwatch.streaming.job.scratch import SCRATCH, OwnDirectory
from txnwatch.streaming.job.spark_conf import SessionSettings, chosen_master

if TYPE_CHECKING:
    from txnwatch.app import CertificateFiles, Watch
    from txnwatch.watch.coverage import TimeoutLimit
    from txnwatch.web.server import WebServer


_BEGINS_S = 1.0


def run(parsed: argparse.Namespace) -> int:
    """Runs until it is stopped; exit code 0 after a stop. Then the process has ended: this does not return."""
    flags = {name: getattr(parsed, name) for name in RunSettings.model_fields}  # None: it was not given
    load = functools.partial(load_settings, flags, parsed.config)
    stop, reload = StopRequest(), Reload(load)
    with stop.on_signals(), reload.on_signal():
        if _is_json_asked_for(parsed):  # an error in the settings is then an object, too
            log_to_stdout(JSON)
        settings = load()
        log_to_stdout(settings.log_format)
        named = read_named_files(settings, LOG.warning)
        watch: Watch | None = None
        with contextlib.suppress(StopRequestedError), _spark_begins(settings, stop) as begun:
            watching = stop.run(functools.partial(import_module, "txnwatch.cli.watching"))
            watch = watching.new_watch(settings, named, stop, reload)
            watching.run_until_stopped(watch, begun, stop, reload)
        counts = "".join(f", {count} {what}" for what, count in sorted(watch.counts.items())) if watch else ""
        LOG.info(f"stopped after {watch.batches if watch else 0} micro-batches{counts}")
        if watch:
            stop.finish(watch.files.remove_temporary, until_s=REMOVE_S)
        exit_now(0)


def _is_json_asked_for(parsed: argparse.Namespace) -> bool:
    """Whether the flag or the environment asks for a log as JSON; the configuration file may not be readable."""
    return (parsed.log_format or os.environ.get(f"{ENVIRONMENT_PREFIX}LOG_FORMAT")) == JSON


@contextlib.contextmanager
def _spark_begins(settings: RunSettings, stop: StopRequest) -> Iterator[SparkStart]:
    """Begins the JVM, with a directory for its temporary files; at the end of the block neither is left.

    What a slow disk does not remove in time, the next start removes.
    """
    scratch = stop.run(functools.partial(OwnDirectory, SCRATCH))
    try:
        # At a stop this step still ends, so that the JVM is known.
        begun = stop.run(functools.partial(SparkStart, _session_settings(settings, scratch)), grace_s=_BEGINS_S)
        try:
            if stop.is_set():
                raise StopRequestedError
            yield begun
        finally:
            stop.finish(begun.end, until_s=KILL_S)
    finally:
        stop.finish(scratch.remove, until_s=REMOVE_S)


def _session_settings(settings: RunSettings, scratch: OwnDirectory) -> SessionSettings:
    return SessionSettings(
        checkpoint=absolute(settings.checkpoint),
        master=chosen_master(settings.master, os.environ),
        scratch=scratch.path,
        state_partitions=settings.state_partitions,
        is_checkpoint_shared=settings.checkpoint_is_shared,
        conf=settings.spark_conf,
    )


# A stop, which ends the process.
#
# The interpreter's own end takes time, so it is left out. All this is as safe as `kill -9`: a micro-batch that is not
# committed is repeated at the next start, and an event that is not delivered is found again.

# The last steps, in seconds after the request. The rest of the three seconds is for a busy machine.
CLOSE_S, KILL_S, REMOVE_S = 1.6, 1.8, 2.2
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


# A reload, which applies what can change without a restart. Changed certificate files need no signal.
#
# The thread that supervises the query reads the configuration. Settings that the query or the ledger has are applied by
# starting the query again in the same Spark session, between two micro-batches. This is the restart that follows an
# error of the query, so it loses and repeats nothing.

LIMITS = ("max_offsets_per_trigger", "max_bytes_per_second", "first_topics", "max_read_ms_per_trigger")
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
        from txnwatch.web.web_config import read_web_config  # noqa: PLC0415 - the start does not wait for it

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
    changes = f"reloaded {', '.join(reloaded)}" if reloaded else "no setting that can be reloaded has changed"
    again = ", and the query starts again" if is_due else ""
    restart = f"; txnwatch has to be restarted for {', '.join(left)}" if left else ""
    return f"SIGHUP: {changes}{again}{restart}"
