"""Hooks of mkdocs.yml: the site has the pages of the top level too, and every link that works on GitHub works in it.

The sources of the pages stay where GitHub shows them. A link leads to another page of the site, or, if its target is
not a page (code, a test, a file of deploy/), to the repository. A link without a target is a warning, which ends a
strict build. The decisions are added to the navigation, in order.
"""

from __future__ import annotations

import logging
import posixpath
import re
import shutil
import tomllib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TOP_LEVEL = {
    "README.md": "index.md",
    **{f"{name.upper()}.md": f"{name}.md" for name in ("architecture", "contributing", "security", "changelog")},
}
_SOURCES = {page: source for source, page in TOP_LEVEL.items()}
_DECISIONS = "decisions/README.md"
_LOG = logging.getLogger("mkdocs.hooks.site")
_ASSET = re.compile(r"<(?:script|img|iframe|link rel=\"(?:stylesheet|preload|preconnect)\")[^>]*(?:https?:)?//[^>]*>")
_NO_LINKS = re.compile(r"(^```.*?^```$|`[^`\n]*`|^<!--.*?-->$)", flags=re.MULTILINE | re.DOTALL)
_TARGET = re.compile(r"(?<=\]\()[^)\s]+(?=\))|(?<=\]: )\S+$", flags=re.MULTILINE)


def on_startup(command: str, *, dirty: bool) -> None:
    """Makes the packages of the wheel one tree of links for mkdocstrings, because they are in several directories."""
    del command, dirty
    target = ROOT / "build" / "api"
    shutil.rmtree(target, ignore_errors=True)
    directories = dict(PROJECT["tool"]["setuptools"]["package-dir"])
    (target / "txnwatch").mkdir(parents=True)
    for found in (ROOT / directories.pop("txnwatch")).iterdir():
        (target / "txnwatch" / found.name).symlink_to(found)
    for package, directory in directories.items():
        target.joinpath(*package.split(".")).symlink_to(ROOT / directory)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Adds the decisions to the navigation, below their index."""
    names = sorted(path.name for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    config.nav = _with_decisions(config.nav, [_DECISIONS, *(f"decisions/{name}" for name in names)])
    return config


def _with_decisions(entry: Any, pages: list[str]) -> Any:  # noqa: ANN401 - an entry of the navigation
    if isinstance(entry, dict):
        return {title: _with_decisions(below, pages) for title, below in entry.items()}
    if isinstance(entry, list):
        return [{"Decisions": pages} if one == _DECISIONS else _with_decisions(one, pages) for one in entry]
    return entry


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages of the top level."""
    for source, page in TOP_LEVEL.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Makes the links of a page links of the site or of the repository."""
    del config
    name, pages = page.file.src_uri, files.src_uris.keys()
    repository = str(PROJECT["project"]["urls"]["Changelog"]).partition("/blob/")[0]

    def changed(target: str) -> str:
        found = site_link(target, name, pages, repository)
        if found is None:
            _LOG.warning("%s: the link %s has no target", _source_of(name), target)
        return target if found is None else found

    return with_links(markdown, changed)


def with_links(markdown: str, change: Callable[[str], str]) -> str:
    """A page with each of its link targets changed; code and comments stay as they are."""
    parts = _NO_LINKS.split(markdown)  # odd parts have no links
    parts[::2] = [_TARGET.sub(lambda found: change(found[0]), part) for part in parts[::2]]
    return "".join(parts)


def site_link(target: str, page: str, pages: Collection[str], repository: str) -> str | None:
    """The target in the site of a link on a page: a page, or a file in the repository; None if it does not exist."""
    place, has_anchor, anchor = target.partition("#")
    if not place or "://" in place or place.startswith("mailto:"):
        return target
    path = posixpath.normpath(posixpath.join(posixpath.dirname(_source_of(page)), place))
    if not (ROOT / path).exists():
        return None
    for candidate in (path, posixpath.join(path, "README.md")):
        in_site = TOP_LEVEL.get(candidate, candidate.removeprefix("docs/"))
        if candidate != in_site and in_site in pages:
            return posixpath.relpath(in_site, posixpath.dirname(page) or ".") + has_anchor + anchor
    kind = "tree" if (ROOT / path).is_dir() else "blob"
    return f"{repository}/{kind}/main/{path}{has_anchor}{anchor}"


def _source_of(page: str) -> str:
    return _SOURCES.get(page, f"docs/{page}")


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Warns if a page loads something from another host."""
    del config
    for found in _ASSET.findall(output):
        _LOG.warning("%s: loads %s", page.file.src_uri, found)
    return output
