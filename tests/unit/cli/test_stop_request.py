"""A stop waits for no step that does not end in time."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from txnwatch.cli.watch_process import StepTooLongError, StopRequest, StopRequestedError
from txnwatch.state.model.errors import BrokerError


def test_a_step_gives_its_result_or_its_error() -> None:
    def fails() -> None:
        raise BrokerError("no broker answered")

    stop = StopRequest()
    assert stop.run(lambda: 7) == 7
    with pytest.raises(BrokerError, match="no broker answered"):
        stop.run(fails)
    assert not stop.has_left_steps


def test_a_stop_leaves_a_step_that_blocks() -> None:
    stop, blocked = StopRequest(), threading.Event()
    threading.Timer(0.1, stop.set).start()
    begun = time.monotonic()
    with pytest.raises(StopRequestedError):
        stop.run(lambda: blocked.wait(30.0))
    assert time.monotonic() - begun < 5.0
    assert stop.has_left_steps
    blocked.set()


def test_a_step_that_ends_by_itself_at_a_stop_has_a_grace() -> None:
    stop = StopRequest()
    threading.Timer(0.1, stop.set).start()
    assert stop.run(lambda: stop.wait(30.0) and time.sleep(0.3) is None, grace_s=10.0)
    assert not stop.has_left_steps


def test_a_step_beyond_its_grace_is_left() -> None:
    stop, blocked = StopRequest(), threading.Event()
    stop.set()
    with pytest.raises(StopRequestedError):
        stop.run(lambda: blocked.wait(30.0), grace_s=0.2)
    assert stop.has_left_steps
    blocked.set()


def test_a_step_beyond_its_limit_is_left() -> None:
    stop, blocked = StopRequest(), threading.Event()
    with pytest.raises(StepTooLongError):
        stop.run(lambda: blocked.wait(30.0), limit_s=0.1)
    assert stop.has_left_steps
    blocked.set()


def test_closing_ends_at_its_limit_although_a_step_blocks_or_fails() -> None:
    stop, blocked, closed = StopRequest(), threading.Event(), threading.Event()

    def fails() -> None:
        raise BrokerError("no broker answered")

    stop.set()
    begun = time.monotonic()
    assert not stop.finish(fails, lambda: blocked.wait(30.0), closed.set, until_s=0.3)
    assert 0.2 < time.monotonic() - begun < 5.0
    assert closed.wait(5.0), "the steps run at the same time"
    assert stop.has_left_steps
    blocked.set()


def test_steps_that_end_in_time_leave_nothing() -> None:
    stop = StopRequest()
    assert stop.finish(lambda: None, until_s=5.0)
    assert not stop.has_left_steps


IN_A_LOCK = """
import signal, sys
from txnwatch.cli.watch_process import Reload
from txnwatch.cli.watch_process import StopRequest

stop, reload, signals = StopRequest(), Reload(dict), [signal.SIGHUP, signal.SIGHUP, signal.SIGTERM, signal.SIGTERM]

def within_a_wait(frame, event, _):
    if event == "call" and frame.f_code.co_name == "wait" and "_waiters" in frame.f_code.co_names:
        sys.setprofile(None)
        while signals:
            signal.raise_signal(signals.pop(0))

with stop.on_signals(), reload.on_signal():
    sys.setprofile(within_a_wait)
    stop.wait(0.1)
    print(stop.wait(10.0), reload.requested, signals)
"""


def test_a_signal_that_comes_while_the_main_thread_holds_the_lock_of_the_event_is_received() -> None:
    """The main thread holds that lock at the beginning of each wait."""
    done = subprocess.run([sys.executable, "-c", IN_A_LOCK], capture_output=True, text=True, check=False, timeout=30.0)
    assert done.stdout == "True True []\n", done.stderr
