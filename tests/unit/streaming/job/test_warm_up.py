"""The worker of the tasks and the classes of a query are loaded beside the start, and never decide about it."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from txnwatch.streaming.job.operator import no_rows
from txnwatch.streaming.job.query import load_classes, warming

WAIT_S = 10.0


class Context:
    """A context of Spark; its task ends with the block, or fails."""

    def __init__(self, master: str, error: Exception | None = None) -> None:
        self.master, self._error = master, error
        self.calls: list[object] = []
        self.has_begun, self.may_end = threading.Event(), threading.Event()

    def parallelize(self, rows: list[int], partitions: int) -> Context:
        self.calls.append((rows, partitions))
        return self

    def mapPartitions(self, task: object) -> Context:  # noqa: N802 - Spark's name
        self.calls.append(task)
        return self

    def count(self) -> int:
        self.has_begun.set()
        assert self.may_end.wait(WAIT_S)
        if self._error is not None:
            raise self._error
        self.calls.append("counted")
        return 0


@pytest.mark.parametrize("error", [None, RuntimeError("no Python")])
def test_the_task_runs_beside_the_block_and_has_ended_after_it(error: Exception | None) -> None:
    context: Any = Context("local[2,4]", error)
    with warming(context):
        assert context.has_begun.wait(WAIT_S)
        context.may_end.set()
    assert context.calls == [([0], 1), no_rows, *(["counted"] if error is None else [])]


def test_an_executor_of_a_cluster_is_not_warmed() -> None:
    context: Any = Context("spark://master:7077")
    with warming(context):
        pass
    assert context.calls == []


def test_the_task_reads_its_rows_to_the_end() -> None:
    """Spark does not use a worker again that has left some."""
    rows = iter([1, 2, 3])
    assert list(no_rows(rows)) == []
    assert next(rows, None) is None


def test_a_small_query_that_fails_is_not_an_error_of_the_start(tmp_path: Path) -> None:
    asked = threading.Event()

    class Fails:
        @property
        def readStream(self) -> SimpleNamespace:  # noqa: N802 - Spark's name
            asked.set()
            raise RuntimeError("the JVM has ended")

    session: Any = Fails()
    load_classes(session, tmp_path)
    assert asked.wait(WAIT_S)
