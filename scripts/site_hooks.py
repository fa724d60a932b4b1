"""Hooks of mkdocs.yml: the site has the pages of the top level too, and every link that works on GitHub works in it.

The sources of the pages stay where GitHub shows them. A link leads to another page of the site, or, if its target is
not a page (code, a test, a file of deploy/), to the repository. A link without a target is a warning, which ends a
strict build. The decisions are added to the navigation, in order.
"""

from __future__ import annotations

import logging
import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.append(str(Path(__file__).parent))
from site_links import DOCS, TOP_LEVEL, site_link, source_of, with_links

ROOT = Path(__file__).resolve().parent.parent
DECISIONS = "decisions/README.md"
_LOG = logging.getLogger("mkdocs.hooks.site")
_ASSET = re.compile(r"<(?:script|img|iframe|link rel=\"(?:stylesheet|preload|preconnect)\")[^>]*(?:https?:)?//[^>]*>")


def on_startup(command: str, *, dirty: bool) -> None:
    """Makes the package tree that mkdocstrings reads, before it looks for it."""
    del command, dirty
    _link_packages(ROOT / "build" / "api")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Adds the decisions to the navigation, below their index."""
    names = sorted(path.name for path in (ROOT / DOCS / "decisions").glob("[0-9]*.md"))
    pages = [DECISIONS, *(f"decisions/{name}" for name in names)]
    config.nav = [_with_decisions(entry, pages) for entry in config.nav or []]
    return config


def _link_packages(target: Path) -> None:
    """The packages of the wheel as one tree of links, because they are in several directories of the repository."""
    shutil.rmtree(target, ignore_errors=True)
    directories = _project()["tool"]["setuptools"]["package-dir"]
    (target / "txnwatch").mkdir(parents=True)
    for found in (ROOT / directories.pop("txnwatch")).iterdir():
        (target / "txnwatch" / found.name).symlink_to(found)
    for package, directory in directories.items():
        target.joinpath(*package.split(".")).symlink_to(ROOT / directory)


def _with_decisions(entry: Any, pages: list[str]) -> Any:  # noqa: ANN401 - an entry of the navigation
    if isinstance(entry, dict):
        return {title: _with_decisions(below, pages) for title, below in entry.items()}
    if isinstance(entry, list):
        return [{"Decisions": pages} if page == DECISIONS else page for page in entry]
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

    def changed(target: str) -> str:
        found = site_link(target, name, pages, ROOT, _repository())
        if found is None:
            _LOG.warning("%s: the link %s has no target", source_of(name), target)
        return target if found is None else found

    return with_links(markdown, changed)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Warns if a page loads something from another host."""
    del config
    for found in _ASSET.findall(output):
        _LOG.warning("%s: loads %s", page.file.src_uri, found)
    return output


def _repository() -> str:
    return str(_project()["project"]["urls"]["Changelog"]).partition("/blob/")[0]


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
