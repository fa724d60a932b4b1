"""A command that looks once, over a fake cluster whose coordinators' clocks differ from ours."""

from __future__ import annotations

from collections.abc import Callable

from support.fake_admin import FakeAdmin
from txnwatch.sinks.incidents.search import Log, ReadLog, Searcher
from txnwatch.state.model.policy import DetectionPolicy
from txnwatch.state.model.ports import TransactionDescription


def a_searcher(
    admin: FakeAdmin,
    now_ms: Callable[[], int],
    *,
    read_log: ReadLog = lambda _: Log(),
    behind_ms: int = 0,
    silence: str | None = None,
    policy: DetectionPolicy | None = None,
) -> Searcher:
    """A search by our clock `now_ms`; the coordinators' are so far behind, and `silence` is why they do not tell."""

    def is_open_for_longer(described: TransactionDescription, open_for_ms: int) -> bool | str:
        assert open_for_ms >= 0, "no filter"
        return silence or now_ms() - behind_ms - described.start_ms > open_for_ms

    return Searcher(admin, read_log, is_open_for_longer, now_ms, policy or DetectionPolicy())
