"""docs/fuzz.json shows that no decoder fails, and the kept inputs are those of the targets."""

from __future__ import annotations

import json
from pathlib import Path

from fuzz.corpus import DIRECTORY
from fuzz.targets import TARGETS

ROWS = json.loads((Path(__file__).parents[3] / "docs" / "fuzz.json").read_text())["targets"]


def test_no_decoder_has_failed() -> None:
    assert {row["name"]: row["failure"] for row in ROWS if row["failure"] is not None} == {}


def test_every_target_was_fuzzed() -> None:
    assert [row["name"] for row in ROWS] == [*TARGETS]
    assert [row["name"] for row in ROWS if row["runs"] == 0] == []


def test_the_corpus_has_one_file_for_each_target() -> None:
    assert {path.stem for path in DIRECTORY.glob("*.txt")} == TARGETS.keys()
    assert {path.stem for path in DIRECTORY.glob("failed/*.txt")} <= TARGETS.keys()
