"""How many cores run tasks: known at once for a local master, after the executors have registered on a cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from txnwatch.streaming.job import query


class Cluster:
    """A session whose executors register at these seconds, each with two cores."""

    def __init__(self, master: str, *registered_s: float) -> None:
        self.now_s = 0.0
        self.sparkContext = self
        self.master, self._registered_s = master, registered_s
        status = SimpleNamespace(size=lambda: 1 + self.executors)
        context = SimpleNamespace(getExecutorMemoryStatus=lambda: status)
        self._jsc = SimpleNamespace(sc=lambda: context)

    @property
    def executors(self) -> int:
        return sum(at_s <= self.now_s for at_s in self._registered_s)

    @property
    def defaultParallelism(self) -> int:  # noqa: N802 - Spark's name
        return max(2, 2 * self.executors)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.mark.parametrize(
    ("session", "cores", "at_most_s"),
    [
        (Cluster("local[2,4]"), 2, 0.0),
        (Cluster("spark://h:7077", 1.0, 2.5, 3.0), 6, 6.0),
        (Cluster("spark://h:7077"), 2, 21.0),
        (Cluster("yarn", 18.0), 2, 21.0),
    ],
    ids=["local", "they register one after the other", "none registers", "one is late"],
)
def test_the_cores_are_counted_when_no_further_executor_registers(
    monkeypatch: pytest.MonkeyPatch, session: Any, cores: int, at_most_s: float
) -> None:
    monkeypatch.setattr(query, "time", SimpleNamespace(monotonic=lambda: session.now_s, sleep=session.sleep))
    assert query.cores_of(session) == cores
    assert session.now_s <= at_most_s
