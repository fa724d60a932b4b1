"""Which coordinator view `run` chooses with the rights of this user, and what it does not detect. Pure."""

from __future__ import annotations

from txnwatch.cli.check_row import CheckRow, Health
from txnwatch.state.model.coordinator_access import NOT_DETECTED, CoordinatorAccess
from txnwatch.state.model.ids import TRANSACTION_STATE_TOPIC
from txnwatch.streaming.admin.topic_rights import READ
from txnwatch.streaming.job.checkup import Checkup


def view_row(found: Checkup) -> CheckRow:
    """One row; it is a warning if a right is missing for the best view."""
    access = _access(found)
    if access is CoordinatorAccess.LOG:
        detail = f"log: `run` reads {TRANSACTION_STATE_TOPIC}"
        return CheckRow("view", "coordinator view", Health.OK, detail, "run", None)
    detail = f"{access}: {NOT_DETECTED[access]}"
    return CheckRow("view", "coordinator view", Health.WARNING, detail, "run", None)


def _access(found: Checkup) -> CoordinatorAccess:
    is_shown = TRANSACTION_STATE_TOPIC in found.topic_operations
    rights = found.topic_operations.get(TRANSACTION_STATE_TOPIC)
    if not found.has_unseen_log and (rights is None or READ in rights):
        return CoordinatorAccess.LOG
    is_refused = found.id_problems is None or any(problem.is_denied for problem in found.id_problems)
    return CoordinatorAccess.API if is_shown and not is_refused else CoordinatorAccess.NONE
