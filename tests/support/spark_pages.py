"""What a web server of Spark shows: the pages that its links lead to, and the answers of its REST interface."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from html.parser import HTMLParser
from urllib.parse import urldefrag, urljoin, urlsplit

_TIMEOUT_S = 30.0
_MOST_PAGES = 200
_OF_AN_APPLICATION = ("environment", "allexecutors", "jobs", "stages", "sql?details=true", "storage/rdd")
_NOT_READ = ("/static/", "/kill", ".sort=")  # a table in another order has no other content


class SparkPages:
    """All that one web server shows now; `paths` are pages without a link.

    Attributes:
        texts: what was read, by its path.
    """

    def __init__(self, url: str, *paths: str) -> None:
        self.texts: dict[str, str] = {}
        left = [f"{url}{path}" for path in ("/", *paths)]
        while left and len(self.texts) < _MOST_PAGES:
            left += self._read(left.pop(0), url)

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join(self.texts.values())

    @property
    def settings(self) -> str:
        """The answer with the settings of the application; the page with them gets them from there."""
        (found,) = [text for path, text in self.texts.items() if "/api/" in path and path.endswith("/environment")]
        return found

    def read_rest(self, url: str) -> None:
        """Reads the REST interface of a driver, too."""
        self._read(f"{url}/api/v1/applications", url)
        (application,) = json.loads(self.texts["/api/v1/applications"])
        for name in _OF_AN_APPLICATION:
            self._read(f"{url}/api/v1/applications/{application['id']}/{name}", url)

    def _read(self, address: str, url: str) -> list[str]:
        """Reads a page; returns its links to other pages of the server."""
        path = address.removeprefix(url)
        if path in self.texts or any(part in path for part in _NOT_READ):
            return []
        try:
            with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as answer:
                self.texts[path] = answer.read().decode(errors="replace")
                base = answer.url
        except urllib.error.HTTPError as exc:  # for example of a job that Spark has forgotten meanwhile
            self.texts[path] = exc.read().decode(errors="replace")
            return []
        links = _Links()
        links.feed(self.texts[path])
        found = (urldefrag(urljoin(base, link)).url for link in links.found)
        return [one for one in found if urlsplit(one).netloc == urlsplit(url).netloc]


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value]
