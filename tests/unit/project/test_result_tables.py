"""The page of results has every file of results, every benchmark, and the targets that measure again."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]
MEASURED = (ROOT / "docs" / "measured.md").read_text()


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    return importlib.import_module("result_tables")


def test_the_page_links_every_file_of_results_and_names_every_benchmark(page: ModuleType) -> None:
    files = {path.name for path in (ROOT / "docs").glob("*.json")}
    assert files == {f"{file}.json" for file in page.TARGETS}
    assert [file for file in files if f"]({file})" not in MEASURED] == []
    benches = {row["bench"] for row in json.loads((ROOT / "docs" / "benchmarks.json").read_text()).values()}
    assert [bench for bench in benches if not re.search(rf"ARGS={bench}\b|\*{bench}\*", MEASURED)] == []


def test_every_target_that_writes_results_is_in_the_makefile(page: ModuleType) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert set(page.TARGETS.values()) <= set(targets)
