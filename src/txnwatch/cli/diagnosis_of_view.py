"""Which coordinator view `run` takes with the rights of this user, and what it does not detect. Pure."""

from __future__ import annotations

from txnwatch.cli.check_row import CheckRow, Health
from txnwatch.state.model.coordinator_access import CoordinatorAccess
from txnwatch.state.model.ids import TRANSACTION_STATE_TOPIC
from txnwatch.state.model.undetected import undetected_text
from txnwatch.streaming.admin.topic_rights import READ
from txnwatch.streaming.job.checkup import Checkup
from txnwatch.streaming.job.coordinator_view import AUTO


def view_of(found: Checkup, wanted: str) -> CoordinatorAccess:
    """The view that `run` takes: the setting `coordinator_view`, or with `auto` the best view that is allowed."""
    if wanted != AUTO:
        return CoordinatorAccess(wanted)
    # If the coordinators cannot be asked about transactions, a log that is not shown may exist all the same.
    is_uncertain = TRANSACTION_STATE_TOPIC not in found.topic_operations and found.id_problems is None
    best = [access for access in CoordinatorAccess if _is_allowed(found, access)]
    return best[1] if is_uncertain and best[0] is CoordinatorAccess.LOG else best[0]


def view_row(found: Checkup, wanted: str) -> CheckRow:
    """One row; it is a warning if a right is missing for the best view, and not if a lower view is configured."""
    access = view_of(found, wanted)
    reads = f"`run` reads {TRANSACTION_STATE_TOPIC}"
    detail = f"{access}: {reads if access is CoordinatorAccess.LOG else undetected_text(access)}"
    health = Health.OK if access is CoordinatorAccess.LOG or wanted != AUTO else Health.WARNING
    if not _is_allowed(found, access):
        health, detail = Health.MISSING, f"{access}: it is configured, but a right is missing, so `run` does not start"
    return CheckRow("view", "coordinator view", health, detail, "run", None)


def _is_allowed(found: Checkup, access: CoordinatorAccess) -> bool:
    is_shown = TRANSACTION_STATE_TOPIC in found.topic_operations
    match access:
        case CoordinatorAccess.LOG:
            rights = found.topic_operations.get(TRANSACTION_STATE_TOPIC)
            return not found.has_unseen_log and (rights is None or READ in rights)
        case CoordinatorAccess.API:
            is_refused = found.id_problems is None or any(problem.is_denied for problem in found.id_problems)
            return not is_refused and (is_shown or not found.has_unseen_log)
        case CoordinatorAccess.NONE:
            return True
