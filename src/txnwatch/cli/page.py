"""`txnwatch page`: the page of one or several clusters, made from their events topics and, if given, from Redis.

It runs apart from any watcher, and asks a cluster for nothing but the records of its events topic. SIGTERM and Ctrl-C
end it.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

from prometheus_client import GC_COLLECTOR, PLATFORM_COLLECTOR, PROCESS_COLLECTOR, CollectorRegistry

from txnwatch.cli.log_output import ROOT as LOG
from txnwatch.cli.log_output import log_to_stdout
from txnwatch.cli.one_shot import (
    add_connection_flags,
    add_events_flags,
    add_flags,
    add_owners_flag,
    redis_url,
)
from txnwatch.cli.output import CLEAN
from txnwatch.cluster_connection import options_of
from txnwatch.config import EVENTS_TOPIC, RunSettings
from txnwatch.librdkafka import decoder, events_keys, librdkafka_config, registry_codec
from txnwatch.owners.owner_table import OwnerTable
from txnwatch.page.clusters_file import SHARED, ClusterEntry, read_clusters
from txnwatch.page.clusters_site import ClustersSite
from txnwatch.page.follower import ClusterSource, Follower
from txnwatch.page.own_hosts import OwnHosts
from txnwatch.page.served_page import PageSite
from txnwatch.page.store import KnownNow, PageStore
from txnwatch.setting_sources import client_properties
from txnwatch.sinks.delivery.event_log import EventLog
from txnwatch.sinks.delivery.redis_page import RedisPage
from txnwatch.state.incidents.event_builder import EventsFlags, Origin
from txnwatch.state.model.errors import ConfigError
from txnwatch.state.text import without_credentials
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.web.server import Served, serving

DEFAULT_PORT: Final = 9465  # beside a watcher on the same machine, which usually has 9464
_ALONE: Final = "cluster"  # the name of the only cluster, which needs none
_HTTP_FLAGS: Final = ("http_port", "http_host", "http_names", "http_web_config_file", "log_format")
_TIMEOUT_S: Final = 10.0


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse's private type
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "page",
        help="serve the page of one or several clusters, apart from any watcher",
        description="Serves the page and its JSON until it is stopped, from the events topic of each cluster: its "
        "incidents, and the heartbeats of its watchers. The open transactions come from Redis, if it is given: a "
        "watcher with --redis-url writes them while somebody looks. The clusters are those of --clusters-file, or the "
        f"one of --bootstrap-server. It asks a cluster nothing else. The port is {DEFAULT_PORT} if none is given.",
    )
    parser.add_argument(
        "--clusters-file",
        type=Path,
        metavar="FILE",
        help="TOML file with the clusters; see docs/page.md",
    )
    add_connection_flags(parser, is_required=False)
    add_events_flags(parser)
    parser.add_argument(
        "--redis-url", type=redis_url, metavar="URL", help="redis://host:port/db that `txnwatch run` fills"
    )
    add_owners_flag(parser)
    add_flags(parser, RunSettings, only=_HTTP_FLAGS)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Serves until it is stopped.

    Raises:
        ConfigError: there is no cluster, or a setting is invalid.
    """
    log_to_stdout(parsed.log_format)
    hosts = OwnHosts(parsed.http_names)
    sources = [_source(entry, parsed.owners) for entry in _entries(parsed)]
    sites = [
        PageSite(store, wall_clock_ms, functools.partial(_ends, store), hosts, source.name)
        for source in sources
        for store in [PageStore(seen=KnownNow())]
    ]
    followers = [
        Follower(source, site.store, wall_clock_ms, LOG, functools.partial(_is_looked_at, site))
        for source, site in zip(sources, sites, strict=True)
    ]
    port = parsed.http_port if parsed.http_port is not None else DEFAULT_PORT
    with _until_stopped() as stopped, serving(parsed, port, _served(), LOG, ClustersSite(sites, wall_clock_ms, hosts)):
        LOG.info(f"following {', '.join(source.name for source in sources)}")
        for follower in followers:
            follower.start()
        stopped.wait()
    for follower in followers:
        follower.stop()
    return CLEAN


def _ends(store: PageStore) -> Any:  # noqa: ANN401 - a mapping
    return store.seen.ends


def _is_looked_at(site: PageSite) -> bool:
    return site.is_looked_at


def _served() -> Served:
    """The process itself is all that is measured here: the metrics of a watcher are those of the watcher."""
    registry = CollectorRegistry()
    for collector in (PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR):
        registry.register(collector)
    return Served(registry, lambda: True)


def _entries(parsed: argparse.Namespace) -> Sequence[ClusterEntry]:
    """The clusters: those of the file, or the one of the flags."""
    if parsed.clusters_file is not None:
        given = sorted(parsed.given & set(SHARED))
        if given:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise ConfigError(f"--clusters-file: expected the clusters in the file or as flags, found {flags} as well")
        return read_clusters(parsed.clusters_file)
    if parsed.bootstrap_server is None:
        raise ConfigError("page: expected --clusters-file or --bootstrap-server, found neither")
    return [ClusterEntry(name=_ALONE, **{name: getattr(parsed, name) for name in SHARED})]


def _source(entry: ClusterEntry, owners: OwnerTable) -> ClusterSource:
    """Where the knowledge about a cluster is; checks everything that needs no server.

    Raises:
        ConfigError: a file cannot be read, or is invalid.
    """
    keys = events_keys(entry.events_key_file, LOG.warning)
    properties = client_properties(entry.command_config)
    decode = decoder(registry_codec(entry.schema_registry_url, properties, entry.events_topic))

    def open_log() -> EventLog:
        config = librdkafka_config(options_of(entry.bootstrap_server, entry.command_config))
        return EventLog(config, entry.events_topic, decode, keys, timeout_s=_TIMEOUT_S, report=LOG.warning)

    librdkafka_config(options_of(entry.bootstrap_server, entry.command_config))  # an invalid setting is an error now
    return ClusterSource(
        name=entry.name,
        open_log=open_log,
        origin_of=functools.partial(_origin, entry, owners),
        owners=owners,
        redis=RedisPage(entry.redis_url, keys) if entry.redis_url is not None else None,
        watcher_url=entry.watcher_url,
    )


def _origin(entry: ClusterEntry, owners: OwnerTable, cluster_id: str) -> Origin:
    """What the commands about a cluster share."""
    url = entry.schema_registry_url
    flags = EventsFlags(
        entry.events_topic if entry.events_topic != EVENTS_TOPIC else None,
        schema_registry_url=without_credentials(url) if url is not None else None,
        events_key_file=_absolute(entry.events_key_file),
    )
    return Origin(cluster_id, entry.bootstrap_server, _absolute(entry.command_config), flags, owners=owners)


def _absolute(path: Path | None) -> str | None:
    return str(path.absolute()) if path is not None else None


@contextlib.contextmanager
def _until_stopped() -> Iterator[threading.Event]:
    """An event that SIGTERM and Ctrl-C set. The handler takes no lock that the main thread can hold: it only waits."""
    stopped = threading.Event()

    def stop(_: int, __: FrameType | None) -> None:
        threading.Thread(target=stopped.set, daemon=True).start()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
