"""The page of several clusters: the list of them at `/`, and the page of each below `/c/<cluster id>/`.

The list has one line for each cluster, the worst first, and one sentence about all. A cluster whose watchers have not
answered yet has no id; its address has its name. With one cluster, `/` leads to it. The clusters can be replaced while
the page is served: the streams of those that stay go on. Each cluster has the clock of its watcher; the times in the
list are by the clock of this process.

Apart: it serves over HTTP whatever clusters it gets, and cli/page.py asks the watchers of the file.

Law: the state of all is that of the worst, and unknown comes before clear. The sentence names the worst cluster and
each one that is not watched.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.types import Receive, Scope, Send

from txnwatch.page.audited import counts_line
from txnwatch.page.finding import MATCHES
from txnwatch.page.live_picture import JSON, Freshness, LivePicture, encode
from txnwatch.page.picture import Picture
from txnwatch.page.served_page import Collect, PageSite
from txnwatch.page.site_files import Assets, OwnHosts, Serve, answer, file_routes, wants_html
from txnwatch.page.storms import ALL_INCIDENTS, CHOICES, FILTERS, LISTED, NO_CAUSES, Choices, IncidentFilter, filter_of
from txnwatch.page.text_forms import found_lines, incident_lines
from txnwatch.page.truth import PageState
from txnwatch.page.words import (
    NO_NAME,
    Part,
    as_text,
    evaluated,
    id_for_address,
    name,
    number,
)
from txnwatch.state.audit.audit_check import ExposureSeverity
from txnwatch.state.model.values import DurationMs, TimestampMs
from txnwatch.state.text import counted

READ_WITHIN_MS: Final = DurationMs(5_000)  # several times the pause between two pictures
_NAMED: Final = 12
_WORST_FIRST: Final = (
    PageState.INCIDENT,
    PageState.UNKNOWN,
    PageState.PARTIAL,
    PageState.LIMITED,
    PageState.CLEAR,
)
_NOT_WATCHED: Final = frozenset({"a barrier was evaluated", "it was evaluated lately"})


class OneCluster(NamedTuple):
    """A cluster of the list.

    Attributes:
        key: its part of the address.
        name: how the operator calls it.
        cluster_id: None until its brokers have answered.
        status: the section of its own picture.
        ahead_ms: how far the clock of its page is ahead of the clock of this process.
        choices: the values of each filter, with their numbers.
        causes: the causes of its incidents in words.
    """

    key: str
    name: str
    cluster_id: str | None
    status: Mapping[str, Any]
    ahead_ms: int = 0
    choices: Choices = MappingProxyType({})
    causes: Mapping[str, Any] = NO_CAUSES

    @property
    def state(self) -> PageState:
        """Its state."""
        return PageState(self.status["state"])

    @property
    def judged_ms(self) -> TimestampMs | None:
        """When its last evaluated barrier was listed, by the clock of this process."""
        judged_ms = self.status["judged_ms"]
        return TimestampMs(judged_ms - self.ahead_ms) if judged_ms is not None else None

    @property
    def headline(self) -> list[Part]:
        """Its sentence, with times by the clock of this process."""
        return _by_our_clock(self.status["headline"], self.ahead_ms)

    @property
    def is_unwatched(self) -> bool:
        """Whether everything was read, and no watcher has evaluated anything lately."""
        return self.state is PageState.UNKNOWN and self.status["why"] in _NOT_WATCHED


def _by_our_clock(parts: Sequence[Part], ahead_ms: int) -> list[Part]:
    return [part if isinstance(part, str) else part - ahead_ms for part in parts]


def _causes(causes: Mapping[str, Any], ahead_ms: int) -> dict[str, Any]:
    """The causes of the incidents of a cluster, with times by the clock of this process."""
    return {**causes, "rows": [_by_our_clock(parts, ahead_ms) for parts in causes["rows"]]}


def _order(cluster: OneCluster) -> tuple[int, bool, int, str]:
    tones = cluster.status["tone"] != "critical"
    return _WORST_FIRST.index(cluster.state), tones, -cluster.status["open_incidents"], cluster.name


def clusters_picture(clusters: Iterable[OneCluster], now_ms: TimestampMs) -> Picture:
    """The whole picture."""
    ordered = sorted(clusters, key=_order)
    worst = ordered[0]
    headline = _headline(ordered)
    return {
        "status": {
            "state": worst.state,
            "why": worst.status["why"],
            "tone": worst.status["tone"],
            "headline": headline,
            "detail": [_detail(ordered)],
            "judged_ms": now_ms // 1000 * 1000,
            "judged_within_ms": READ_WITHIN_MS,
            "open_incidents": sum(cluster.status["open_incidents"] for cluster in ordered),
        },
        "clusters": {cluster.key: _row(cluster) for cluster in ordered},
        "order": {"clusters": [cluster.key for cluster in ordered], "choices": _choices(ordered)},
    }


def _choices(clusters: Iterable[OneCluster]) -> Choices:
    """The values of each filter in all clusters."""
    counts = {key: Counter[str]() for key in FILTERS[:4]}
    for cluster in clusters:
        for key, values in cluster.choices.items():
            for value, count in values:
                counts[key][str(value)] += int(count)
    return {key: [[value, count] for value, count in counter.most_common(CHOICES)] for key, counter in counts.items()}


def _row(cluster: OneCluster) -> dict[str, Any]:
    status = cluster.status
    return {
        "name": name(cluster.name),
        "cluster_id": name(cluster.cluster_id) if cluster.cluster_id is not None else None,
        "state": cluster.state,
        "tone": status["tone"],
        "text": _text(cluster),
        "causes": _causes(cluster.causes, cluster.ahead_ms),
        "incidents": status["open_incidents"] if cluster.state is not PageState.UNKNOWN else None,
        "judged_ms": cluster.judged_ms,
        "is_late": cluster.state is PageState.UNKNOWN and cluster.judged_ms is not None,
    }


def _text(cluster: OneCluster) -> list[Part]:
    """What is to be said about a cluster on its line."""
    if cluster.state is PageState.CLEAR:
        watched = cluster.status["partitions"]
        return [f"All clear on {counted(watched['scanned'] + watched['census'], 'partition')}."]
    return cluster.headline


def _headline(ordered: Sequence[OneCluster]) -> list[Part]:
    """The worst cluster, and each one that is not watched or not known; if there is none of them, that all is clear."""
    worst = ordered[0]
    unknown = [cluster for cluster in ordered if cluster.state is PageState.UNKNOWN]
    unwatched = [cluster for cluster in unknown if cluster.is_unwatched]
    sentences: list[Sequence[Part]] = []
    if worst.state is PageState.INCIDENT:
        sentences.append([f"{name(worst.name)}: {worst.headline[0]}"])
    elif worst.state not in {PageState.UNKNOWN, PageState.CLEAR}:
        first, *rest = worst.headline
        sentences.append([f"{name(worst.name)}: {first}", *rest])
    if unwatched:
        sentences.append([f"{_names(unwatched)} not watched.", *_age(unwatched)])
    if others := [cluster for cluster in unknown if cluster not in unwatched]:
        sentences.append([f"{_names(others)} not known."])
    if not sentences:
        sentences.append(
            [f"All {number(len(ordered))} clusters are clear." if ordered[1:] else "The cluster is clear."]
        )
    return [part for i, sentence in enumerate(sentences) for part in ([" ", *sentence] if i else sentence)]


def _age(clusters: Sequence[OneCluster]) -> list[Part]:
    """How old the last evaluation of a single cluster is."""
    judged = [cluster.judged_ms for cluster in clusters]
    return [" Its last evaluation is ", judged[0], " old."] if len(judged) == 1 and judged[0] is not None else []


def _names(clusters: Sequence[OneCluster]) -> str:
    """The names, as the beginning of a sentence."""
    shown = [name(cluster.name) for cluster in clusters[:_NAMED]]
    if len(clusters) > _NAMED:
        shown.append(f"{len(clusters) - _NAMED} more")
    return f"{shown[0]} is" if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]} are"


def _detail(ordered: Sequence[OneCluster]) -> str:
    states = Counter(cluster.state for cluster in ordered)
    unknown = states[PageState.UNKNOWN] + states[PageState.PARTIAL] + states[PageState.LIMITED]
    counts = (
        (states[PageState.CLEAR], "clear"),
        (states[PageState.INCIDENT], "with incidents"),
        (unknown, "not fully known"),
    )
    audited = [cluster.status["exposures"] for cluster in ordered if cluster.status["exposures"] is not None]
    exposed = {str(severity): sum(exposures[severity] for exposures in audited) for severity in ExposureSeverity}
    return " · ".join(
        [
            counted(len(ordered), "cluster"),
            *(f"{number(count)} {what}" for count, what in counts if count),
            *([counts_line(exposed)] if any(exposed.values()) else []),
        ]
    )


def _clusters_lines(picture: Picture, now_ms: TimestampMs) -> list[str]:
    """The picture as text, for curl."""
    status = picture["status"]
    lines = [as_text(status["headline"], now_ms), as_text(status["detail"], now_ms), ""]
    for key in picture["order"]["clusters"]:
        row = picture["clusters"][key]
        age = evaluated(row["judged_ms"], now_ms)
        lines.append(f"{row['state'].upper():8}  {row['name']}  {as_text(row['text'], now_ms)}  {age}  /c/{key}/")
    return lines


@dataclass
class ClustersSite:
    """Everything that the HTTP server has beside the metrics and the probes."""

    sites: Sequence[PageSite]
    now_ms: Callable[[], TimestampMs]
    hosts: OwnHosts = field(default_factory=OwnHosts)
    assets: Assets = field(default_factory=Assets)
    live: LivePicture = field(init=False)
    _pace: Freshness = field(default_factory=Freshness)
    _loop: asyncio.AbstractEventLoop | None = None
    _tasks: dict[int, asyncio.Task[None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.live = LivePicture(self._make, self._describe, self.now_ms)
        self._replaced = asyncio.Event()
        self._routers = {id(site): Router(site.pages) for site in self.sites}

    async def work(self, collect: Collect) -> None:
        """Publishes the changes of every picture while somebody looks at it, until it is cancelled."""
        self._loop, self._replaced = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.live.work(lambda *_: None))
                while True:
                    for site in self.sites:
                        if id(site) not in self._tasks:
                            self._tasks[id(site)] = group.create_task(site.work(collect))
                    await self._replaced.wait()
                    self._replaced.clear()
        finally:
            self._loop = None
            self._tasks.clear()

    def replace(self, sites: Sequence[PageSite]) -> None:
        """Shows other clusters from now on; any thread may call it."""
        loop = self._loop
        if loop is None:
            self._show(sites)
        else:
            loop.call_soon_threadsafe(self._show, sites)

    def _show(self, sites: Sequence[PageSite]) -> None:
        stay = set(map(id, sites))
        gone = [site for site in self.sites if id(site) not in stay]
        self.sites = sites
        self._routers = {id(site): self._routers.get(id(site)) or Router(site.pages) for site in sites}
        for site in gone:
            site.end("reload")
            task = self._tasks.pop(id(site), None)
            if task is not None:
                task.cancel()
        self._replaced.set()

    def end(self) -> None:
        """Ends the streams."""
        for live in (self.live, *(site.live for site in self.sites)):
            live.end()

    async def _make(self) -> Picture | None:
        if not self._pace.is_due(self):
            return None
        sites = self.sites  # others may be shown meanwhile
        for site in sites:
            await site.live.refresh()
        self._pace.made(self)
        return clusters_picture(map(self._cluster, sites), self.now_ms())

    def _cluster(self, site: PageSite) -> OneCluster:
        origin = site.store.origin
        cluster_id = origin.cluster_id if origin is not None else None
        seen = site.live.picture
        order, ahead_ms = seen["order"], self._ahead_ms(site)
        told = (seen["status"], ahead_ms, order["choices"], order["causes"])
        return OneCluster(self._key(site), site.name or "", cluster_id, *told)

    def _ahead_ms(self, site: PageSite) -> int:
        """In whole seconds: else each answer would change every line a little."""
        return round((site.now_ms() - self.now_ms()) / 1000) * 1000

    def _key(self, site: PageSite) -> str:
        """The part of its address: its name, or its id if no cluster before it in the list has the same one.

        The id is what a watcher says. One that is no plain part of a path is not used.
        """
        origin = site.store.origin
        key = id_for_address(origin.cluster_id) if origin is not None else None
        return key if key is not None and self._site_of(key) is site else site.name or ""

    def _site_of(self, key: str) -> PageSite | None:
        """The first cluster with this name, or else with this id."""
        by_name = (site for site in self.sites if site.name == key)
        by_id = (site for site in self.sites if site.store.origin is not None and site.store.origin.cluster_id == key)
        return next(itertools.chain(by_name, by_id), None)

    def _describe(self) -> dict[str, Any]:
        return {"cluster": None, "name": None, "instance": ""}

    # What is answered.

    @property
    def routes(self) -> list[BaseRoute]:
        """The paths."""
        guarded = self.hosts.guarded
        return [
            Route("/", guarded(self._overview)),
            Route("/find", guarded(self._overview)),
            *(Route(f"/api/v1/{path}", guarded(serve)) for path, serve in self._resources()),
            *file_routes(self.assets, self.hosts),
            Route("/c/{cluster}", guarded(self._with_slash)),
            Mount("/c/{cluster}", app=self._below),
        ]

    def _resources(self) -> Iterable[tuple[str, Serve]]:
        yield from self.live.resources()
        yield "schema", self.assets.serve_schema
        yield "find", self._find
        yield "incidents", self._incidents
        yield (
            "clusters",
            self.live.with_picture(
                lambda picture, _: {
                    "rows": [{"key": key, **picture["clusters"][key]} for key in picture["order"]["clusters"]]
                }
            ),
        )

    async def _find(self, request: Request) -> Response:
        """What has a text in its name, in all clusters; with its address if only one thing is meant."""
        search = await self._found(request.query_params.get("name", ""))
        await self.live.refresh()
        head = self.live.head(self.live.picture)
        body = {"answer": search} if search is not None else {"answer": None, "look": None}
        return answer(request, encode({**head, **body}), JSON)

    async def _found(self, text: str) -> dict[str, Any] | None:
        searches = [(self._key(site), site.name, await site.find(text)) for site in self.sites]
        named = [(key, shown or key) for key, shown, _ in searches]
        meant_ones = [(key, shown) for key, shown in named if text and text.casefold() in shown.casefold()]
        clusters = [
            {"kind": "cluster", "text": name(shown), "address": f"/c/{quote(key)}/"} for key, shown in meant_ones
        ]
        some = [(key, called, search) for key, called, search in searches if search is not None]
        meant = [f"/c/{quote(key)}{search['address']}" for key, _, search in some if search["address"] is not None]
        meant += [cluster["address"] for cluster in clusters]
        of_clusters = [
            _of_cluster(match, key, called or key) for key, called, search in some for match in search["matches"]
        ]
        matches = clusters + of_clusters
        answered = {
            "address": meant[0] if len(some) + len(clusters) == len(meant) == 1 else None,
            "matches": matches[:MATCHES],
            "more": sum(search["more"] for _, _, search in some) + len(matches[MATCHES:]),
        }
        return answered if matches else None

    async def _incidents(self, request: Request) -> Response:
        """The open incidents of all clusters that a filter means, the worst cluster first."""
        selections = await self._selected(filter_of(request.query_params))
        answered = {
            "rows": [{**row, "cluster": key} for key, selection in selections for row in selection["rows"]],
            "count": sum(selection["count"] for _, selection in selections),
            "counts": {key: selection["count"] for key, selection in selections},
            "causes": {key: selection["causes"] for key, selection in selections},
        }
        return answer(request, encode({**self.live.head(self.live.picture), **answered}), JSON)

    async def _selected(self, wanted: IncidentFilter) -> list[tuple[str, dict[str, Any]]]:
        """The incidents that are meant by the keys of their clusters, with times by the clock of this process."""
        selections = list[tuple[str, dict[str, Any]]]()
        await self.live.refresh()
        places = {key: place for place, key in enumerate(self.live.picture["order"]["clusters"])}
        for site in self.sites:
            selection, ahead_ms = await site.select(wanted, LISTED), self._ahead_ms(site)
            if selection is not None:
                rows = [{**row, "since_ms": row["since_ms"] - ahead_ms} for row in selection["rows"]]
                selections.append(
                    (self._key(site), {**selection, "rows": rows, "causes": _causes(selection["causes"], ahead_ms)})
                )
        return sorted(selections, key=lambda entry: places.get(entry[0], len(places)))

    async def _overview(self, request: Request) -> Response:
        if len(self.sites) == 1:
            return _redirect(request, self._key(self.sites[0]), request.url.path)
        if wants_html(request):
            return self.live.shell(request, self.assets)
        await self.live.refresh()
        lines = _clusters_lines(self.live.picture, self.now_ms())
        if request.url.path == "/find":
            some = await self._found(request.query_params.get("name", ""))
            lines += ["", *(found_lines(some) if some is not None else [NO_NAME.title])]
        elif (wanted := filter_of(request.query_params)) != ALL_INCIDENTS:
            lines += await self._incident_lines(wanted)
        return PlainTextResponse("\n".join(lines) + "\n")

    async def _incident_lines(self, wanted: IncidentFilter) -> list[str]:
        """The incidents of all clusters that a filter means."""
        rows = [(key, row) for key, selection in await self._selected(wanted) for row in selection["rows"]]
        lines = (("", f"on {name(key)}", *incident_lines(row, self.now_ms(), f"/c/{quote(key)}")) for key, row in rows)
        return [line for some in lines for line in some]

    async def _with_slash(self, request: Request) -> Response:
        site = self._site_of(request.path_params["cluster"])
        return _NO_CLUSTER if site is None else _redirect(request, self._key(site), "/")

    async def _below(self, scope: Scope, receive: Receive, send: Send) -> None:
        site = self._site_of(scope["path_params"]["cluster"])
        serve = self._routers[id(site)] if site is not None else _NO_CLUSTER
        await serve(scope, receive, send)


def _redirect(request: Request, key: str, path: str) -> Response:
    """To a path of a cluster, with the query."""
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"/c/{quote(key)}{path}{query}", 307)


def _of_cluster(match: Mapping[str, Any], key: str, called: str) -> dict[str, Any]:
    return {**match, "text": f"{match['text']} on {name(called)}", "address": f"/c/{quote(key)}{match['address']}"}


_NO_CLUSTER: Final = PlainTextResponse("expected a cluster of this page\n", 404)
