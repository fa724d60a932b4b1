"""A real browser for the tests of the page: Debian's Chromium, driven by Playwright; and axe-core for accessibility."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from support.missing_tools import skip_or_fail
from txnwatch_demo.embedded.jars import cache_directory

ROOT = Path(__file__).parents[2]
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
AXE_LOCK = ROOT / "tests" / "browser" / "axe.lock.toml"


# A missing tool fails the tests where a browser was found that works (`scripts/browser.sh`).
_skip_or_fail = functools.partial(skip_or_fail, variable="TXNWATCH_TEST_BROWSER")


@contextlib.contextmanager
def a_browser() -> Iterator[Any]:
    """A headless Chromium; skips the test with one line that says what is missing."""
    path = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if path is None:
        _skip_or_fail("the tests of the page need Chromium: apt-get install chromium-headless-shell, or chromium")
    if importlib.util.find_spec("playwright") is None:
        _skip_or_fail("the tests of the page need Playwright: make browser-venv")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # As root, which CI is, Chromium has no sandbox. It only opens pages of these tests.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def axe() -> str:
    """The source of axe-core, from the cache or from npm; its hash is that of the lock."""
    vendor = _vendor()
    (package,) = vendor.packages(AXE_LOCK)
    (file,) = package["file"]
    kept = cache_directory() / f"{package['name']}-{package['version']}.js"
    if kept.exists() and hashlib.sha256(kept.read_bytes()).hexdigest() == file["sha256"]:
        return kept.read_text()
    if shutil.which("npm") is None:
        _skip_or_fail("the tests of accessibility need npm once, which downloads axe-core")
    try:
        content = vendor.fetched(package)[file["to"]]
    except (OSError, subprocess.SubprocessError) as exc:
        _skip_or_fail(f"axe-core cannot be downloaded: {exc}")
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(content)
    return content.decode()


def _vendor() -> ModuleType:
    spec = importlib.util.spec_from_file_location("vendor", ROOT / "scripts" / "vendor.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault("vendor", module)
    spec.loader.exec_module(module)
    return module


NOTHING_ELSE: Mapping[str, int] = MappingProxyType({})
SLOWER = 3  # than a machine without other work


@dataclass
class Tab:
    """An open page, and everything that its console has said."""

    page: Any
    url: str
    said: list[str] = field(default_factory=list)

    def sentence(self) -> str:
        """The first sentence as text."""
        return str(self.page.inner_text("#sentence h1"))

    def until(self, text: str, selector: str = "#sentence", within_s: float = 10.0) -> None:
        """Waits until an element has the text."""
        self.page.locator(selector, has_text=text).first.wait_for(timeout=SLOWER * within_s * 1000)

    def violations(self) -> list[str]:
        """What axe finds: WCAG 2.0 to 2.2, A and AA, and best practices."""
        self.page.evaluate(axe())
        tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
        found = self.page.evaluate(f"axe.run(document, {{runOnly: {json.dumps(tags)}}})")
        return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found["violations"]]

    @property
    def is_too_wide(self) -> bool:
        """Whether the page can be scrolled to the side."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > innerWidth"))


def _with_constant(name: str, value: int, route: Any) -> None:
    """Answers with the script, in which a constant has another value."""
    constant = re.compile(rf"^const {name} = \d+;", flags=re.MULTILINE)
    text, times = constant.subn(f"const {name} = {value};", route.fetch().text())
    assert times == 1, f"no constant {name} in {route.request.url}"
    route.fulfill(body=text, content_type="text/javascript")


@contextlib.contextmanager
def a_tab(
    browser: Any,
    url: str,
    path: str = "/",
    *,
    width: int = 1440,
    height: int = 900,
    is_dark: bool = False,
    constants: Mapping[str, int] = NOTHING_ELSE,
    **how: Any,
) -> Iterator[Tab]:
    """A tab with the page at a path; `constants` gives constants of its scripts other values, as "live.js POLL_MS"."""
    scheme = "dark" if is_dark else "light"
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **how)
    tab = Tab(context.new_page(), url)
    tab.page.on("console", lambda found: tab.said.append(f"{found.type}: {found.text}"))
    tab.page.on("pageerror", lambda found: tab.said.append(f"error: {found}"))
    for constant, value in constants.items():
        script, name = constant.split()
        tab.page.route(f"**/{script}", functools.partial(_with_constant, name, value))
    try:
        tab.page.goto(url + path)
        yield tab
    finally:
        context.close()
