"""Checks before the job starts: the cluster is reachable, and this user may read what verdicts depend on.

A missing right must not look like a hanging transaction, nor like a healthy cluster. So a topic that is configured by
its name and that this user may not describe is an error here, in one line. A topic that it may describe and not read is
only reported: nothing is proven on its partitions until the right is granted. Without the right to read the
coordinators' log, coordinator_view.py chooses another way, and the watch names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from txnwatch.state.model.errors import AuthorizationError
from txnwatch.state.model.ports import Log
from txnwatch.state.text.lists import some
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.metadata import TopicInfo
from txnwatch.streaming.job.checkpoint import check_files, check_same_cluster, last_cluster
from txnwatch.streaming.job.coordinator_view import ChosenView, choose_view
from txnwatch.streaming.job.read_right import hidden_topic, refused_read
from txnwatch.streaming.source.options import SourceOptions

_NAMED = 3
_NOTHING_PROVEN = "nothing is proven on the partitions of these topics until it is granted (docs/rights.md)"


@dataclass(frozen=True, slots=True)
class CheckedCluster:
    """The cluster that a watch begins with: its id, the topics watched now, and how the coordinators' view is known."""

    cluster_id: str
    topics: Sequence[TopicInfo]
    view: ChosenView


def check_cluster(
    cluster: Cluster, options: SourceOptions, checkpoint: str, wanted_view: str, log: Log
) -> CheckedCluster:
    """Checks a cluster before a watch begins; `wanted_view` is the setting `coordinator_view`.

    Raises:
        BrokerError: no broker answers.
        AuthorizationError: a right is missing; the message names topic and right.
        CheckpointError: the checkpoint belongs to another cluster, or is damaged.
    """
    metadata = cluster.refresh()
    _check_checkpoint(checkpoint, metadata.cluster_id)
    hidden = hidden_topic(cluster, options.topics)
    if hidden is not None:
        raise AuthorizationError(f"{hidden}: grant them to this user")
    view = choose_view(cluster, wanted_view)
    watched = [topic for topic in metadata.topics.values() if options.watches(topic)]
    unread = refused_read(cluster, watched)
    if unread:
        log.warning(f"{some(unread, _NAMED)}: {_NOTHING_PROVEN}")
    return CheckedCluster(metadata.cluster_id, watched, view)


def _check_checkpoint(checkpoint: str, cluster_id: str) -> None:
    check_files(checkpoint)
    check_same_cluster(checkpoint, last_cluster(checkpoint), cluster_id)
