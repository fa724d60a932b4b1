"""Chooses how the coordinators' view is known: the setting, or without one the best that this user's rights allow.

The order is `log`, `api`, `none`; each one proves less than the one before it (docs/decisions/0027). A broker that does
not answer now is no missing right: only a refusal, or an unsupported request, leads to a lower view.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafka.protocol.admin import DescribeTransactionsRequest, ListTransactionsRequest

from txnwatch.state.model.coordinator_access import CoordinatorAccess
from txnwatch.state.model.errors import AuthorizationError, BrokerError
from txnwatch.state.model.ids import TRANSACTION_STATE_TOPIC, BrokerId
from txnwatch.state.model.quantities import DurationMs
from txnwatch.streaming.admin.admin import ClusterAdmin
from txnwatch.streaming.admin.broker_settings import Settings, settings_of
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
        return ChosenView(CoordinatorAccess.LOG)
    if no_log is None and TRANSACTION_STATE_TOPIC not in cluster.known.topics and _unsupported(cluster) is not None:
        no_log = f"no broker shows {TRANSACTION_STATE_TOPIC}"  # it may exist: its coordinators cannot be asked
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


def _unsupported(cluster: Cluster) -> str | None:
    """The first request about transactions that a broker does not support; None if those that answer support all."""
    for node in sorted(cluster.known.brokers):
        try:
            connection = cluster.node(node)
        except BrokerError:
            continue
        for request in (ListTransactionsRequest, DescribeTransactionsRequest):
            if connection.version(request) is None:
                return f"broker {node} does not support {request.name.removesuffix('Request')}"
    return None


def _why_no_api(cluster: Cluster) -> str | None:
    """Why the coordinators cannot be asked; None if they can, or if some only do not answer now."""
    unsupported = _unsupported(cluster)
    if unsupported is not None:
        return unsupported
    problems = ClusterAdmin(cluster).list_transactions([]).problems
    denied = next((problem for problem in problems if problem.is_denied), None)
    return f"transactional ids: {denied}" if denied is not None else None


@dataclass(frozen=True, slots=True)
class BrokerTimeout:
    """The longest timeout that one broker allows.

    Attributes:
        ms: `transaction.max.timeout.ms`; None if the broker does not show it.
        is_unlimited: whether it allows two-phase transactions, which have no timeout.
        problem: why the two are not known, or do not limit a transaction.
    """

    ms: DurationMs | None
    is_unlimited: bool = False
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class LongestTimeout:
    """The longest timeout that all brokers allow; any of them can be a coordinator.

    Attributes:
        ms: the timeout; None if it is not known, or does not limit a transaction.
        is_unlimited: whether no timeout limits a transaction.
        problem: the reason for None.
    """

    ms: DurationMs | None
    is_unlimited: bool = False
    problem: str | None = None


UNKNOWN = LongestTimeout(None)


def broker_timeouts(cluster: Cluster) -> list[BrokerTimeout]:
    """The longest timeout of each broker."""
    found = settings_of(cluster, cluster.known.brokers, [_LONGEST_TIMEOUT, _TWO_PHASE])
    return [_timeout_of(node, settings) for node, settings in found.items()]


def _timeout_of(node: BrokerId, settings: Settings) -> BrokerTimeout:
    text = settings.values.get(_LONGEST_TIMEOUT, "")
    if not text.isdecimal():
        why = settings.problem or "it does not return it"
        return BrokerTimeout(None, problem=f"broker {node} does not show {_LONGEST_TIMEOUT}: {why}")
    if settings.values.get(_TWO_PHASE) == "true":
        why = f"broker {node} has {_TWO_PHASE}=true: no timeout limits such a transaction"
        return BrokerTimeout(DurationMs(int(text)), is_unlimited=True, problem=why)
    return BrokerTimeout(DurationMs(int(text)))


def longest_timeout(timeouts: Sequence[BrokerTimeout]) -> LongestTimeout:
    """The longest of the timeouts, if every broker shows one and none allows transactions without one."""
    obstacle = next((one for one in sorted(timeouts, key=lambda one: not one.is_unlimited) if one.problem), None)
    if obstacle is not None:
        return LongestTimeout(None, obstacle.is_unlimited, obstacle.problem)
    return LongestTimeout(max((one.ms for one in timeouts if one.ms is not None), default=None))
