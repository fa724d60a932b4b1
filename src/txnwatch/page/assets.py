"""The files of the browser: read once, sent with a hash in their address, and compressed once.

Law: the page loads nothing from another host, and the browser runs nothing but these files.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

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


def answer(
    request: Request, content: bytes, media_type: str, compressed: bytes | None = None, **headers: str
) -> Response:
    """An answer, compressed if the client accepts that; header names with `_` for `-`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    accepts = "gzip" in request.headers.get("accept-encoding", "")
    if accepts and len(content) >= _LEAST_COMPRESSED:
        content = compressed if compressed is not None else gzip.compress(content, 6, mtime=0)
        named["Content-Encoding"] = "gzip"
    return Response(content, headers={**named, "Vary": "Accept-Encoding"}, media_type=media_type)


class Assets:
    """All files of `static`, by name.

    Attributes:
        prefix: the part of their addresses that changes with their content.
        shell: the HTML of every address of the page.
        schema: the JSON schema of the API.
    """

    def __init__(self) -> None:
        directory = files("txnwatch.page") / "static"
        found: dict[str, Asset] = {}
        for path in sorted(directory.iterdir(), key=lambda one: one.name):
            suffix = path.name[path.name.rfind(".") :]
            if suffix in _TYPES:
                content = path.read_bytes()
                found[path.name] = Asset(content, gzip.compress(content, 9, mtime=0), _TYPES[suffix])
        self._found = found
        self.schema = (directory / "api.schema.json").read_bytes()
        digest = hashlib.sha256(b"".join(one.content for one in found.values())).hexdigest()[:16]
        self.prefix = f"/static/{digest}"
        self.shell = (directory / "index.html").read_bytes().replace(b"{static}", self.prefix.encode())

    def __getitem__(self, name: str) -> Asset:
        """The file.

        Raises:
            KeyError: there is none of that name.
        """
        return self._found[name]

    def shell_for(self, request: Request) -> Response | None:
        """The shell, for a browser; None for who asks for text."""
        wants_html = "text/html" in request.headers.get("accept", "")
        return answer(request, self.shell, "text/html; charset=utf-8") if wants_html else None

    async def serve_schema(self, request: Request) -> Response:
        """Answers with the schema of the API."""
        return answer(request, self.schema, "application/schema+json")

    async def serve(self, request: Request) -> Response:
        """Answers a request for one of the files; another hash is an older page, which has to load again."""
        asset = self._found.get(request.path_params["name"])
        if asset is None or not request.url.path.startswith(f"{self.prefix}/"):
            return Response("expected a file of this page\n", 404, media_type="text/plain")
        return answer(request, asset.content, asset.media_type, asset.compressed, Cache_Control=_FOR_EVER)
