"""A query that Spark calls active although nobody executes it is not waited for."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from txnwatch.cli import run


def a_watch(batches: int = 0) -> SimpleNamespace:
    return SimpleNamespace(
        batches=batches, is_ready=True, settings=SimpleNamespace(bootstrap_server="b:1"), spark_log="/log/spark.log"
    )


@pytest.mark.parametrize("batches_before", [0, 3], ids=["at the start", "after some batches"])
def test_a_query_without_a_thread_is_over(monkeypatch: pytest.MonkeyPatch, batches_before: int) -> None:
    monkeypatch.setattr(run, "_POLL_S", 0.001)
    monkeypatch.setattr(run, "_SILENCE_S", 0.02)
    watch = a_watch(batches_before)
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


@pytest.mark.parametrize("batches_before", [0, 3], ids=["at the start", "started again"])
def test_a_first_batch_that_does_not_come_is_told_again_and_again_ever_later_and_where_to_look(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], batches_before: int
) -> None:
    seconds, stop, watch = 0.0, threading.Event(), a_watch(batches_before)

    def second(_: float) -> bool:
        nonlocal seconds
        seconds += 1
        if seconds == 400:
            watch.batches += 1
        return seconds > 600

    monkeypatch.setattr(stop, "wait", second)
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: seconds))
    run._watch_query(watch, SimpleNamespace(isActive=True), stop, lambda: True)
    first, *later = [line.partition("  ")[2] for line in capsys.readouterr().out.splitlines()]
    assert first == (
        "warning: no micro-batch has gone through since the start, 32 s ago; "
        "if the brokers answer, Spark's own output tells why: /log/spark.log"
    )
    assert [line.split(";")[0].rpartition(", ")[2] for line in later[:3]] == ["64 s ago", "128 s ago", "256 s ago"]
    assert later[3:] == ["ready: every transaction is being watched", "warning: no broker of b:1 has answered for 15 s"]
