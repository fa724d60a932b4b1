"""Estimates how many bytes `run` would move in a day with the settings of `txnwatch doctor`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

from txnwatch.cli.check_row import Caller, CheckRow
from txnwatch.cli.diagnosis_of_egress import census_row, egress_row, log_row
from txnwatch.connection import options_of
from txnwatch.state.model.coordinator_access import CoordinatorAccess
from txnwatch.streaming.admin.coordinator_log_bytes import coordinator_log_bytes
from txnwatch.streaming.admin.write_rates import write_rates
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.source.census_bytes import census_bytes

# The settings of `run` that decide how many bytes it moves, beside the topics that are scanned.
SETTINGS = ("census_topics", "foreign_topics", "coordinator_view", "census_interval_ms", "heal_interval_ms")


def egress_rows(
    cluster: Cluster, parsed: argparse.Namespace, access: CoordinatorAccess, caller: Caller
) -> Iterator[CheckRow]:
    """One row for each kind of reading; `parsed` has the topics and SETTINGS, `access` is the view that `run` takes."""
    options = replace(
        options_of(parsed.bootstrap_server, None),
        pattern=parsed.topics,
        census_pattern=parsed.census_topics,
        foreign_pattern=parsed.foreign_topics,
    )
    topics, now_ms = cluster.known.topics.values(), wall_clock_ms()
    scanned = [topic.name for topic in topics if options.watches(topic)]
    others = [topic.name for topic in topics if options.counts(topic)]
    yield egress_row(write_rates(cluster, scanned, now_ms), parsed.topics, caller)
    found = coordinator_log_bytes(cluster, now_ms) if access is CoordinatorAccess.LOG else None
    yield log_row(found, access, caller)
    yield census_row(
        census_bytes(cluster, scanned, now_ms),
        census_bytes(cluster, others, now_ms),
        parsed.heal_interval_ms,
        parsed.census_interval_ms,
    )
