"""Builds what several commands need: the search on a real cluster, and the events topic that the flags name."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from txnwatch.cli.log_output import ROOT as LOG
from txnwatch.cluster_connection import options_of
from txnwatch.librdkafka import decoder, events_keys, librdkafka_config, registry_codec
from txnwatch.setting_sources import client_properties
from txnwatch.sinks.delivery.encoding import Keys
from txnwatch.sinks.delivery.event_log import Found, SkippedRecords, read_events
from txnwatch.state.evidence.search_result import OwnerViews
from txnwatch.state.incidents.event_builder import Origin
from txnwatch.state.model.values import ProducerId
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.streaming.admin import list_transactions as open_for
from txnwatch.streaming.admin.broker_settings import with_scan_interval
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.coordinator_log import read_views
from txnwatch.streaming.search.searcher import Searcher


@dataclass(slots=True)
class Question:
    """What the parts of `explain` share; `missing` is what the answer does not cover, with the reason."""

    cluster: Cluster
    origin: Origin
    searcher: Searcher
    missing: dict[str, str] = field(default_factory=dict)


def searcher_of(
    cluster: Cluster,
    policy: DetectionPolicy,
    foreign_topics: str | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Searcher:
    """The search on a real cluster, with the configured thresholds."""

    def read_log(producer_ids: Collection[ProducerId]) -> OwnerViews:
        found = read_views(cluster, producer_ids)
        problems = {str(partition): why for partition, why in found.problems.items()}
        return OwnerViews(found.views, problems, found.led, found.epochs)

    is_open_for_longer = partial(open_for.is_open_for_longer, cluster)
    known = with_scan_interval(policy, cluster)
    return Searcher(
        ClusterAdmin(cluster),
        read_log,
        is_open_for_longer,
        wall_clock_ms,
        known,
        progress,
        foreign_topics=foreign_topics,
    )


# Reads the events topic with a command's flags, and reports records that are not events.


def keys_of(parsed: argparse.Namespace) -> Keys | None:
    """The keys of `--events-key-file`; None without the flag.

    Raises:
        ConfigError: the file has no key, or cannot be read.
    """
    path = Path(parsed.events_key_file) if parsed.events_key_file else None
    return events_keys(path, LOG.warning)


def read_events_topic(parsed: argparse.Namespace, *, follow: bool = False) -> Iterator[Found]:
    """Reads the events topic that the flags name.

    Raises:
        BrokerError: the topic does not exist, or cannot be read to its end.
        ConfigError: the settings of the registry, the client properties or the keys are invalid.
    """
    config = librdkafka_config(options_of(parsed.bootstrap_server, parsed.command_config))
    properties = client_properties(parsed.command_config)
    decode = decoder(registry_codec(parsed.schema_registry_url, properties, parsed.events_topic))
    return read_events(config, parsed.events_topic, follow=follow, decode=decode, keys=keys_of(parsed))


def passed_over() -> SkippedRecords:
    """A counter of records that are not events; it reports to the log."""
    return SkippedRecords(LOG.warning, wall_clock_ms)
