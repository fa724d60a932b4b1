"""The table "Spark errors" of docs/stopping.md shows the texts that docs/bad-inputs.json has from tests."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# Texts that no row can have, and the test that proves each: the text has the name of a host, or `run` goes on.
ELSEWHERE = {
    "is in use by process 4711 on host driver-1: one txnwatch run per checkpoint": (
        "tests/unit/streaming/job/test_checkpoint_lease.py::test_a_second_driver_ends_as_soon_as_the_first_one_renews"
    ),
    "the query ended: ...No space left on device...; restarting it": (
        "tests/e2e/test_stopping_disks_and_servers.py::test_while_a_disk_is_full"
    ),
}


def spans() -> list[tuple[str, str]]:
    """Each code span of the column with the line, and the exit code of its row."""
    section = (ROOT / "docs" / "stopping.md").read_text().partition("## Spark errors\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in rows[0]] == ["input", "line", "exit code"]
    return [(span, code.strip()) for _, line, code in rows[2:] for span in re.findall(r"`([^`]+)`", line)]


@pytest.mark.parametrize(("span", "code"), [one for one in spans() if one[0] not in ELSEWHERE])
def test_a_text_of_the_table_is_in_a_message_with_this_exit_code(span: str, code: str) -> None:
    rows = json.loads((ROOT / "docs" / "bad-inputs.json").read_text()).values()
    assert [row for row in rows if span in row["said"] and str(row["code"]) == code]


def test_every_text_without_a_row_is_in_the_table_and_has_its_test() -> None:
    assert set(ELSEWHERE) <= {span for span, _ in spans()}
    for place in ELSEWHERE.values():
        file, _, name = place.partition("::")
        tree = ast.parse((ROOT / file).read_text())
        assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, place
