"""The documentation site: every page is in it, every link of GitHub leads somewhere in it, and it loads nothing."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]
REPOSITORY = "https://example.org/repository"
PAGES = {"index.md", "architecture.md", "cli.md", "decisions/README.md", "decisions/0001-one.md"}
BUILT_IN = (
    "mkdocs.yml",
    "pyproject.toml",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "LICENSE",
)


@pytest.fixture(scope="module")
def links() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "scripts" / "site_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the pages and of what makes a site of them; the rest of the tree is linked."""
    for path in ROOT.iterdir():
        if path.name in {"docs", "scripts"}:
            shutil.copytree(path, tmp_path / path.name)
        elif path.name in BUILT_IN:
            shutil.copy(path, tmp_path / path.name)
        elif path.name not in {"build", ".venv", ".git"}:
            (tmp_path / path.name).symlink_to(path)
    return tmp_path


def build(directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]  # with --quiet, mkdocs counts no warning
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)


def test_the_site_is_built_without_a_warning_and_has_every_page(tree: Path) -> None:
    done = build(tree)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    made = {path.relative_to(tree / "build" / "site") for path in (tree / "build" / "site").rglob("*.html")}
    top = {Path(f"{name}.html") for name in ("index", "architecture", "contributing", "security", "changelog")}
    assert (
        made - {Path("404.html")}
        == {path.with_stem("index") if path.stem == "README" else path for path in pages} | top
    )
    for path in made:
        shown = re.sub(r"<pre.*?</pre>", "", (tree / "build" / "site" / path).read_text(), flags=re.DOTALL)
        assert re.findall(r"^(?:<p>)?(?:- |\| |\d+\. ).*", shown, flags=re.MULTILINE) == [], (
            f"{path}: no list, no table"
        )
    source = (tree / "build" / "site" / "spark-source.html").read_text()
    assert 'id="txnwatch.streaming.source.datasource.TransactionsDataSource"' in source


@pytest.mark.long
def test_a_broken_link_a_broken_anchor_and_an_asset_of_another_host_fail_the_build(tree: Path) -> None:
    """The decisions are most of the site, and this build need not have them."""
    shutil.rmtree(tree / "docs" / "decisions")
    with (tree / "docs" / "limits.md").open("a") as page:
        page.write("\n[a](gone.md) [b](cli.md#gone) ![c](https://example.org/c.png)\n")
    done = build(tree)
    assert done.returncode != 0
    assert "docs/limits.md: the link gone.md has no target" in done.stderr
    assert "'cli.md#gone'" in done.stderr
    assert "limits.md: loads <img" in done.stderr


@pytest.mark.parametrize("picture", sorted((ROOT / "docs").rglob("*.svg")), ids=lambda path: path.name)
def test_a_picture_loads_nothing(picture: Path) -> None:
    assert "url(http" not in picture.read_text().replace('"', "").replace("'", "")


LINKS = {
    "a page of docs, from the top level": ("docs/cli.md#flags", "index.md", "cli.md#flags"),
    "a page of the top level, from docs": ("../ARCHITECTURE.md", "cli.md", "architecture.md"),
    "a page of the top level, from a decision": ("../../README.md", "decisions/0001-one.md", "../index.md"),
    "a page, from a decision": ("../cli.md", "decisions/0001-one.md", "../cli.md"),
    "a folder with an index": ("docs/decisions/", "index.md", "decisions/README.md"),
    "a file that is no page": ("../pyproject.toml", "cli.md", f"{REPOSITORY}/blob/main/pyproject.toml"),
    "a folder without an index": ("deploy/", "index.md", f"{REPOSITORY}/tree/main/deploy"),
    "an anchor of the page": ("#flags", "cli.md", "#flags"),
    "another host": ("https://example.org/a.md", "cli.md", "https://example.org/a.md"),
    "nothing": ("docs/gone.md", "index.md", None),
}


@pytest.mark.parametrize(("target", "page", "expected"), LINKS.values(), ids=LINKS.keys())
def test_a_link_of_the_repository_is_a_link_of_the_site(
    links: ModuleType, target: str, page: str, expected: str | None
) -> None:
    assert links.site_link(target, page, PAGES, REPOSITORY) == expected


def test_links_in_code_stay_as_they_are(links: ModuleType) -> None:
    page = "[a](b.md) `[a](b.md)` [`a`](b.md)\n```\n[a](b.md)\n```\n[a]: b.md\n"
    changed = links.with_links(page, str.upper)
    assert changed == "[a](B.MD) `[a](b.md)` [`a`](B.MD)\n```\n[a](b.md)\n```\n[a]: B.MD\n"
