"""A page of several clusters with invented records: what their events topics and their Redis would have given."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from support.heartbeats import a_heartbeat
from support.page_world import HANG, ORIGIN, OWNERS, PageWorld, a_busy_cluster, an_incident, now_ms, served_site
from txnwatch.page.announced import Announced, FromRedis, PageDocument, document_of
from txnwatch.page.clusters import ClustersSite
from txnwatch.page.served_page import PageSite
from txnwatch.page.store import KnownNow, PageStore
from txnwatch.state.incidents.heartbeat import Heartbeat, TopicRecord
from txnwatch.state.model.values import TimestampMs
from txnwatch.state.telling.commands import Origin

GOOD: Mapping[str, Any] = {
    "scanned_partitions": 900,
    "census_partitions": 1_240,
    "unproven_partitions": 0,
    "unproven_names": (),
    "is_ready": True,
    "undelivered_events": 0,
}
MISSING = "Open transactions are not known here: give Redis, or open the watcher's own page."


def a_beat(cluster_id: str, age_s: float = 0.4, **changes: Any) -> Heartbeat:
    """The heartbeat of a watcher that covers everything, and that evaluated some seconds ago."""
    evaluated_ms = now_ms() - int(age_s * 1000)
    times = {"evaluated_ms": evaluated_ms, "time_ms": evaluated_ms}
    return a_heartbeat(**{**GOOD, **times, "cluster_id": cluster_id, "instance": f"watch-{cluster_id}:/c", **changes})


@dataclass
class OneWorld:
    """One cluster: `tell` it records, then `show`."""

    name: str
    missing: str = MISSING
    problem: str | None = None
    document: PageDocument | None = None
    refusal: str | None = None
    store: PageStore = field(default_factory=lambda: PageStore(seen=KnownNow(open_missing=MISSING)))

    def __post_init__(self) -> None:
        self.announced = Announced(self.name.upper(), OWNERS)
        self.site = PageSite(self.store, now_ms, lambda: self.store.seen.ends, name=self.name)

    @property
    def cluster_id(self) -> str:
        return self.announced.cluster_id

    def tell(self, *found: TopicRecord) -> OneWorld:
        """Takes records of the topic."""
        for one in found:
            event = self.announced.take(one, now_ms())
            if event is not None:
                self.store.take_event(event)
        return self.show()

    def show(self, at_ms: TimestampMs | None = None) -> OneWorld:
        """Makes the store that of this moment."""
        redis = FromRedis(self.missing, self.document, self.refusal)
        at_ms = at_ms if at_ms is not None else now_ms()
        self.store.origin = Origin(self.cluster_id, ORIGIN.bootstrap_servers, owners=OWNERS)
        self.store.access = self.announced.access(self.document, at_ms)
        self.store.replace(self.announced.seen(at_ms, redis, self.problem))
        return self

    def with_redis(self, world: PageWorld, **changes: Any) -> OneWorld:
        """Takes the document that the watcher of another world would have written."""
        self.document = document_of(world.store, a_beat(self.cluster_id, **changes), world.ends)
        return self.show()


@dataclass
class ClustersWorld:
    """Several clusters, served as `txnwatch page` serves them."""

    clusters: list[OneWorld]

    def __post_init__(self) -> None:
        self.site = ClustersSite([one.site for one in self.clusters], now_ms)

    def batch(self) -> None:
        """As time goes on: the heartbeats stay what they are."""
        for one in self.clusters:
            one.show()

    @contextlib.contextmanager
    def served(self) -> Iterator[str]:
        """Serves the page while the block runs; yields its address."""
        with served_site(self.site) as url:
            yield url


def watched(name: str, **changes: Any) -> OneWorld:
    """A cluster of which everything is known, and nothing hangs."""
    world = OneWorld(name)
    return world.tell(a_beat(world.cluster_id, **changes))


def with_a_hang(name: str) -> OneWorld:
    """A cluster with a hang, its open transactions from Redis."""
    busy = a_busy_cluster()
    world = OneWorld(name).with_redis(busy)
    return world.tell(an_incident("hang", 252, **{**HANG, "cluster_id": world.cluster_id}))


def five_clusters() -> ClustersWorld:
    """As in the picture of the design: a hang, one that is not watched, one partly known, and two clear ones."""
    unproven = {"unproven_partitions": 32, "unproven_names": ("orders-1",)}
    return ClustersWorld(
        [
            watched("payments-us", scanned_partitions=666),
            watched("telemetry", scanned_partitions=12_440, census_partitions=0, age_s=2.1),
            watched("metering-eu", age_s=362),
            with_a_hang("payments-eu"),
            watched("orders-us", scanned_partitions=880, census_partitions=32, age_s=0.9, **unproven),
        ]
    )
