"""The page over HTTP: its shell and files, its JSON under `/api/v1`, its stream, and itself as text for curl.

Law:
    * A viewer costs the cluster and the micro-batch nothing: every answer is made from the store, in the page's thread,
      at most twice a second for all viewers together.
    * Only GET: nothing here writes.
    * The name in the Host header must be one of this server. Otherwise a web page of somebody else, whose name was
      made to lead to this address, could read the page in the browser of an operator.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from txnwatch import __version__
from txnwatch.page import details
from txnwatch.page.assets import Assets, answer
from txnwatch.page.picture import Knowledge, Picture, changes, picture_of
from txnwatch.page.store import PageStore
from txnwatch.page.stream import Viewers, message
from txnwatch.page.words import as_text, duration
from txnwatch.state.model.ownership import WITHOUT_OWNER
from txnwatch.state.model.values import Offset, ProducerId, TimestampMs, TopicPartition, is_topic_name
from txnwatch.streaming.job.checkpoint import Progress

_PAUSE_S: Final = 0.5
_QUIET_S: Final = 1.0  # time alone changes the picture, too
_NEW_S: Final = 0.4  # less than a pause, so that each pause ends with a new picture
_SAMPLE_S: Final = 5.0
_PROGRESS_S: Final = 1.0
_POINTS: Final = 720
_JSON: Final = "application/json"
_HOST: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")
_encode: Final = msgspec.json.Encoder().encode


@dataclass
class PageSite:
    """Everything that the HTTP server has beside the metrics and the probes.

    Attributes:
        progress: returns the progress of the query; is called in the thread of the metrics.
        names: host names under which the page is reached, beside addresses and this machine's name.
    """

    store: PageStore
    now_ms: Callable[[], TimestampMs]
    progress: Callable[[], Progress | None] = lambda: None
    names: Sequence[str] = ()
    _assets: Assets = field(default_factory=Assets)
    _boot: str = field(default_factory=lambda: secrets.token_hex(4))
    _number: int = 0
    _picture: Picture = field(default_factory=dict)
    _published: Picture = field(default_factory=dict)
    _known: Knowledge | None = None
    _made_s: float = -1.0
    _progress_s: float = -1.0
    _reading: asyncio.Future[Any] | None = None
    _ends: Mapping[TopicPartition, Offset] = field(default_factory=dict)
    _collect: Callable[[Callable[[], Any]], Awaitable[Any]] | None = None
    _series: deque[dict[str, float | None]] = field(default_factory=lambda: deque(maxlen=_POINTS))

    def __post_init__(self) -> None:
        self._viewers = Viewers(self._snapshot_message, self._beat_message)
        self._allowed = {"localhost", *(name.lower() for name in self.names)}
        self._allowed.add(socket.gethostname().lower())

    # What runs.

    async def work(self, collect: Callable[[Callable[[], Any]], Awaitable[Any]]) -> None:
        """Samples the watcher's figures, and publishes the changes while somebody looks, until it is cancelled."""
        self._collect, self._reading, loop = collect, None, asyncio.get_running_loop()
        self._viewers = Viewers(self._snapshot_message, self._beat_message)
        changed = asyncio.Event()
        sample_s = 0.0

        def wake() -> None:
            if len(self._viewers):
                loop.call_soon_threadsafe(changed.set)

        self.store.on_change = wake
        try:
            while True:
                if loop.time() >= sample_s:
                    self._series.append(self._figures())
                    sample_s = loop.time() + _SAMPLE_S
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), _QUIET_S)
                changed.clear()
                if len(self._viewers):
                    await self._publish()
                    await asyncio.sleep(_PAUSE_S)
        finally:
            self.store.on_change = lambda: None

    def end(self) -> None:
        """Ends the streams."""
        self._viewers.end(message("bye", self._event_id, _encode({"why": "shutdown"})))

    async def _publish(self) -> None:
        await self.refresh()
        before, self._published = self._published, self._picture
        if before is not self._published:
            difference = {**self._head(self._published), **changes(before, self._published)}
            self._viewers.publish(message("delta", self._event_id, _encode(difference)))

    async def refresh(self) -> None:
        """Makes the picture anew, unless the last one is new and shows the last micro-batch."""
        now_s = asyncio.get_running_loop().time()
        shows_last = self._known is not None and self._known.seen is self.store.seen
        if shows_last and now_s - self._made_s < _NEW_S:
            return
        if now_s - self._progress_s >= _PROGRESS_S:
            self._progress_s = now_s
            await self._read_ends()
        self._made_s = asyncio.get_running_loop().time()
        figures = {name: [value] for name, value in self._figures().items()}
        known = Knowledge(store=self.store, seen=self.store.seen, now_ms=self.now_ms(), ends=self._ends, series=figures)
        picture = picture_of(known)
        self._known = known
        if picture != self._picture:
            self._number += 1
            self._picture = picture

    async def _read_ends(self) -> None:
        """Reads the ends of the partitions. Spark may not answer: then they are not known, and nothing waits for it."""
        if self._collect is None:
            return
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._collect(self.progress))
        done, _ = await asyncio.wait({self._reading}, timeout=_PROGRESS_S)
        self._ends = {}
        if done:
            progress: Progress | None = self._reading.result()
            self._reading = None
            self._ends = progress.ends if progress is not None else {}

    def _figures(self) -> dict[str, float | None]:
        """The watcher's own figures at this moment."""
        seen, latencies = self.store.seen, sorted(self.store.latencies_ms)
        evidence = seen.evidence
        judged = seen.judged_ms is not None
        return {
            "latency_p99_ms": latencies[len(latencies) * 99 // 100] if latencies else None,
            "batch_ms": seen.batch_ms if judged else None,
            "unproven": len({*evidence.unproven, *evidence.unproven_by_census}) if evidence is not None else None,
            "open": sum(count for one in seen.counts for _, count in one.states) if judged else None,
            "undelivered": seen.undelivered,
        }

    @property
    def _event_id(self) -> str:
        return f"{self._boot}-{self._number}"

    def _head(self, picture: Picture) -> dict[str, Any]:
        """What every message has; `judged_ms` is that of the picture, so that an old picture gets old."""
        origin = self.store.origin
        return {
            "boot": self._boot,
            "seq": self._number,
            "server_ms": self.now_ms(),
            "judged_ms": picture["status"]["judged_ms"] if picture else None,
            "cluster": origin.cluster_id if origin is not None else None,
            "instance": self.store.instance,
            "version": __version__,
        }

    def _snapshot_message(self) -> bytes:
        return message("snapshot", self._event_id, _encode({**self._head(self._published), "picture": self._published}))

    def _beat_message(self) -> bytes:
        return message("beat", self._event_id, _encode(self._head(self._published)))

    # What is answered.

    @property
    def routes(self) -> list[BaseRoute]:
        """The paths: those of the page all have one shell, which reads its address itself."""
        shells = ("/", "/incidents", "/watcher", "/open", "/id")
        below = ("/incident/{rest:path}", "/partition/{rest:path}", "/id/{rest:path}", "/producer/{rest:path}")
        return [
            *(Route(path, self._guarded(self._shell)) for path in (*shells, *below)),
            Route("/static/{hash}/{name}", self._guarded(self._assets.serve)),
            Route("/favicon.ico", self._guarded(self._icon)),
            *(Route(f"/api/v1/{path}", self._guarded(serve)) for path, serve in self._resources()),
        ]

    def _resources(self) -> Iterable[tuple[str, Callable[[Request], Awaitable[Response]]]]:
        yield "stream", self._stream
        yield "snapshot", self._snapshot
        yield "status", self._with_picture(lambda picture, _: picture["status"])
        yield "series", self._with_picture(lambda _, __: self._columns())
        yield "incidents", self._with_picture(self._incidents)
        yield "incidents/{id}", self._about(lambda known, at: details.incident(known, at["id"]))
        yield "partitions/{topic}/{number:int}", self._about(_partition)
        yield "producers/{number:int}", self._about(lambda known, at: details.producer(known, ProducerId(at["number"])))
        yield "ids", self._about(lambda known, at: details.transactional_id(known, at["name"]))
        yield "open", self._about(lambda known, _: details.oldest(known))
        yield "find", self._about(lambda known, at: details.found(known, at["name"]))

    def _guarded(self, serve: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            if not is_own_host(request.headers.get("host", ""), self._allowed):
                return PlainTextResponse("expected a host of http_names, or an IP address, in the Host header\n", 421)
            return await serve(request)

        return guarded

    async def _shell(self, request: Request) -> Response:
        if "text/html" in request.headers.get("accept", ""):
            return answer(request, self._assets.shell, "text/html; charset=utf-8")
        await self.refresh()
        assert self._known is not None
        return PlainTextResponse(text_of(self._picture, self._known.now_ms))

    async def _icon(self, request: Request) -> Response:
        icon = self._assets["icon.svg"]
        return answer(request, icon.content, icon.media_type, icon.compressed)

    async def _snapshot(self, request: Request) -> Response:
        await self.refresh()
        tag = f'"{self._event_id}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        return answer(request, _encode({**self._head(self._picture), "picture": self._picture}), _JSON, ETag=tag)

    def _with_picture(self, found: Callable[[Picture, Request], Any]) -> Callable[[Request], Awaitable[Response]]:
        async def serve(request: Request) -> Response:
            await self.refresh()
            return answer(request, _encode(found(self._picture, request)), _JSON)

        return serve

    def _incidents(self, picture: Picture, request: Request) -> dict[str, Any]:
        if request.query_params.get("state", "open") == "recent":
            return picture["recent"]
        rows = [picture["incidents"][one] for one in picture["order"]["incidents"]]
        team = request.query_params.get("owner")
        if team is not None:
            rows = [
                row for row in rows if team == (row["owner"]["team"] if row["owner"] is not None else WITHOUT_OWNER)
            ]
        return {"rows": rows, "more": picture["order"]["more_incidents"]}

    def _columns(self) -> dict[str, Any]:
        points = list(self._series)
        names = points[0] if points else {}
        return {"every_ms": _SAMPLE_S * 1000, "columns": {name: [one[name] for one in points] for name in names}}

    def _about(self, found: Callable[[Knowledge, Mapping[str, Any]], Any]) -> Callable[[Request], Awaitable[Response]]:
        async def serve(request: Request) -> Response:
            await self.refresh()
            assert self._known is not None
            at = {"name": request.query_params.get("name", ""), **request.path_params}
            value = found(self._known, at)
            if value is None:
                missing = {"error": "expected something that is open, or ended less than a day ago, found nothing"}
                return Response(_encode(missing), 404, media_type=_JSON)
            return answer(request, _encode({**self._head(self._picture), "answer": value}), _JSON)

        return serve

    async def _stream(self, request: Request) -> Response:
        address = request.client.host if request.client is not None else ""
        if not self._viewers.has_room(address):
            return PlainTextResponse("too many viewers\n", 503, headers={"Retry-After": "10"})
        await self.refresh()
        if not len(self._viewers):
            self._published = self._picture
        connection = request.scope.get("state", {}).get("connection")
        before_each = connection.continues if connection is not None else lambda: None
        stream = self._viewers.messages(address, before_each)
        return StreamingResponse(stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def _partition(known: Knowledge, at: Mapping[str, Any]) -> dict[str, Any] | None:
    if not is_topic_name(at["topic"]) or at["number"] >= 1 << 31:
        return None
    return details.partition(known, TopicPartition(at["topic"], at["number"]))


def is_own_host(header: str, names: Iterable[str]) -> bool:
    """Whether a Host header names this server: by an IP address, which no other server can claim, or by a name."""
    found = _HOST.fullmatch(header)
    if found is None:
        return False
    host = found["host"]
    try:
        ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return host.lower().removesuffix(".") in names
    return True


def text_of(picture: Picture, now_ms: TimestampMs) -> str:
    """The page as text: the sentence, and the open incidents with their commands."""
    status = picture["status"]
    judged_ms = status["judged_ms"]
    age = f"evaluated {duration(now_ms - judged_ms)} ago" if judged_ms is not None else "never evaluated"
    lines = [as_text(status["headline"], now_ms), f"{as_text(status['detail'], now_ms)} · {age}"]
    for key in picture["order"]["incidents"]:
        row = picture["incidents"][key]
        where = ", ".join(row["places"]) or "-"
        since = duration(now_ms - row["since_ms"])
        lines += [
            "",
            f"{row['tag']}  {where}  behind {row['holder']}  for {since}",
            f"  {row['why']}",
            f"  {row['next']}",
            *([f"  {row['advice']}"] if row["advice"] is not None else []),
            *([f"  call {_who(row['owner'])}"] if row["owner"] is not None else []),
        ]
        if row["command"] is not None:
            lines.append(f"  {row['command']}")
    if picture["order"]["more_incidents"]:
        lines += ["", f"and {picture['order']['more_incidents']} more incidents"]
    return "\n".join(lines) + "\n"


def _who(owner: Mapping[str, Any]) -> str:
    return f"{owner['name']}, {owner['contact']}" if owner["contact"] is not None else str(owner["name"])
