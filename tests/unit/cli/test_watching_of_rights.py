"""A missing right ends `txnwatch run` at the start; while it runs, it waits until the right is there again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from txnwatch.cli import watching
from txnwatch.cli.watch_process import StopRequest
from txnwatch.state.model.errors import AuthorizationError

MISSING = AuthorizationError("events topic 'txnwatch.events': expected the right WRITE")


class Stopping(StopRequest):
    """A stop request that notes the pauses, and comes with the third one."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    def wait(self, timeout_s: float) -> bool:
        """Notes the pause."""
        self.pauses.append(timeout_s)
        if len(self.pauses) == 3:
            self.set()
        return self.is_set()


def supervise(batches: int, stop: StopRequest) -> None:
    watch = mock.Mock(batches=batches)
    watch.open_ledger.side_effect = MISSING
    session: Any = SimpleNamespace(
        sparkContext=SimpleNamespace(_gateway=None, _jvm=SimpleNamespace(System=SimpleNamespace(nanoTime=lambda: 1)))
    )
    watching.supervise(watch, session, stop, mock.Mock())


def test_at_the_start_it_ends_with_the_error() -> None:
    stop = Stopping()
    with pytest.raises(AuthorizationError, match="expected the right WRITE"):
        supervise(0, stop)
    assert stop.pauses == []


def test_after_a_micro_batch_it_tries_again_with_growing_pauses() -> None:
    stop = Stopping()
    supervise(7, stop)
    assert stop.pauses == [1.0, 2.0, 4.0]
