"""Connects `txnwatch abort` to a cluster and to its events topic; sinks/abort/manual.py has the abort."""

from __future__ import annotations

import argparse
import contextlib
import getpass
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial

from txnwatch.cli.cluster_search import searcher_of
from txnwatch.cli.events_read import keys_of
from txnwatch.cli.log_output import ROOT as LOG
from txnwatch.cli.one_shot import origin_of
from txnwatch.client_properties import client_properties
from txnwatch.connection import options_of
from txnwatch.librdkafka import EventsTopic, events_topic, librdkafka_config
from txnwatch.sinks.abort.manual import ManualAbort, ManualTarget, Publish
from txnwatch.sinks.delivery.kafka import KafkaEventsTopic
from txnwatch.sinks.incidents.search import Search
from txnwatch.state.events.record_size import fitting
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.policy import DetectionPolicy
from txnwatch.state.text.grant import Grantee
from txnwatch.streaming.admin.admin import ClusterAdmin
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.security import principal_of
from txnwatch.streaming.job.events_rights import check_write
from txnwatch.streaming.source.hidden_participants import hidden_topics, why_not_shown
from txnwatch.streaming.source.options import SourceOptions

_TIMEOUT_S = 10.0
_BETWEEN_READS_S = 1.0
Publishing = Callable[[], AbstractContextManager[Publish]]


@contextlib.contextmanager
def abort_on_cluster(parsed: argparse.Namespace, target: ManualTarget) -> Iterator[tuple[ManualAbort, Publishing]]:
    """Connects with the connection flags; also returns what opens the events topic."""
    options = options_of(parsed.bootstrap_server, parsed.command_config)
    events = events_topic(
        parsed.events_topic,
        parsed.events_format,
        parsed.schema_registry_url,
        client_properties(parsed.command_config),
        keys_of(parsed),
    )
    with contextlib.closing(Cluster(options.bootstrap, options.security, timeout_s=_TIMEOUT_S)) as cluster:
        abort = ManualAbort(
            target=target,
            admin=ClusterAdmin(cluster),
            search=partial(_search, cluster, parsed.foreign_topics),
            absence=partial(_absence, cluster),
            origin=origin_of(cluster, parsed),
            operator=f"{getpass.getuser()}@{socket.gethostname()}",
            now_ms=wall_clock_ms,
            pause=lambda: time.sleep(_BETWEEN_READS_S),
        )
        grantee = Grantee(parsed.bootstrap_server, principal_of(options.security), abort.origin.command_config)
        yield abort, partial(_publishing, cluster, options, events, grantee)


def _search(
    cluster: Cluster,
    foreign_topics: str | None,
    partition: TopicPartition,
    is_wanted: Callable[[SpanCandidate], bool],
) -> Search:
    cluster.refresh()
    # A hang has no threshold.
    return searcher_of(cluster, DetectionPolicy(), foreign_topics).search([partition], is_wanted)


def _absence(cluster: Cluster, partition: TopicPartition) -> str | None:
    return why_not_shown(cluster, partition.topic) if cluster.known.info(partition) is None else None


@contextlib.contextmanager
def _publishing(cluster: Cluster, options: SourceOptions, events: EventsTopic, grantee: Grantee) -> Iterator[Publish]:
    """Publishes on the events topic; a cluster that is not watched has no such topic, and it is not created.

    Raises:
        AuthorizationError: the user may not write to it.
    """
    if events.name not in cluster.refresh().topics:
        hidden = hidden_topics(cluster, [events.name]).get(events.name)
        if hidden is not None:
            LOG.warning(f"events topic {events.name!r}: no event of this abort is published: {hidden}")
        yield lambda _: None
        return
    check_write(cluster, events.name, grantee)
    config = librdkafka_config(options)
    with contextlib.closing(KafkaEventsTopic(config, events.name, events.encoding, keys=events.keys)) as topic:

        def publish(event: IncidentEvent) -> None:
            topic.publish([fitting(event)])

        yield publish
