"""`txnwatch page`: the page of one or several clusters, made from their events topics and, if given, from Redis.

It runs apart from any watcher, and asks a cluster for nothing but the records of its events topic. SIGTERM and Ctrl-C
end it. SIGHUP reads the files again: the clusters, the owners, and what the entries of the clusters name.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

from prometheus_client import GC_COLLECTOR, PLATFORM_COLLECTOR, PROCESS_COLLECTOR, CollectorRegistry

from txnwatch.cli.one_shot import (
    add_connection_flags,
    add_events_flags,
    add_flags,
    add_owners_flag,
    options_of,
    redis_url,
)
from txnwatch.cli.output import CLEAN, LOG, log_to_stdout
from txnwatch.config import RunSettings, events_flags
from txnwatch.librdkafka import decoder, events_keys, librdkafka_config, registry_codec
from txnwatch.owners.owner_table import OwnerTable, read_owners
from txnwatch.page.clusters import SHARED, ClusterEntry, ClustersSite, read_clusters
from txnwatch.page.follower import ClusterSource, Follower
from txnwatch.page.served_page import PageSite
from txnwatch.page.site_files import OwnHosts
from txnwatch.page.store import KnownNow, PageStore
from txnwatch.setting_sources import client_properties
from txnwatch.sinks.delivery.events_topic import EventLog
from txnwatch.sinks.delivery.redis_sink import RedisPage
from txnwatch.state.model.errors import ConfigError, TxnwatchError
from txnwatch.state.telling.commands import Origin
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.web.server import Served, WebServer, serving
from txnwatch.web.web_config import read_web_config

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
        f"one of --bootstrap-server. It asks a cluster nothing else. The port is {DEFAULT_PORT} if none is given. "
        "SIGHUP reads the files again.",
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
    port = parsed.http_port if parsed.http_port is not None else DEFAULT_PORT
    clusters = FollowedClusters(parsed)
    with on_signals() as signals, serving(parsed, port, _served(), LOG, clusters.site) as server:
        LOG.info(f"following {clusters.names}")
        clusters.start()
        while signals.wait():
            clusters.reload(server)
    clusters.stop()
    return CLEAN


@dataclass(frozen=True, slots=True)
class _Plan:
    """What decides how a cluster is followed: if nothing of it has changed, a reload leaves the cluster alone.

    Attributes:
        files: the content of the files that the entry names.
    """

    entry: ClusterEntry
    owners: OwnerTable
    files: tuple[bytes, ...]


class _Followed(NamedTuple):
    plan: _Plan
    site: PageSite
    follower: Follower


class FollowedClusters:
    """The clusters of the page, and the threads that follow them."""

    def __init__(self, parsed: argparse.Namespace) -> None:
        self._parsed = parsed
        self._hosts = OwnHosts(parsed.http_names)
        self._all = [self._follow(plan) for plan in _plans(parsed, parsed.owners)]
        self.site = ClustersSite([one.site for one in self._all], wall_clock_ms, self._hosts)

    @property
    def names(self) -> str:
        """The names of the clusters, in order."""
        return ", ".join(one.plan.entry.name for one in self._all)

    def _follow(self, plan: _Plan) -> _Followed:
        source, store = _source(plan.entry, plan.owners), PageStore(seen=KnownNow())
        site = PageSite(store, wall_clock_ms, functools.partial(_ends, store), self._hosts, source.name)
        return _Followed(
            plan, site, Follower(source, store, wall_clock_ms, LOG, functools.partial(_is_looked_at, site))
        )

    def start(self) -> None:
        """Starts the threads."""
        for one in self._all:
            one.follower.start()

    def stop(self) -> None:
        """Stops the threads."""
        for one in self._all:
            one.follower.stop()

    def reload(self, server: WebServer) -> None:
        """Reads the files again, and follows what they name now. If anything is invalid, nothing changes."""
        before = self._all
        try:
            web = read_web_config(self._parsed.http_web_config_file)
            plans = _plans(self._parsed, read_owners(self._parsed.owners_file))
            known = [(plan, next((one for one in before if one.plan == plan), None)) for plan in plans]
            self._all = [one if one is not None else self._follow(plan) for plan, one in known]
        except (TxnwatchError, OSError) as exc:
            LOG.warning(f"SIGHUP: nothing is reloaded: {exc}")
            return
        server.protect(web)
        new, gone = _without(self._all, before), _without(before, self._all)
        self.site.replace([one.site for one in self._all])
        for one in gone:
            one.follower.stop()
        for one in new:
            one.follower.start()
        LOG.info(f"SIGHUP: following {self.names}; new or changed: {_names(new)}; no longer as before: {_names(gone)}")


def _without(found: Sequence[_Followed], others: Sequence[_Followed]) -> list[_Followed]:
    known = set(map(id, others))
    return [one for one in found if id(one) not in known]


def _names(found: Sequence[_Followed]) -> str:
    return ", ".join(one.plan.entry.name for one in found) or "none"


def _plans(parsed: argparse.Namespace, owners: OwnerTable) -> list[_Plan]:
    return [_Plan(entry, owners, _contents(entry)) for entry in _entries(parsed)]


def _contents(entry: ClusterEntry) -> tuple[bytes, ...]:
    """The content of the files of an entry; a file that cannot be read is reported where it is used."""
    found = []
    for path in (entry.command_config, entry.events_key_file):
        try:
            found.append(path.read_bytes() if path is not None else b"")
        except OSError:
            found.append(b"")
    return tuple(found)


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
    flags = events_flags(entry.events_topic, entry.schema_registry_url, key_file=entry.events_key_file)
    return Origin(cluster_id, entry.bootstrap_server, _absolute(entry.command_config), flags, owners=owners)


def _absolute(path: Path | None) -> str | None:
    return str(path.absolute()) if path is not None else None


class _Signals:
    """What the signals ask for.

    Law: a handler takes no lock that the main thread can hold. It only starts a thread, which sets what is asked for.
    """

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._is_over = False

    def wait(self) -> bool:
        """Waits for a signal; returns whether the files have to be read again. False: the process has to end."""
        self._asked.wait()
        self._asked.clear()
        return not self._is_over

    def on_signal(self, number: int, _: FrameType | None) -> None:
        """The handler."""
        self._is_over |= number != signal.SIGHUP
        threading.Thread(target=self._asked.set, daemon=True).start()


@contextlib.contextmanager
def on_signals() -> Iterator[_Signals]:
    """SIGTERM and Ctrl-C end the process while the block runs; SIGHUP reloads."""
    signals = _Signals()
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.signal(number, signals.on_signal) for number in numbers}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
