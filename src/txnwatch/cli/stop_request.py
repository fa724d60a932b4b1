"""A stop by SIGTERM or Ctrl-C, which ends the process within three seconds in every phase.

Law: no step that can block (a connection, Spark, a destination) runs in the main thread. A step that does not end in
time is left behind, and the process exits without it. The interpreter's own end takes time too, so it is left out.
All this is as safe as `kill -9`: a micro-batch that is not committed is repeated at the next start, and an event that
is not delivered is found again.

A signal handler interrupts the main thread anywhere, also while it holds the lock of an event or of standard output.
So the handler takes no lock: a thread writes the line and sets the event.
"""

from __future__ import annotations

import contextlib
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
from typing import NoReturn, TypeVar

from txnwatch.cli.log_output import ROOT as LOG

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
