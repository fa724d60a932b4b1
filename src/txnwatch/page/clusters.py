"""The clusters of `txnwatch page`: the file that names them, and the page of several.

The file is TOML with `[[cluster]]` entries, and is checked at the start. The keys of an entry are settings of `run`,
with the same names and rules. References (`${file:...}`, `${env:...}`) in values are replaced.

The page has the list at `/`, and the page of each cluster below `/c/<cluster id>/`. The list has one line for each
cluster, the worst first, and one sentence about all. A cluster whose brokers have not answered yet has no id; its
address has its name. With one cluster, `/` leads to it. The clusters can be replaced while the page is served: the
streams of those that stay go on.

Apart: it serves over HTTP whatever clusters it gets, and cli/page.py follows those of the file. The schema of the chart
is made from the class of an entry, without the command.

Law:
    * No error shows a value that may be a secret.
    * The state of all is that of the worst, and unknown comes before clear. The sentence names the worst cluster and
      each one that is not watched.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.types import Receive, Scope, Send

from txnwatch.config import EVENTS_TOPIC, Bootstrap, RedisUrl, RegistryUrl, RunSettings, TopicName
from txnwatch.page.live_picture import Freshness, LivePicture
from txnwatch.page.picture import Picture
from txnwatch.page.served_page import Collect, PageSite
from txnwatch.page.site_files import Assets, OwnHosts, Serve, file_routes
from txnwatch.page.truth import PageState
from txnwatch.page.words import Part, as_text, counted, evaluated, name, number
from txnwatch.setting_sources import expanded, toml_of
from txnwatch.state.model.errors import ConfigError
from txnwatch.state.model.values import DurationMs, TimestampMs
from txnwatch.state.text import WEB_ADDRESS

ENTRIES: Final = "cluster"
MOST_CLUSTERS: Final = 100
NAME_RULE: Final = "a-z, A-Z, 0-9, '.', '_' and '-', at most 63 characters, the first a letter or a digit"
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def _name(value: str) -> str:
    if not NAME.fullmatch(value):
        raise ValueError(f"expected {NAME_RULE}")
    return value


def _web(value: str) -> str:
    if not WEB_ADDRESS.fullmatch(value):
        raise ValueError("expected an address that begins with https:// or http://")
    return value


class ClusterEntry(BaseModel):
    """One `[[cluster]]`.

    Attributes:
        name: how the page calls the cluster.
        watcher_url: the page of its watcher, for what the topic does not have.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: Annotated[str, AfterValidator(_name)]
    bootstrap_server: Bootstrap
    command_config: Path | None = None
    events_topic: TopicName = EVENTS_TOPIC
    schema_registry_url: RegistryUrl | None = Field(None, repr=False)
    events_key_file: Path | None = None
    redis_url: RedisUrl | None = Field(None, repr=False)
    watcher_url: Annotated[str, AfterValidator(_web)] | None = None


# The settings of `run` that an entry can have, and that the command has as flags for one cluster.
SHARED: Final = tuple(name for name in ClusterEntry.model_fields if name in RunSettings.model_fields)


def read_clusters(path: Path) -> Sequence[ClusterEntry]:
    """The clusters in a file.

    Raises:
        ConfigError: the file cannot be read, or an entry is not valid. The message names the entry and the key.
    """
    where = f"--clusters-file {path}"
    raw = toml_of(path, where, "expected a file that can be read, found: ")
    entries = raw.get(ENTRIES)
    unknown = sorted(raw.keys() - {ENTRIES})
    if unknown:
        raise ConfigError(f"{where}: expected [[{ENTRIES}]] entries, found the key {unknown[0]!r}")
    if not isinstance(entries, list) or not entries:
        raise ConfigError(f"{where}: expected [[{ENTRIES}]] entries, found none")
    if len(entries) > MOST_CLUSTERS:
        raise ConfigError(f"{where}: expected at most {MOST_CLUSTERS} entries, found {len(entries)}")
    found = [_entry(entry, number, where) for number, entry in enumerate(entries, 1)]
    names = [one.name for one in found]
    if double := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"{where}: expected a name of its own for each cluster, found {double} twice")
    return found


def _entry(raw: Any, number: int, where: str) -> ClusterEntry:  # noqa: ANN401 - any value of TOML
    if not isinstance(raw, dict):
        raise ConfigError(f"{where}: entry {number}: expected a table with keys, found another value")
    place = f"{where}: entry {number}"
    values: dict[str, Any] = {
        key: expanded(value, f"{place}: {key}") if isinstance(value, str) else value for key, value in raw.items()
    }
    try:
        return ClusterEntry(**values)
    except ValidationError as exc:
        raise ConfigError("; ".join(f"{place}: {text}" for text in _problems(exc))) from None


def _problems(error: ValidationError) -> Iterator[str]:
    for found in error.errors(include_input=False, include_url=False):
        key = ".".join(str(part) for part in found["loc"])
        if found["type"] == "extra_forbidden":
            yield f"unknown key {key!r}; known keys: {', '.join(ClusterEntry.model_fields)}"
        elif found["type"] == "missing":
            yield f"{key}: expected a value, found none"
        else:
            text = found["msg"].removeprefix("Value error, ")
            yield f"{key}: {text if text.startswith('expected') else f'expected another value: {text}'}"


# The page.

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
    """

    key: str
    name: str
    cluster_id: str | None
    status: Mapping[str, Any]

    @property
    def state(self) -> PageState:
        """Its state."""
        return PageState(self.status["state"])

    @property
    def is_unwatched(self) -> bool:
        """Whether everything was read, and no watcher has evaluated anything lately."""
        return self.state is PageState.UNKNOWN and self.status["why"] in _NOT_WATCHED


def _order(one: OneCluster) -> tuple[int, bool, int, str]:
    tones = one.status["tone"] != "critical"
    return _WORST_FIRST.index(one.state), tones, -one.status["open_incidents"], one.name


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
            "open_incidents": sum(one.status["open_incidents"] for one in ordered),
        },
        "clusters": {one.key: _row(one) for one in ordered},
        "order": {"clusters": [one.key for one in ordered]},
    }


def _row(one: OneCluster) -> dict[str, Any]:
    status = one.status
    return {
        "name": name(one.name),
        "cluster_id": name(one.cluster_id) if one.cluster_id is not None else None,
        "state": one.state,
        "tone": status["tone"],
        "text": _text(one),
        "incidents": status["open_incidents"] if one.state is not PageState.UNKNOWN else None,
        "judged_ms": status["judged_ms"],
        "is_late": one.state is PageState.UNKNOWN and status["judged_ms"] is not None,
    }


def _text(one: OneCluster) -> list[Part]:
    """What is to be said about a cluster on its line."""
    if one.state is PageState.CLEAR:
        watched = one.status["partitions"]
        return [f"All clear on {counted(watched['scanned'] + watched['census'], 'partition')}."]
    parts: list[Part] = list(one.status["headline"])
    return parts


def _headline(ordered: Sequence[OneCluster]) -> list[Part]:
    """The worst cluster, and each one that is not watched or not known; if there is none of them, that all is clear."""
    worst = ordered[0]
    unknown = [one for one in ordered if one.state is PageState.UNKNOWN]
    unwatched = [one for one in unknown if one.is_unwatched]
    sentences: list[Sequence[Part]] = []
    if worst.state is PageState.INCIDENT:
        sentences.append([f"{name(worst.name)}: {worst.status['headline'][0]}"])
    elif worst.state not in {PageState.UNKNOWN, PageState.CLEAR}:
        first, *rest = worst.status["headline"]
        sentences.append([f"{name(worst.name)}: {first}", *rest])
    if unwatched:
        sentences.append([f"{_names(unwatched)} not watched."])
    if others := [one for one in unknown if one not in unwatched]:
        sentences.append([f"{_names(others)} not known."])
    if not sentences:
        sentences.append(
            [f"All {number(len(ordered))} clusters are clear." if ordered[1:] else "The cluster is clear."]
        )
    return [part for i, sentence in enumerate(sentences) for part in ([" ", *sentence] if i else sentence)]


def _names(clusters: Sequence[OneCluster]) -> str:
    """The names, as the beginning of a sentence."""
    shown = [name(one.name) for one in clusters[:_NAMED]]
    if len(clusters) > _NAMED:
        shown.append(f"{len(clusters) - _NAMED} more")
    return f"{shown[0]} is" if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]} are"


def _detail(ordered: Sequence[OneCluster]) -> str:
    states = Counter(one.state for one in ordered)
    unknown = states[PageState.UNKNOWN] + states[PageState.PARTIAL] + states[PageState.LIMITED]
    counts = (
        (states[PageState.CLEAR], "clear"),
        (states[PageState.INCIDENT], "with incidents"),
        (unknown, "not fully known"),
    )
    return " · ".join(
        [counted(len(ordered), "cluster"), *(f"{number(count)} {what}" for count, what in counts if count)]
    )


def _clusters_text(picture: Picture, now_ms: TimestampMs) -> str:
    """The picture as text, for curl."""
    status = picture["status"]
    lines = [as_text(status["headline"], now_ms), as_text(status["detail"], now_ms), ""]
    for key in picture["order"]["clusters"]:
        row = picture["clusters"][key]
        age = evaluated(row["judged_ms"], now_ms)
        lines.append(f"{row['state'].upper():8}  {row['name']}  {as_text(row['text'], now_ms)}  {age}  /c/{key}/")
    return "\n".join(lines) + "\n"


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
                group.create_task(self.live.work(lambda _: None))
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
        return OneCluster(self._key(site), site.name or "", cluster_id, site.live.picture["status"])

    def _key(self, site: PageSite) -> str:
        """The part of its address: its id, if it is known, and no cluster before it in the list has the same id."""
        origin = site.store.origin
        if origin is None or self._site_of(origin.cluster_id) is not site:
            return site.name or ""
        return origin.cluster_id

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
            *(Route(f"/api/v1/{path}", guarded(serve)) for path, serve in self._resources()),
            *file_routes(self.assets, self.hosts),
            Route("/c/{cluster}", guarded(self._with_slash)),
            Mount("/c/{cluster}", app=self._below),
        ]

    def _resources(self) -> Iterable[tuple[str, Serve]]:
        yield from self.live.resources()
        yield "schema", self.assets.serve_schema
        yield (
            "clusters",
            self.live.with_picture(
                lambda picture, _: {
                    "rows": [{"key": key, **picture["clusters"][key]} for key in picture["order"]["clusters"]]
                }
            ),
        )

    async def _overview(self, request: Request) -> Response:
        if len(self.sites) == 1:
            return RedirectResponse(f"/c/{self._key(self.sites[0])}/", 307)
        shell = self.assets.shell_for(request)
        if shell is not None:
            return shell
        await self.live.refresh()
        return PlainTextResponse(_clusters_text(self.live.picture, self.now_ms()))

    async def _with_slash(self, request: Request) -> Response:
        site = self._site_of(request.path_params["cluster"])
        return _NO_CLUSTER if site is None else RedirectResponse(f"/c/{self._key(site)}/", 307)

    async def _below(self, scope: Scope, receive: Receive, send: Send) -> None:
        site = self._site_of(scope["path_params"]["cluster"])
        serve = self._routers[id(site)] if site is not None else _NO_CLUSTER
        await serve(scope, receive, send)


_NO_CLUSTER: Final = PlainTextResponse("expected a cluster of this page\n", 404)
