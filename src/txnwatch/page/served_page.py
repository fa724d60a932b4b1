"""The page of one cluster over HTTP: its shell, its JSON under `/api/v1`, its stream, and itself as text for curl.

Law:
    * A viewer costs the cluster and the micro-batch nothing: every answer is made from the store, in the page's thread.
    * Only GET: nothing here writes.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from txnwatch import __version__
from txnwatch.page import audited, details, finding
from txnwatch.page.knowledge import Knowledge
from txnwatch.page.live_picture import JSON, Freshness, LivePicture, encode
from txnwatch.page.past import DAYS, MOST_DAYS, NO_PAST, PAST_FORMS, past_of, past_text
from txnwatch.page.picture import Picture, picture_of, sections_of
from txnwatch.page.shared import shared
from txnwatch.page.site_files import Assets, OwnHosts, Serve, answer, file_routes, wants_html
from txnwatch.page.store import PageStore
from txnwatch.page.storms import LISTED, MOST, IncidentFilter, filter_of, select
from txnwatch.page.text_forms import FORMS, AskedView, Form, head_lines
from txnwatch.page.watcher_facts import facts_of
from txnwatch.state.incidents.past_summary import Facet
from txnwatch.state.model.pauses import Every
from txnwatch.state.model.values import Offset, ProducerId, TimestampMs, TopicPartition, is_topic_name

_SAMPLE_S: Final = 5.0
_LOOKED_AT_S: Final = 10.0
_ENDS_S: Final = 1.0
_POINTS: Final = 720
_FURTHEST: Final = 1_000_000
Ends = Mapping[TopicPartition, Offset]
_Lookup = Callable[[Knowledge, Mapping[str, Any]], Any]
Collect = Callable[[Callable[[], Any]], Awaitable[Any]]


@dataclass
class PageSite:
    """Everything that the HTTP server has about one cluster, beside the metrics and the probes.

    Attributes:
        ends: returns the ends of partitions; is called in the thread of the metrics.
        hosts: the host names under which the page is reached.
        name: how the operator calls the cluster; None for its id.
    """

    store: PageStore
    now_ms: Callable[[], TimestampMs]
    ends: Callable[[], Ends] = dict
    hosts: OwnHosts = field(default_factory=OwnHosts)
    name: str | None = None
    assets: Assets = field(default_factory=Assets)
    live: LivePicture = field(init=False)
    _pace: Freshness = field(default_factory=Freshness)
    _knowledge: Knowledge | None = None
    _reading_ends: Every[float] = field(default_factory=lambda: Every(_ENDS_S))
    _reading: asyncio.Future[Any] | None = None
    _ends: Ends = field(default_factory=dict)
    _collect: Collect | None = None
    _asked_s: float = -math.inf
    _series: deque[dict[str, float | None]] = field(default_factory=lambda: deque(maxlen=_POINTS))

    def __post_init__(self) -> None:
        self.live = LivePicture(self._make, self._describe, self.now_ms)

    # What runs.

    async def work(self, collect: Collect) -> None:
        """Samples the watcher's figures, and publishes the changes while somebody looks, until it is cancelled."""
        self._collect, self._reading = collect, None

        def begin(wake: Callable[[], None], hurry: Callable[[], None]) -> None:
            self.store.on_change, self.store.on_news = wake, hurry

        sampling = asyncio.ensure_future(self._sample())
        try:
            await self.live.work(begin)
        finally:
            sampling.cancel()
            self.store.on_change = self.store.on_news = lambda: None

    def end(self, why: str = "shutdown") -> None:
        """Ends the streams."""
        self.live.end(why)

    async def _sample(self) -> None:
        while True:
            self._series.append(self._figures())
            await asyncio.sleep(_SAMPLE_S)

    @property
    def is_looked_at(self) -> bool:
        """Whether anybody has asked for anything lately; any thread may ask."""
        return time.monotonic() - self._asked_s <= _LOOKED_AT_S

    async def _make(self) -> Picture | None:
        self._asked_s = time.monotonic()
        if not self._pace.is_due(self.store.seen):
            return None
        await self._read_ends()
        figures = {name: [value] for name, value in self._figures().items()}
        knowledge = Knowledge(
            store=self.store, seen=self.store.seen, now_ms=self.now_ms(), ends=self._ends, series=figures
        )
        self._knowledge = knowledge
        self._pace.made(knowledge.seen)
        return picture_of(knowledge)

    async def _read_ends(self) -> None:
        """Reads the ends of the partitions. Spark may not answer: then they are not known, and nothing waits for it."""
        if self._collect is None or not self._reading_ends.take(asyncio.get_running_loop().time()):
            return
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._collect(self.ends))
        done, _ = await asyncio.wait({self._reading}, timeout=_ENDS_S)
        self._ends = {}
        if done:
            self._ends, self._reading = self._reading.result(), None

    def _figures(self) -> dict[str, float | None]:
        """The watcher's own figures at this moment."""
        seen = self.store.seen
        is_open_known = seen.judged_ms is not None
        return {
            "latency_p99_ms": self.store.latency_p99_ms,
            "batch_ms": seen.batch_ms,
            "behind": seen.behind,
            "unproven": seen.reach.unproven if seen.reach is not None else None,
            "open": seen.totals.open if is_open_known else None,
            "undelivered": seen.undelivered,
        }

    def _describe(self) -> dict[str, Any]:
        origin = self.store.origin
        return {
            "cluster": origin.cluster_id if origin is not None else None,
            "name": self.name,
            "instance": self.store.instance,
        }

    @property
    def _cluster(self) -> str:
        origin = self.store.origin
        return self.name or (origin.cluster_id if origin is not None else "a cluster that has not answered yet")

    async def find(self, text: str) -> dict[str, Any] | None:
        """What has a text in its name; None if nothing is known of it."""
        await self.live.refresh()
        return finding.found(self._knowledge, text) if self._knowledge is not None else None

    # What is answered.

    @property
    def routes(self) -> list[BaseRoute]:
        """All paths: the pages, their files, and the JSON."""
        return [*self.pages, *file_routes(self.assets, self.hosts)]

    @property
    def pages(self) -> list[BaseRoute]:
        """The paths of the pages and of the JSON: the pages all have one shell, which reads its address itself."""
        guarded = self.hosts.guarded
        return [
            *(Route(path, guarded(self._shell(self._text_as(form)))) for path, form in FORMS.items()),
            Route("/history", guarded(self._shell(self._past_as_page))),
            *(Route(f"/api/v1/{path}", guarded(serve)) for path, serve in self._resources()),
        ]

    def _resources(self) -> Iterable[tuple[str, Serve]]:
        yield from self.live.resources()
        if self.store.instance:  # this process is the watcher, and knows the facts itself
            yield "facts", self._facts
        yield "schema", self.assets.serve_schema
        yield "series", self.live.with_picture(lambda _, request: self._columns(request))
        yield "incidents", self._incidents
        yield "overview", self._overview
        yield (
            "incidents/{id}",
            self._about(
                lambda knowledge, at: details.incident(knowledge, at["id"]),
                lambda knowledge, at: details.forgotten(knowledge, at["id"]),
            ),
        )
        yield "partitions", self._about(lambda knowledge, _: details.partitions(knowledge))
        yield "partitions/{topic}/{number}", self._about(_partition)
        yield "producers/{number}", self._about(_producer)
        yield (
            "ids",
            self._about(
                lambda knowledge, at: details.transactional_id(knowledge, at["name"]),
                lambda knowledge, at: details.ask_for_id(knowledge, at["name"]),
            ),
        )
        yield "ended", self._about(lambda knowledge, _: details.ended(knowledge))
        yield "audit", self._about(lambda knowledge, at: audited.view(knowledge, at["check"]))
        yield "roots", self._about(lambda knowledge, _: shared(knowledge))
        yield "history", self._past
        yield "history.{form}", self._past_as_text
        yield "open", self._about(lambda knowledge, at: details.oldest(knowledge, at["limit"]))
        yield (
            "find",
            self._about(
                lambda knowledge, at: finding.found(knowledge, at["name"]),
                lambda knowledge, at: finding.look_for(knowledge, at["name"]),
            ),
        )

    def _shell(self, text_of: Callable[[Knowledge, Request], tuple[str, int]]) -> Serve:
        """Serves the shell, or the view as text with its status."""

        async def serve(request: Request) -> Response:
            if wants_html(request):
                return self.live.shell(request, self.assets)
            await self.live.refresh()
            assert self._knowledge is not None
            return PlainTextResponse(*await asyncio.to_thread(text_of, self._knowledge, request))

        return serve

    def _text_as(self, form: Form) -> Callable[[Knowledge, Request], tuple[str, int]]:
        def text_of(knowledge: Knowledge, request: Request) -> tuple[str, int]:
            base, rest = request.scope.get("root_path", ""), request.path_params.get("rest", "")
            view = form(knowledge, AskedView(base, rest, request.query_params))
            lines = (*head_lines(self.live.picture, knowledge.now_ms, self._cluster), *view.lines)
            return "\n".join(lines) + "\n", 200 if view.is_known else 404

        return text_of

    def _past_as_page(self, knowledge: Knowledge, request: Request) -> tuple[str, int]:
        text = past_text(knowledge.store, "md", _days(request), self._cluster, None, knowledge.now_ms)
        return text if text is not None else f"{NO_PAST}\n", 200

    async def _past(self, request: Request) -> Response:
        """The history; counting a storm takes seconds, so it has a thread of its own."""
        days = _days(request)
        await self.live.refresh()
        past = await asyncio.to_thread(past_of, self.store, days, self.now_ms())
        return answer(request, encode({**self.live.head(self.live.picture), "answer": past}), JSON)

    async def _past_as_text(self, request: Request) -> Response:
        """The history as CSV, a row for each incident or group; or as Markdown."""
        form, by = request.path_params["form"], request.query_params.get("by")
        if form not in PAST_FORMS or by not in {None, *Facet}:
            raise HTTPException(400, f"by: expected one of {', '.join(Facet)}; form: {' or '.join(PAST_FORMS)}")
        await self.live.refresh()
        days, facet = _days(request), Facet(by) if by else None
        text = await asyncio.to_thread(past_text, self.store, form, days, self._cluster, facet, self.now_ms())
        if text is None:
            raise HTTPException(503, "expected a watcher that has read its events topic, found none yet")
        return answer(request, text.encode(), PAST_FORMS[form], None, **_AS_FILE[form])

    async def _incidents(self, request: Request) -> Response:
        """The open incidents, or those that ended within a day, page by page."""
        query = request.query_params
        limit, offset = _number_of(request, "limit", MOST, LISTED), _number_of(request, "offset", _FURTHEST, 0, least=0)
        state = query.get("state", "open")
        if state not in {"open", "recent"}:
            raise HTTPException(400, f"state: expected open or recent, found {state[:20]!r}")
        await self.live.refresh()
        assert self._knowledge is not None
        incidents = select(self._knowledge, filter_of(query), limit, offset, has_ended=state == "recent")
        return answer(request, encode({**self.live.head(self.live.picture), **incidents}), JSON)

    async def _overview(self, request: Request) -> Response:
        """The rows and the lanes that a filter means."""
        await self.live.refresh()
        assert self._knowledge is not None
        sections = sections_of(self._knowledge, filter_of(request.query_params))
        return answer(request, encode({**self.live.head(self.live.picture), **sections}), JSON)

    async def select(self, wanted: IncidentFilter, limit: int) -> dict[str, Any] | None:
        """The first open incidents that a filter means; None if nothing is known of the cluster."""
        await self.live.refresh()
        return select(self._knowledge, wanted, limit) if self._knowledge is not None else None

    async def _facts(self, request: Request) -> Response:
        """What a page of several clusters is made from."""
        if self.store.origin is None:
            raise HTTPException(503, "expected a watcher that is connected to its cluster, found none yet")
        await self._read_ends()
        return answer(request, encode(facts_of(self.store, __version__, self._ends, self.now_ms())), JSON)

    def _columns(self, request: Request) -> dict[str, Any]:
        seconds = _number_of(request, "seconds", int(_POINTS * _SAMPLE_S))
        points = list(self._series)[-max(1, int(seconds / _SAMPLE_S)) :]
        names = points[0] if points else {}
        return {"every_ms": _SAMPLE_S * 1000, "columns": {name: [point[name] for point in points] for name in names}}

    def _about(self, answer_of: _Lookup, look: _Lookup = lambda _, __: None) -> Serve:
        """Serves what is known about one thing; `look` returns the command for what is not known.

        A browser writes a line into its console for each answer with the status 404, so the page asks for null instead.
        """

        async def serve(request: Request) -> Response:
            await self.live.refresh()
            assert self._knowledge is not None
            limit = _number_of(request, "limit", details.LISTED)
            query = {key: request.query_params.get(key, "") for key in ("name", "check")}
            at = {**query, "limit": limit, **request.path_params}
            value = answer_of(self._knowledge, at)
            head = self.live.head(self.live.picture)
            if value is None and request.query_params.get("missing") == "null":
                return answer(request, encode({**head, "answer": None, "look": look(self._knowledge, at)}), JSON)
            if value is None:
                missing = {"error": "expected something that is open, or ended less than a day ago, found nothing"}
                return Response(encode(missing), 404, media_type=JSON)
            return answer(request, encode({**head, "answer": value}), JSON)

        return serve


def _number_of(request: Request, name: str, most: int, otherwise: int | None = None, least: int = 1) -> int:
    """A number of the query; if it is not given, `otherwise`, or the highest one.

    Raises:
        HTTPException: 400, it is no number from the lowest to the highest one.
    """
    text = request.query_params.get(name, str(most if otherwise is None else otherwise))
    number = details.number_below(text, most + 1)
    if number is None or number < least:
        raise HTTPException(400, f"{name}: expected a number from {least} to {most}, found {text[:20]!r}")
    return number


_AS_FILE: Final[Mapping[str, Mapping[str, str]]] = {
    "csv": {"Content_Disposition": 'attachment; filename="txnwatch-history.csv"'},
    "md": {},
}


def _days(request: Request) -> int:
    return _number_of(request, "days", MOST_DAYS, DAYS)


def _partition(knowledge: Knowledge, at: Mapping[str, Any]) -> dict[str, Any] | None:
    number = details.number_below(at["number"], 1 << 31)
    if number is None or not is_topic_name(at["topic"]):
        return None
    return details.partition(knowledge, TopicPartition(at["topic"], number))


def _producer(knowledge: Knowledge, at: Mapping[str, Any]) -> dict[str, Any] | None:
    number = details.number_below(at["number"], 1 << 63)
    return details.producer(knowledge, ProducerId(number)) if number is not None else None
