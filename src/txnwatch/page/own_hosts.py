"""Whether a request is meant for this server: the name in its Host header.

Law: a web page of somebody else, whose name was made to lead to this address, must not read the page in the browser of
an operator. So the name in the Host header must be one of this server.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Awaitable, Callable, Iterable
from ipaddress import ip_address
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

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
    found = _HOST.fullmatch(header)
    if found is None:
        return False
    host = found["host"]
    try:
        ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return host.lower().removesuffix(".") in names
    return True
