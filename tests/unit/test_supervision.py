"""A query that Spark calls active although nobody executes it is not waited for."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from txnwatch.cli import run


@pytest.mark.parametrize("batches_before", [0, 3], ids=["at the start", "after some batches"])
def test_a_query_without_a_thread_is_over(monkeypatch: pytest.MonkeyPatch, batches_before: int) -> None:
    monkeypatch.setattr(run, "_POLL_S", 0.001)
    monkeypatch.setattr(run, "_SILENCE_S", 0.02)
    watch = SimpleNamespace(batches=batches_before, is_ready=True, settings=SimpleNamespace(bootstrap_server="b:1"))
    asked: list[bool] = []

    def is_executing() -> bool:
        asked.append(len(asked) < 2)
        return asked[-1]

    waiting = threading.Thread(
        target=run._watch_query, args=(watch, SimpleNamespace(isActive=True), threading.Event(), is_executing)
    )
    waiting.start()
    waiting.join(10.0)
    assert not waiting.is_alive()
    assert asked == [True, True, False], "it is asked as long as there is silence, and believed"
