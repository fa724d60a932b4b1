"""A command that looks once, over a fake cluster whose coordinators' clocks differ from ours."""

from __future__ import annotations

from collections.abc import Callable

from support.fake_admin import FakeAdmin
from txnwatch.state.evidence.screening import OwnerViews
from txnwatch.state.model.transaction import DescribedTransaction
from txnwatch.state.model.values import Problem
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.streaming.search.searcher import ReadLog, Searcher


def a_searcher(
    admin: FakeAdmin,
    now_ms: Callable[[], int],
    *,
    read_log: ReadLog = lambda _: OwnerViews(),
    behind_ms: int = 0,
    silence: str | None = None,
    policy: DetectionPolicy | None = None,
) -> Searcher:
    """A search by our clock `now_ms`; the coordinators' are so far behind, and `silence` is why they do not answer."""

    def is_open_for_longer(described: DescribedTransaction, open_for_ms: int) -> bool | Problem:
        assert open_for_ms >= 0, "no filter"
        assert described.start_ms is not None
        if silence is not None:
            return Problem(silence)
        return now_ms() - behind_ms - described.start_ms > open_for_ms

    return Searcher(admin, read_log, is_open_for_longer, now_ms, policy or DetectionPolicy())
