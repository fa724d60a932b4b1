"""Which requests are sent to brokers, by kind and in order."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock

from txnwatch.streaming.client.connection import Connection


@contextlib.contextmanager
def sent_requests() -> Iterator[list[str]]:
    """The kinds of the requests that are sent inside; also ApiVersions, at the start of a connection."""
    found: list[str] = []
    send = Connection.send

    def counting(connection: Connection, request: object, *more: float) -> None:
        found.append(type(request).__name__)
        send(connection, request, *more)

    with mock.patch.object(Connection, "send", counting):
        yield found
