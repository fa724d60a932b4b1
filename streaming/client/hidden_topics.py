"""Topics that Metadata does not show to this user: whether one is hidden, or not in the cluster.

A command that asks a cluster once needs this, and not what lists the cluster for a watch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, ErrorCode, Problem
from txnwatch.streaming.client.cluster import Cluster

NOT_SHOWN: Final = Problem("no broker shows it: its transactional ids are unknown")


def why_not_shown(cluster: Cluster, topic: str) -> str:
    """Why a topic is not in the metadata, as a text for an operator."""
    error = hidden_topics(cluster, [topic]).get(topic)
    if error is None:
        return "not in the cluster"
    return f"hidden from this user ({error}): whether it exists, and whether a transaction hangs there, is unknown"


def why_no_log(cluster: Cluster) -> Problem:
    """Why the metadata lacks the coordinators' log: if it is hidden, a request by name is refused.

    A proxy may even report that the log does not exist. So an unknown log does not prove that there are no ids.

    Raises:
        BrokerError: no broker answered.
    """
    log = cluster.named([TRANSACTION_STATE_TOPIC]).get(TRANSACTION_STATE_TOPIC)
    if log is None or log.error is None or log.error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return NOT_SHOWN
    return log.error.with_hint("its transactional ids are unknown")


def hidden_topics(cluster: Cluster, names: Iterable[str]) -> dict[str, Problem]:
    """Those of some topics that may exist but are hidden from this user, with the error; at most one request."""
    shown = cluster.metadata.topics if cluster.metadata is not None else {}
    missing = sorted(name for name in set(names) if name not in shown or shown[name].is_hidden)
    if not missing:
        return {}
    try:
        named = cluster.named(missing)
    except BrokerError as exc:
        return dict.fromkeys(missing, Problem.from_error(exc))
    return {name: topic.error for name, topic in named.items() if topic.is_hidden and topic.error is not None}
