"""Where a link of a page leads in the documentation site. Pure, except for the check whether a file exists."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection
from pathlib import Path

DOCS = "docs"
TOP_LEVEL = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
_CODE = re.compile(r"(^```.*?^```$|`[^`\n]*`)", flags=re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
_REFERENCE = re.compile(r"(?<=\]: )(\S+)$", flags=re.MULTILINE)


def with_links(markdown: str, change: Callable[[str], str]) -> str:
    """A page with each of its link targets changed; code stays as it is."""

    def replaced(found: re.Match[str]) -> str:
        return change(found[1])

    parts = _CODE.split(markdown)  # odd parts are code
    parts[::2] = [_REFERENCE.sub(replaced, _INLINE.sub(replaced, part)) for part in parts[::2]]
    return "".join(parts)


def source_of(page: str) -> str:
    """The path in the repository of a page of the site."""
    return next((source for source, name in TOP_LEVEL.items() if name == page), f"{DOCS}/{page}")


def site_link(target: str, page: str, pages: Collection[str], root: Path, repository: str) -> str | None:
    """The target in the site of a link on a page: a page, or a file in the repository; None if it does not exist."""
    place, has_anchor, anchor = target.partition("#")
    if not place or "://" in place or place.startswith("mailto:"):
        return target
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source_of(page)), place))
    if not (root / path).exists():
        return None
    for candidate in (path, posixpath.join(path, "README.md")):
        in_site = TOP_LEVEL.get(candidate, candidate.removeprefix(f"{DOCS}/"))
        if candidate != in_site and in_site in pages:
            return posixpath.relpath(in_site, posixpath.dirname(page) or ".") + has_anchor + anchor
    kind = "tree" if (root / path).is_dir() else "blob"
    return f"{repository}/{kind}/main/{path}{has_anchor}{anchor}"
