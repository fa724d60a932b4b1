"""The clusters of a page are replaced while it is served: those that stay are not disturbed."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from support.clusters_world import ClustersWorld, OneWorld, watched
from support.page_client import Stream, a_stream, get
from support.waiting import eventually
from txnwatch.page.store import Watched

SOON_S = 10.0
SOON = 20  # events of a stream, one a second or more


def soon(stream: Stream, wanted: str) -> Any:
    """The data of the next event of this kind; fails if it does not come."""
    return next(data for kind, data in itertools.islice(stream, SOON) if kind == wanted)


def names(url: str) -> list[str]:
    return [row["name"] for row in get(url, "/api/v1/clusters").json["rows"]]


def scan(world: OneWorld, partitions: int) -> None:
    """Lets the watcher scan so many partitions."""
    assert world.watcher.world is not None
    world.watcher.world.watched = Watched(partitions, 0)
    world.show()


def test_other_clusters_are_shown_at_once() -> None:
    world = ClustersWorld([watched("eu"), watched("us")])
    with world.served() as url:
        assert names(url) == ["eu", "us"]
        world.site.replace([watched("us").site, watched("asia").site])
        eventually(lambda: names(url) == ["asia", "us"], SOON_S, "the new clusters")
        assert get(url, "/c/eu/api/v1/status").status == 404
        assert get(url, "/c/asia/api/v1/status").json["state"] == "clear"


def test_the_stream_of_a_cluster_that_stays_goes_on_and_that_of_one_that_leaves_ends() -> None:
    stays, leaves, comes = watched("eu"), watched("us"), watched("asia")
    world = ClustersWorld([stays, leaves])
    with (
        world.served() as url,
        a_stream(url, path="/c/eu/api/v1/stream") as kept,
        a_stream(url, path="/c/us/api/v1/stream") as ended,
    ):
        for stream in (kept, ended):
            soon(stream, "snapshot")
        world.site.replace([stays.site, comes.site])
        soon(ended, "bye")
        scan(stays, 77)
        assert soon(kept, "delta")["set"]["status"]["partitions"]["scanned"] == 77
        with a_stream(url, path="/c/asia/api/v1/stream") as new:
            soon(new, "snapshot")
            scan(comes, 78)
            assert soon(new, "delta")["set"]["status"]["partitions"]["scanned"] == 78


def test_the_list_of_the_clusters_is_told() -> None:
    stays, leaves = watched("eu"), watched("us")
    world = ClustersWorld([stays, leaves])
    with world.served() as url, a_stream(url, path="/api/v1/stream") as stream:
        soon(stream, "snapshot")
        world.site.replace([stays.site])
        assert soon(stream, "delta")["gone"]["clusters"] == ["US"]


def test_clusters_that_are_replaced_while_the_list_is_made_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    first, comes = watched("eu"), watched("asia")
    world = ClustersWorld([first])
    refresh = first.site.live.refresh

    async def replaced_meanwhile() -> None:
        world.site.replace([comes.site])
        await asyncio.sleep(0)
        await refresh()

    with world.served() as url:
        names(url)
        monkeypatch.setattr(first.site.live, "refresh", replaced_meanwhile)
        assert get(url, "/api/v1/clusters").status == 200
        eventually(lambda: names(url) == ["asia"], SOON_S, "the new cluster")


def test_clusters_are_replaced_before_the_page_is_served() -> None:
    world = ClustersWorld([watched("eu")])
    world.site.replace([watched("us").site, watched("asia").site])
    with world.served() as url:
        assert names(url) == ["asia", "us"]
