"""The values of the metrics' labels that are known beforehand: stages, states, verdicts, results and reasons."""

from __future__ import annotations

from itertools import product
from typing import Final

from txnwatch.state.abort.rules import RULE_OF_REFUSAL
from txnwatch.state.detection.open_transactions import OWNER_UNKNOWN, UNOWNED
from txnwatch.state.evidence.confirmation import Answer
from txnwatch.state.model.completion_latency import Stage
from txnwatch.state.model.errors import SkipReason
from txnwatch.state.model.facts import NoticeKind
from txnwatch.state.model.findings import Mismatch
from txnwatch.state.model.incident_payload import ActionResult, Decision, IncidentStatus
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.verdicts import RULE_OF

STAGES = {
    Stage.APPEND: "transaction_state_append_seconds",
    Stage.MARKERS: "transaction_marker_completion_seconds",
    Stage.COMPLETION: "transaction_completion_seconds",
    Stage.FAILOVER: "transaction_failover_completion_seconds",
}
PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
COMPLETE = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}
TARGETS = {stage: PREPARED if stage is Stage.APPEND else tuple(COMPLETE.values()) for stage in Stage}
_NONE = "none"
# Series with labels that are known beforehand exist from the start: a rate needs a first sample of zero.
INITIAL_SERIES: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "partition_notices_total": tuple((kind,) for kind in NoticeKind if kind is not NoticeKind.LEFT),
    "view_mismatches_total": tuple((mismatch,) for mismatch in Mismatch),
    "census_rounds_total": (("complete",), ("incomplete",)),
    "throttled_seconds_total": (("Fetch",),),
    "open_incidents": tuple((verdict, rule.severity) for verdict, rule in RULE_OF.items()),
    "events_total": tuple(product(RULE_OF, IncidentStatus)),
    "detection_latency_seconds": tuple((verdict,) for verdict in RULE_OF),
    "confirmations_total": tuple(product((verdict for verdict, rule in RULE_OF.items() if rule.is_read_again), Answer)),
    "abort_decisions_total": (
        *((Decision.ABORT, result) for result in (_NONE, *ActionResult)),
        (Decision.DRY_RUN, _NONE),
        *((Decision.REFUSED, refusal) for refusal, rule in RULE_OF_REFUSAL.items() if rule.is_published),
    ),
    "events_passed_over_total": tuple((why,) for why in SkipReason),
    "transactions": tuple((state,) for state in (TransactionState.ONGOING, *PREPARED, UNOWNED, OWNER_UNKNOWN)),
    "transactions_pending_markers": tuple((COMPLETE[state],) for state in PREPARED),
}
