"""The key `page` in Redis: a watcher writes it while a page asks for it, and `txnwatch page` reads it.

Keys, under `txnwatch:{<cluster id>}:`
  page         the document (src/txnwatch/page/announced.py), compressed, and its signature; expires after a minute
  page-wanted  exists while a page asks for the document; expires after half a minute

Law: the watcher looks and writes in the thread of its mirror, so a micro-batch never waits. The reader takes at most
`MOST_BYTES` from Redis, whatever is stored there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import redis

from txnwatch.sinks.delivery.encoding import Keys, redis_place, with_signature, without_signature
from txnwatch.sinks.delivery.redis_sink import OUR_KEYS, hint_of, prefix_of, redis_client
from txnwatch.state.model.errors import BadEventError, SinkError, SkipReason
from txnwatch.state.model.values import DurationMs
from txnwatch.state.text import REDIS_URL_RULE, shown_place

MOST_BYTES: Final = 4 << 20
PAGE_PAUSE_MS: Final = DurationMs(1_000)
_PAGE, _WANTED = "page", "page-wanted"
_NAME: Final = f"{OUR_KEYS}{_PAGE}"  # what is signed
_KEEP_S, _WANTED_S = 60, 30
_LOOK_S: Final = 1.0
_WRONG_TYPE: Final = "WRONGTYPE"


class PageKeys:
    """The keys of one cluster, for its watcher; `client` returns the client of the mirror."""

    def __init__(self, client: Callable[[], Any], cluster_id: str, keys: Keys | None) -> None:
        self._client, self._keys = client, keys
        self._place, self._prefix = redis_place(cluster_id), prefix_of(cluster_id)

    def is_wanted(self) -> bool:
        """Whether a page asks for the document.

        Raises:
            SinkError: Redis does not answer, or refuses the command.
        """
        return self._asked(lambda client: client.get(f"{self._prefix}{_WANTED}")) is not None

    def write(self, document: bytes) -> None:
        """Writes the document.

        Raises:
            SinkError: as above.
        """
        value = document
        if self._keys is not None:
            value = with_signature(document, self._keys.sign(self._place, _NAME, document))
        self._asked(lambda client: client.set(f"{self._prefix}{_PAGE}", value, ex=_KEEP_S))

    def _asked(self, ask: Callable[[Any], object]) -> object:
        try:
            return ask(self._client())
        except redis.RedisError as exc:
            raise SinkError(f"the page in Redis: {exc}{hint_of(exc)}") from exc


class Wish:
    """Whether the document is wanted: looks for the key in the thread of the mirror, at most once a second."""

    def __init__(self, is_wanted: Callable[[], bool], offer: Callable[[str, Callable[[], object]], None]) -> None:
        self._is_wanted, self._offer = is_wanted, offer
        self._last, self._due_s = False, 0.0

    def look(self) -> bool:
        """The last answer; has the next look done if it is due."""
        now_s = time.monotonic()
        if now_s >= self._due_s:
            self._due_s = now_s + _LOOK_S
            self._offer("page-wanted", self._ask)
        return self._last

    def _ask(self) -> None:
        self._last = False  # also if Redis does not answer
        self._last = self._is_wanted()


class RedisPage:
    """The reader of the documents of one Redis.

    Attributes:
        name: the place, without user and password.
    """

    def __init__(self, url: str, keys: Keys | None = None) -> None:
        self._url, self._keys = url, keys
        self._made: Any = None
        self.name = f"Redis {shown_place(url)}"

    def read(self, cluster_id: str, *, is_wanted: bool) -> bytes | None:
        """The document of a cluster, and asks its watcher for the next one; None if there is none.

        Raises:
            SinkError: Redis does not answer.
            BadEventError: the document is too large, or not signed by a key of the file.
        """
        prefix = prefix_of(cluster_id)
        try:
            client = self._client()
            if is_wanted:
                client.set(f"{prefix}{_WANTED}", "1", ex=_WANTED_S)
            value: bytes = client.getrange(f"{prefix}{_PAGE}", 0, MOST_BYTES)
        except redis.RedisError as exc:
            if str(exc).startswith(_WRONG_TYPE):
                raise BadEventError(
                    SkipReason.INVALID, f"expected a text in the key {_PAGE}, found another type"
                ) from exc
            raise SinkError(f"{self.name}: {exc}") from exc
        except ValueError as exc:  # its message may have a part of the URL
            raise SinkError(f"{self.name}: expected {REDIS_URL_RULE}") from exc
        return self._checked(value, cluster_id) if value else None

    def _checked(self, value: bytes, cluster_id: str) -> bytes:
        if len(value) > MOST_BYTES:
            message = f"expected a page document of at most {MOST_BYTES} bytes, found more"
            raise BadEventError(SkipReason.TOO_LARGE, message)
        document, signature = without_signature(value)
        problem = self._keys.problem(redis_place(cluster_id), _NAME, document, signature) if self._keys else None
        if problem is not None:
            found = "no signature" if problem is SkipReason.UNSIGNED else "a signature of another key"
            raise BadEventError(problem, f"expected a page document that is signed by a key of the file, found {found}")
        return document

    def _client(self) -> Any:  # noqa: ANN401 - redis-py types answers as anything
        if self._made is None:
            self._made = redis_client(self._url)
        return self._made

    def close(self) -> None:
        """Closes the connections."""
        if self._made is not None:
            self._made.close()
