"""The files of the browser, and the requests that are answered: those that name this server in their Host header.

Law:
    * A web page of somebody else, whose name was made to lead to this address, must not read the page in the browser of
      an operator. So the name in the Host header must be one of this server.
    * The page loads nothing from another host, and the browser runs nothing but these files.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from importlib.resources import files
from ipaddress import ip_address
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from txnwatch.page.packed import PackedStream, Piece, Pieces
from txnwatch.page.words import SENTENCES

Serve = Callable[[Request], Awaitable[Response]]
_HOST: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")


class OwnHosts:
    """The host names of this server: addresses, localhost, the name of this machine, and the given ones."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = {"localhost", socket.gethostname().lower(), *(name.lower() for name in names)}

    def guarded(self, serve: Serve) -> Serve:
        """The same answer, but only for a request to this server."""

        async def guarded(request: Request) -> Response:
            if not is_own_host(request.headers.get("host", ""), self._names):
                return PlainTextResponse("expected a host of http_names, or an IP address, in the Host header\n", 421)
            return await serve(request)

        return guarded


def is_own_host(header: str, names: Iterable[str]) -> bool:
    """Whether a Host header names this server: by an IP address, which no other server can claim, or by a name."""
    match = _HOST.fullmatch(header)
    if match is None:
        return False
    host = match["host"]
    try:
        ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return host.lower().removesuffix(".") in names
    return True


# The files: read once, sent with a hash in their address, and compressed once.

_TYPES: Final = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FOR_EVER: Final = "public, max-age=31536000, immutable"
_LEAST_COMPRESSED: Final = 512


@dataclass(frozen=True, slots=True)
class Asset:
    """One file."""

    content: bytes
    compressed: bytes
    media_type: str


def accepts_gzip(request: Request) -> bool:
    """Whether the client takes a compressed answer."""
    return "gzip" in request.headers.get("accept-encoding", "")


def wants_html(request: Request) -> bool:
    """Whether a browser asks for a page; else it is asked for as text."""
    return "text/html" in request.headers.get("accept", "") and request.query_params.get("format") != "text"


def answer(
    request: Request, content: bytes, media_type: str, compressed: Callable[[], bytes] | None = None, **headers: str
) -> Response:
    """An answer, compressed if the client accepts that; header names with `_` for `-`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if accepts_gzip(request) and len(content) >= _LEAST_COMPRESSED:
        content = compressed() if compressed is not None else gzip.compress(content, 6, mtime=0)
        named["Content-Encoding"] = "gzip"
    return Response(content, headers={**named, "Vary": "Accept-Encoding"}, media_type=media_type)


class InParts(StreamingResponse):
    """An answer in parts, each of which is sent at once; compressed if the client accepts that."""

    def __init__(self, request: Request, parts: AsyncIterator[Pieces], media_type: str, **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if accepts_gzip(request):
            named["Content-Encoding"] = "gzip"
        content = _packed(parts) if accepts_gzip(request) else _plain(parts)
        super().__init__(content, headers={**named, "Vary": "Accept-Encoding"}, media_type=media_type)


async def _plain(parts: AsyncIterator[Pieces]) -> AsyncIterator[bytes]:
    async for pieces in parts:
        yield b"".join(piece.plain for piece in pieces)


async def _packed(parts: AsyncIterator[Pieces]) -> AsyncIterator[bytes]:
    stream = PackedStream()
    async for pieces in parts:
        yield stream.add(pieces)
    yield stream.end()


class Assets:
    """All files of `static`, by name; some end with the sentences that Python has.

    Attributes:
        prefix: the part of their addresses that changes with their content.
        shell: the HTML of every address of the page, before and after the first picture.
        schema: the JSON schema of the API.
    """

    def __init__(self) -> None:
        directory = files("txnwatch.page") / "static"
        contents = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}
        for name, (constant, sentences) in SENTENCES.items():
            contents[name] += b"%s = %s;\n" % (constant.encode(), msgspec.json.encode(sentences))
        assets: dict[str, Asset] = {}
        for name, content in sorted(contents.items()):
            suffix = name[name.rfind(".") :]
            if suffix in _TYPES:
                assets[name] = Asset(content, gzip.compress(content, 9, mtime=0), _TYPES[suffix])
        self._found = assets
        self.schema = (directory / "api.schema.json").read_bytes()
        digest = hashlib.sha256(b"".join(asset.content for asset in assets.values())).hexdigest()[:16]
        self.prefix = f"/static/{digest}"
        html = (directory / "index.html").read_bytes().replace(b"{static}", self.prefix.encode())
        before, _, after = html.partition(b"{first}")
        self.shell = Piece(before), Piece(after)

    def __getitem__(self, name: str) -> Asset:
        """The file.

        Raises:
            KeyError: there is none of that name.
        """
        return self._found[name]

    def shell_with(self, request: Request, first: Callable[[], Awaitable[Pieces]]) -> Response:
        """The shell with the first picture. Its head is sent at once, so the browser asks for the files meanwhile."""

        async def parts() -> AsyncIterator[Pieces]:
            yield self.shell[:1]
            yield await first()
            yield self.shell[1:]

        return InParts(request, parts(), "text/html; charset=utf-8")

    async def serve_schema(self, request: Request) -> Response:
        """Answers with the schema of the API."""
        return answer(request, self.schema, "application/schema+json")

    async def serve(self, request: Request) -> Response:
        """Answers a request for one of the files; another hash is an older page, which has to load again."""
        asset = self._found.get(request.path_params["name"])
        if asset is None or not request.url.path.startswith(f"{self.prefix}/"):
            return Response("expected a file of this page\n", 404, media_type="text/plain")
        return answer(request, asset.content, asset.media_type, lambda: asset.compressed, Cache_Control=_FOR_EVER)


def file_routes(assets: Assets, hosts: OwnHosts) -> list[BaseRoute]:
    """The paths of the files that the shell names."""

    async def icon(request: Request) -> Response:
        asset = assets["icon.svg"]
        return answer(request, asset.content, asset.media_type, lambda: asset.compressed)

    return [
        Route("/static/{hash}/{name}", hosts.guarded(assets.serve)),
        Route("/favicon.ico", hosts.guarded(icon)),
    ]
