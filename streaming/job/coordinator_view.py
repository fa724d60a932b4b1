"""Chooses how the coordinators' view is known: the setting, or without one the best that this user's rights allow.

The order is `log`, `api`, `none`; each one proves less than the one before it (docs/decisions/0027). A broker that does
not answer now is no missing right: only a refusal, or an unsupported request, leads to a lower view.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka.protocol.admin import DescribeTransactionsRequest, ListTransactionsRequest

from txnwatch.state.model.coordinator_access import CoordinatorAccess
from txnwatch.state.model.errors import AuthorizationError, BrokerError
from txnwatch.state.model.ids import TRANSACTION_STATE_TOPIC
from txnwatch.state.model.quantities import DurationMs
from txnwatch.streaming.admin.admin import ClusterAdmin
from txnwatch.streaming.admin.broker_settings import settings_of
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.job.read_right import hidden_topic, refused_read

AUTO = "auto"
_LONGEST_TIMEOUT, _TWO_PHASE = "transaction.max.timeout.ms", "transaction.two.phase.commit.enable"


@dataclass(frozen=True, slots=True)
class ChosenView:
    """The chosen access, and the reasons why each better one is not used; no reasons if the setting names it."""

    access: CoordinatorAccess
    reasons: tuple[str, ...] = ()


def choose_view(cluster: Cluster, wanted: str) -> ChosenView:
    """The view for a setting: `auto` is the best that the rights allow.

    Raises:
        AuthorizationError: the setting names a view, and a right for it is missing.
        BrokerError: no broker answers.
    """
    if wanted == CoordinatorAccess.NONE:
        return ChosenView(CoordinatorAccess.NONE)
    if wanted == CoordinatorAccess.API:
        _require(_why_no_api(cluster))
        return ChosenView(CoordinatorAccess.API)
    no_log = _why_no_log(cluster)
    if wanted == CoordinatorAccess.LOG:
        _require(no_log)
    if no_log is None:
        return ChosenView(CoordinatorAccess.LOG)
    no_api = _why_no_api(cluster)
    if no_api is None:
        return ChosenView(CoordinatorAccess.API, (no_log,))
    return ChosenView(CoordinatorAccess.NONE, (no_log, no_api))


def _require(problem: str | None) -> None:
    if problem is not None:
        raise AuthorizationError(f"{problem}: grant it to this user, or set --coordinator-view")


def _why_no_log(cluster: Cluster) -> str | None:
    """Why the coordinators' log cannot be read; None if it can, or if no transaction was begun yet."""
    hidden = hidden_topic(cluster, [TRANSACTION_STATE_TOPIC])
    if hidden is not None:
        return hidden
    shown = cluster.known.topics.get(TRANSACTION_STATE_TOPIC)
    refused = refused_read(cluster, [shown]) if shown is not None else []
    return refused[0] if refused else None


def _why_no_api(cluster: Cluster) -> str | None:
    """Why the coordinators cannot be asked; None if they can, or if some only do not answer now."""
    for node in sorted(cluster.known.brokers):
        try:
            connection = cluster.node(node)
        except BrokerError:
            continue
        for request in (ListTransactionsRequest, DescribeTransactionsRequest):
            if connection.version(request) is None:
                return f"broker {node} does not support {request.name.removesuffix('Request')}"
    problems = ClusterAdmin(cluster).list_transactions([]).problems
    denied = next((problem for problem in problems if problem.is_denied), None)
    return f"transactional ids: expected the right DESCRIBE on all of them: {denied}" if denied is not None else None


@dataclass(frozen=True, slots=True)
class LongestTimeout:
    """The longest timeout that the brokers allow, and why it is not known or does not limit a transaction."""

    ms: DurationMs | None
    problem: str | None = None


def longest_timeout(cluster: Cluster) -> LongestTimeout:
    """The largest `transaction.max.timeout.ms` of the brokers: any of them can be a coordinator."""
    found_ms: list[DurationMs] = []
    for node, found in settings_of(cluster, cluster.known.brokers, [_LONGEST_TIMEOUT, _TWO_PHASE]).items():
        text = found.values.get(_LONGEST_TIMEOUT, "")
        if not text.isdecimal():
            why = found.problem or "it does not return it"
            return LongestTimeout(None, f"broker {node} does not show {_LONGEST_TIMEOUT}: {why}")
        if found.values.get(_TWO_PHASE) == "true":
            return LongestTimeout(None, f"broker {node} has {_TWO_PHASE}=true: no timeout limits such a transaction")
        found_ms.append(DurationMs(int(text)))
    return LongestTimeout(max(found_ms, default=None))
