"""How long a transaction has been open by its coordinator's clock.

state/evidence/age_claims.py explains what that proves.
"""

from __future__ import annotations

from kafka.protocol.admin import ListTransactionsRequest

from txnwatch.state.model.description import DescribedTransaction
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.problem import Problem
from txnwatch.state.model.quantities import DurationMs
from txnwatch.streaming.admin import requests as messages
from txnwatch.streaming.admin.queries import DURATION_SINCE, Filters, list_request
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.error_names import problem_of
from txnwatch.streaming.log.coordinator_log import newest_stamps

_NOT_ASKED = Problem("brokers before 3.8 cannot answer this, and no timestamp of its coordinator is recent enough")


def is_open_for_longer(cluster: Cluster, described: DescribedTransaction, open_for_ms: DurationMs) -> bool | Problem:
    """Whether it has been open for longer than `open_for_ms` by its coordinator's clock, or why that is unknown."""
    node = described.coordinator
    try:
        version = cluster.node(node).version(ListTransactionsRequest)
    except BrokerError as exc:
        return Problem.from_error(exc)
    if version is None or version < DURATION_SINCE:
        reached_ms = max((one.stamp_ms for one in newest_stamps(cluster) if one.broker == node), default=None)
        if reached_ms is None or described.start_ms is None:
            return _NOT_ASKED
        return reached_ms - described.start_ms > open_for_ms or _NOT_ASKED
    asked = list_request(Filters(producer_ids=(described.producer_id,), longer_than_ms=open_for_ms))
    (answer,) = cluster.ask({node: asked}, cluster.timeout_s).values()
    if isinstance(answer, BrokerError):
        return Problem.from_error(answer)
    refused = problem_of(answer.error_code)
    if refused is not None:
        return refused
    rows, problem = messages.listed_transactions(answer, node)
    return any(row.transactional_id == described.transactional_id for row in rows) or problem or False
