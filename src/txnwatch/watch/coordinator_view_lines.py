"""Reports the coordinator view of a watch at its start: what is not detected, and which missing right is the reason."""

from __future__ import annotations

from txnwatch.state.model.coordinator_access import CoordinatorAccess
from txnwatch.state.model.ids import TRANSACTION_STATE_TOPIC
from txnwatch.state.model.ports import Log
from txnwatch.state.model.quantities import DurationMs
from txnwatch.state.model.undetected import undetected_text
from txnwatch.streaming.job.coordinator_view import ChosenView


def report_view(log: Log, view: ChosenView, longest_timeout_ms: DurationMs | None, problem: str | None) -> None:
    """Names the view; a view other than the log is a warning. `problem` is why the longest timeout is not known."""
    if view.access is CoordinatorAccess.LOG:
        log.info(
            f"coordinator view: {view.access}: {TRANSACTION_STATE_TOPIC} is read, and every verdict can be detected"
        )
        return
    because = f" ({'; '.join(view.reasons)})" if view.reasons else ""
    log.warning(f"coordinator view: {view.access}{because}: {undetected_text(view.access)}")
    if view.access is CoordinatorAccess.NONE and longest_timeout_ms is None:
        why = problem or "no broker shows transaction.max.timeout.ms"
        log.warning(f"nothing is reported at all: {why}; set --max-transaction-timeout-ms")
