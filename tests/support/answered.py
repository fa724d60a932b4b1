"""What a command answers with `--format json`."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from txnwatch.cli.main import main


class Answered(NamedTuple):
    """The exit code; the JSON, empty if the command ended with an error; and the lines on standard error."""

    code: int
    answer: dict[str, Any]
    error: str

    @property
    def row(self) -> dict[str, Any]:
        """The only row."""
        (row,) = self.answer["rows"]
        return dict(row)


def answered(capsys: pytest.CaptureFixture[str], *arguments: str) -> Answered:
    """Runs a command."""
    code = main([*arguments, "--format", "json"])
    out, error = capsys.readouterr()
    return Answered(code, json.loads(out) if out else {}, error)
