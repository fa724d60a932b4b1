"""Reports the coordinator view of a watch at its start: what is not detected, and which missing right is the reason."""

from __future__ import annotations

from collections.abc import Iterator

from txnwatch.state.model.coordinator_access import NOT_DETECTED, CoordinatorAccess
from txnwatch.state.model.quantities import DurationMs
from txnwatch.streaming.job.coordinator_view import ChosenView


def view_lines(view: ChosenView, longest_timeout_ms: DurationMs | None, problem: str | None) -> Iterator[str]:
    """The lines about a view other than the log; `problem` is why the longest timeout is not known."""
    if view.access is CoordinatorAccess.LOG:
        return
    because = f" ({'; '.join(view.reasons)})" if view.reasons else ""
    yield f"coordinator view: {view.access}{because}: {NOT_DETECTED[view.access]}"
    if view.access is CoordinatorAccess.NONE and longest_timeout_ms is None:
        why = problem or "no broker shows transaction.max.timeout.ms"
        yield f"nothing is reported at all: {why}; set --max-transaction-timeout-ms"
