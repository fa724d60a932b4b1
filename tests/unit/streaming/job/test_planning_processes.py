"""When Spark uses its daemon of Python workers: always on a cluster; in local mode not while a query is planned."""

from __future__ import annotations

from typing import Any

import pytest

from txnwatch.streaming.job.query import plan_without_daemons, run_tasks_with_daemons


class FakeSession:
    """Stands for the session, its context, the JVM's context and its conf, one inside the other."""

    def __init__(self, *, is_local: bool) -> None:
        self.values: list[tuple[str, str]] = []
        self._is_local = is_local
        self.sparkContext = self._jsc = self

    def sc(self) -> Any:
        return self

    def conf(self) -> Any:
        return self

    def isLocal(self) -> bool:  # noqa: N802 - Spark's name
        return self._is_local

    def set(self, key: str, value: str) -> None:
        self.values.append((key, value))


@pytest.mark.parametrize(("is_local", "expected"), [(True, ["false", "true"]), (False, [])])
def test_executors_of_a_cluster_never_take_the_setting_of_planning_over(*, is_local: bool, expected: list[str]) -> None:
    session: Any = FakeSession(is_local=is_local)
    plan_without_daemons(session)
    run_tasks_with_daemons(session)
    assert session.values == [("spark.python.use.daemon", value) for value in expected]
