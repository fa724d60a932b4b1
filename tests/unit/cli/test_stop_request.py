"""A stop waits for no step that does not end in time."""

from __future__ import annotations

import threading
import time

import pytest

from txnwatch.cli.stop_request import StepTooLongError, StopRequest, StopRequestedError
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
