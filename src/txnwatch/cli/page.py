"""`txnwatch page`: the page of one or several clusters, made from what their watchers tell over HTTP.

It runs apart from any watcher, and asks no cluster for anything. SIGTERM and Ctrl-C end it. SIGHUP reads the files
again: the clusters and the owners.
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

from txnwatch.cli.one_shot import add_connection_flags, add_events_flags, add_flags, add_owners_flag, never
from txnwatch.cli.output import CLEAN, LOG, log_to_stdout
from txnwatch.config import RunSettings, events_flags
from txnwatch.owners.owner_table import OwnerTable, read_owners
from txnwatch.page.asking import ClusterAsker, ClusterSource, WatcherLogin, WatcherPlace
from txnwatch.page.clusters import ClustersSite
from txnwatch.page.clusters_file import SHARED, ClusterEntry, clusters_of, read_clusters
from txnwatch.page.served_page import PageSite
from txnwatch.page.site_files import OwnHosts
from txnwatch.page.store import KnownNow, PageStore
from txnwatch.state.model.errors import ConfigError, TxnwatchError
from txnwatch.state.telling.commands import Origin
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.web.server import Served, WebServer, serving
from txnwatch.web.web_config import read_web_config

DEFAULT_PORT: Final = 9465  # beside a watcher on the same machine, which usually has 9464
_HTTP_FLAGS: Final = ("http_port", "http_host", "http_names", "http_web_config_file", "log_format")


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse's private type
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "page",
        help="serve the page of one or several clusters, apart from any watcher",
        description="Serves the page and its JSON until it is stopped, from what the watchers of the clusters tell "
        "over HTTP (--http-port of `txnwatch run`). The clusters are those of --clusters-file, or those of --watcher. "
        "It connects to no broker: --bootstrap-server and the flags about the events topic are for the commands that "
        f"it shows about the only cluster. The port is {DEFAULT_PORT} if none is given. SIGHUP reads the files again.",
    )
    parser.add_argument(
        "--clusters-file",
        type=Path,
        metavar="FILE",
        help="TOML file with the clusters, and the logins of their watchers; see docs/page.md",
    )
    parser.add_argument(
        "--watcher",
        action="append",
        metavar="NAME=URL",
        help="the name of a cluster, and the address of its watcher; several are allowed, also for one cluster",
    )
    add_connection_flags(parser, never)
    add_events_flags(parser)
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
    clusters = AskedClusters(parsed)
    with on_signals() as signals, serving(parsed, port, _served(), LOG, clusters.site) as server:
        LOG.info(f"asking the watchers of {clusters.names}")
        clusters.start()
        while signals.wait():
            clusters.reload(server)
    clusters.stop()
    return CLEAN


@dataclass(frozen=True, slots=True)
class _Plan:
    """What decides how a cluster is shown: if nothing of it has changed, a reload leaves the cluster alone."""

    entry: ClusterEntry
    owners: OwnerTable


class _Asked(NamedTuple):
    plan: _Plan
    site: PageSite
    asker: ClusterAsker


class AskedClusters:
    """The clusters of the page, and the threads that ask their watchers."""

    def __init__(self, parsed: argparse.Namespace) -> None:
        self._parsed = parsed
        self._hosts = OwnHosts(parsed.http_names)
        self._all = [self._asked(plan) for plan in _plans(parsed, parsed.owners)]
        self.site = ClustersSite([asked.site for asked in self._all], wall_clock_ms, self._hosts)

    @property
    def names(self) -> str:
        """The names of the clusters, in order."""
        return ", ".join(asked.plan.entry.name for asked in self._all)

    def _asked(self, plan: _Plan) -> _Asked:
        source, store = _source(plan.entry, plan.owners), PageStore(seen=KnownNow())
        asker = ClusterAsker(source, store, wall_clock_ms, LOG)
        site = PageSite(store, asker.now_ms, functools.partial(_ends, store), self._hosts, source.name)
        asker.is_looked_at = functools.partial(_is_looked_at, site)
        return _Asked(plan, site, asker)

    def start(self) -> None:
        """Starts the threads."""
        for asked in self._all:
            asked.asker.start()

    def stop(self) -> None:
        """Stops the threads."""
        for asked in self._all:
            asked.asker.stop()

    def reload(self, server: WebServer) -> None:
        """Reads the files again, and asks the watchers that they name now. If anything is invalid, nothing changes."""
        before = self._all
        try:
            web = read_web_config(self._parsed.http_web_config_file)
            plans = _plans(self._parsed, read_owners(self._parsed.owners_file))
            asked_before = [(plan, next((asked for asked in before if asked.plan == plan), None)) for plan in plans]
            self._all = [asked if asked is not None else self._asked(plan) for plan, asked in asked_before]
        except (TxnwatchError, OSError) as exc:
            LOG.warning(f"SIGHUP: nothing is reloaded: {exc}")
            return
        server.protect(web)
        new, gone = _without(self._all, before), _without(before, self._all)
        self.site.replace([asked.site for asked in self._all])
        for asked in gone:
            asked.asker.stop()
        for asked in new:
            asked.asker.start()
        changed = f"new or changed: {_names(new)}; no longer as before: {_names(gone)}"
        LOG.info(f"SIGHUP: asking the watchers of {self.names}; {changed}")


def _without(clusters: Sequence[_Asked], others: Sequence[_Asked]) -> list[_Asked]:
    other_ids = set(map(id, others))
    return [asked for asked in clusters if id(asked) not in other_ids]


def _names(clusters: Sequence[_Asked]) -> str:
    return ", ".join(asked.plan.entry.name for asked in clusters) or "none"


def _plans(parsed: argparse.Namespace, owners: OwnerTable) -> list[_Plan]:
    return [_Plan(entry, owners) for entry in _entries(parsed)]


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
    """The clusters: those of the file, or those of the flags."""
    if parsed.clusters_file is not None:
        given = [name for name in SHARED if name in parsed.given] + (["watcher"] if parsed.watcher else [])
        if given:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise ConfigError(f"--clusters-file: expected the clusters in the file or as flags, found {flags} as well")
        return read_clusters(parsed.clusters_file)
    if not parsed.watcher:
        raise ConfigError("page: expected --clusters-file or --watcher, found neither")
    entries = clusters_of(parsed.watcher, {name: getattr(parsed, name) for name in SHARED})
    given = [name for name in SHARED if name in parsed.given]
    if given and len(entries) > 1:
        flag = given[0].replace("_", "-")
        raise ConfigError(
            f"--{flag}: expected one cluster, found {len(entries)}: --clusters-file has settings for each"
        )
    return entries


def _source(entry: ClusterEntry, owners: OwnerTable) -> ClusterSource:
    """Where the knowledge about a cluster is; checks everything that needs no watcher.

    Raises:
        ConfigError: a file cannot be read, or is invalid.
    """
    login = None
    if entry.user is not None and entry.password_file is not None:
        login = WatcherLogin(entry.user, entry.password_file)
        login.check()
    places = [WatcherPlace(url, client, login) for url, client in zip(entry.watchers, entry.clients(), strict=True)]
    return ClusterSource(
        name=entry.name,
        watchers=places,
        origin_of=functools.partial(_origin, entry, owners),
        cluster_id=entry.cluster_id,
    )


def _origin(entry: ClusterEntry, owners: OwnerTable, cluster_id: str) -> Origin:
    """What the commands about a cluster share: all of it is from the operator, and nothing from the watcher."""
    flags = events_flags(entry.events_topic, entry.schema_registry_url, key_file=entry.events_key_file)
    servers = entry.bootstrap_server or ""
    return Origin(cluster_id, servers, _absolute(entry.command_config), flags, owners=owners)


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
