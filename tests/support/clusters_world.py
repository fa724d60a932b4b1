"""A page of several clusters with invented watchers: what they would have told, as JSON and back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from support.log_lines import LogLines
from support.page_world import HANG, OWNERS, PageWorld, a_busy_cluster, an_incident, now_ms, served_site
from txnwatch.page.asking import ClusterAsker, ClusterSource
from txnwatch.page.clusters import ClustersSite
from txnwatch.page.live_picture import encode
from txnwatch.page.served_page import PageSite
from txnwatch.page.store import KnownNow, PageStore, Watched
from txnwatch.page.watcher_facts import WatcherFacts, decoded, facts_of
from txnwatch.state.model.errors import SinkError, TxnwatchError
from txnwatch.state.model.values import TimestampMs, TopicPartition
from txnwatch.state.telling.commands import Origin
from txnwatch.watch.coverage import MissingEvidence

VERSION = "1.2.3"
AWAY = "watch.example:9464: Connection refused"


def facts_of_world(world: PageWorld, cluster_id: str, instance: str, at_ms: TimestampMs | None = None) -> WatcherFacts:
    """What the watcher of a world tells about a cluster with this id."""
    store = world.store
    incidents = tuple(replace(one, cluster_id=cluster_id) for one in store.seen.incidents or ())
    told = PageStore(
        instance,
        Origin(cluster_id, "kafka-of-the-watcher:9092"),
        store.access,
        replace(store.seen, incidents=incidents),
        store.lives,
        store.latencies_ms,
        topics_digest="all",
        audited=store.audited,
    )
    return facts_of(told, VERSION, world.ends, now_ms() if at_ms is None else at_ms)


@dataclass
class ToldWatcher:
    """A watcher that tells what its world has.

    Attributes:
        error: is raised instead of an answer.
        changed: what is changed in its facts.
        ahead_ms: how far its clock is ahead.
    """

    cluster_id: str
    url: str = "https://watch.example:9464/"
    world: PageWorld | None = None
    age_s: float = 0.4
    error: TxnwatchError | None = None
    changed: dict[str, Any] = field(default_factory=dict)
    ahead_ms: int = 0
    before: Callable[[], object] = lambda: None

    def ask(self) -> WatcherFacts:
        self.before()
        if self.error is not None:
            raise self.error
        if self.world is None:
            raise SinkError(AWAY)
        self.world.batch(TimestampMs(now_ms() - int(self.age_s * 1000) + self.ahead_ms + 300))
        at_ms = TimestampMs(now_ms() + self.ahead_ms)
        told = facts_of_world(self.world, self.cluster_id, f"watch-{self.cluster_id}:/c", at_ms)
        values = {name: getattr(told, name) for name in told.__struct_fields__}
        return decoded(encode({**values, **self.changed}))


@dataclass
class OneWorld:
    """One cluster: change its watchers, then `show`."""

    name: str
    watchers: list[ToldWatcher] = field(default_factory=list)
    servers: str = "kafka-1:9092"
    wanted_id: str | None = None
    store: PageStore = field(default_factory=lambda: PageStore(seen=KnownNow()))

    def __post_init__(self) -> None:
        if not self.watchers:
            self.watchers = [ToldWatcher(self.cluster_id)]
        source = ClusterSource(
            name=self.name,
            watchers=self.watchers,  # type: ignore[arg-type] - they have no client
            origin_of=lambda cluster_id: Origin(cluster_id, self.servers, owners=OWNERS),
            cluster_id=self.wanted_id,
        )
        self.lines = LogLines()
        self.asker = ClusterAsker(source, self.store, now_ms, self.lines)
        self.site = PageSite(self.store, self.asker.now_ms, lambda: self.store.seen.ends, name=self.name)

    @property
    def cluster_id(self) -> str:
        return self.name.upper()

    @property
    def watcher(self) -> ToldWatcher:
        return self.watchers[0]

    def show(self) -> OneWorld:
        """Asks every watcher once."""
        for number in range(len(self.watchers)):
            self.asker.ask(number)
        return self


@dataclass
class ClustersWorld:
    """Several clusters, served as `txnwatch page` serves them."""

    clusters: list[OneWorld]

    def __post_init__(self) -> None:
        self.site = ClustersSite([one.site for one in self.clusters], now_ms)

    def batch(self) -> None:
        """As time goes on: every watcher is asked again."""
        for one in self.clusters:
            one.show()

    @contextlib.contextmanager
    def served(self) -> Iterator[str]:
        """Serves the page while the block runs; yields its address."""
        with served_site(self.site) as url:
            yield url


def watched(name: str, *, scanned: int = 900, census: int = 1_240, age_s: float = 0.4, **changes: Any) -> OneWorld:
    """A cluster of which everything is known, and nothing hangs."""
    world = OneWorld(name)
    world.watcher.world = PageWorld(watched=Watched(scanned, census), young=0, **changes)
    world.watcher.age_s = age_s
    return world.show()


def with_a_hang(name: str) -> OneWorld:
    """A cluster with a hang, and healthy transactions behind it."""
    world = OneWorld(name)
    busy = a_busy_cluster()
    busy.incidents = []
    busy.tell(an_incident("hang", 252, **HANG))
    world.watcher.world = busy
    return world.show()


def partly_known(name: str, partitions: int = 32, **changes: Any) -> OneWorld:
    """A cluster with partitions of which nothing is proven."""
    unproven = tuple(TopicPartition("orders", number + 1) for number in range(partitions))
    return watched(name, evidence=MissingEvidence(unproven=unproven, is_log_read=True), **changes)


def five_clusters() -> ClustersWorld:
    """As in the picture of the design: a hang, one that is not watched, one partly known, and two clear ones."""
    return ClustersWorld(
        [
            watched("payments-us", scanned=666),
            watched("telemetry", scanned=12_440, census=0, age_s=2.1),
            watched("metering-eu", age_s=362),
            with_a_hang("payments-eu"),
            partly_known("orders-us", scanned=880, census=32, age_s=0.9),
        ]
    )
