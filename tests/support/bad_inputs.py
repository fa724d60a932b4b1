"""What txnwatch says about each bad input: kept in one JSON file, docs/bad-inputs.json."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from support.result_rows import keep_row
from txnwatch.cli.output import FAILURE, USAGE
from txnwatch.state.model.errors import ConfigError

ROOT = Path(__file__).resolve().parent.parent.parent
_PATH = r"/[\w./-]*?([\w.-]+)(?=[:,;'\s)}]|$)"
_CHANGING = (
    (re.compile(re.escape(tempfile.gettempdir()) + _PATH), r"/path/to/\1"),
    (re.compile(re.escape(str(ROOT)) + _PATH), r"/path/to/\1"),
    (re.compile(r"/path/to/test_\w+"), "/path/to/directory"),
    (re.compile(r"\b(127\.0\.0\.1|localhost):(?!notaport|1\b)\d+"), r"\1:9092"),
    (re.compile(r"\br=[0-9a-f]{32}"), "r=" + "0" * 32),
    (re.compile(r"\bprocess \d+"), "process 1234"),
    (re.compile(r"\bcluster [\w-]{22}(?![\w-])"), "cluster Gk3nKQ9vS8yH0aT5wQ2x1A"),
)


class BadInputs:
    """Without a path nothing is kept, but each input must have its row in the page."""

    def __init__(self, path: Path | None, name: str) -> None:
        self._path = path
        self._name = name

    def keep(self, part: str, said: str | Exception, *, before: str = "", code: int | None = None) -> None:
        """Keeps what was said about the input that the test is about.

        The name of the input is that of the test or of its parameter, with a text `before` it. The exit code of an
        error is that of `main`.
        """
        given = before + self._name
        if code is None:
            code = USAGE if isinstance(said, ConfigError) else FAILURE
        row = {"part": part, "given": given, "said": _steady(str(said)).strip(), "code": code}
        keep_row(self._path, "bad-inputs", f"{part}: {given}", row)


def _steady(said: str) -> str:
    """The text without what another run would have differently."""
    said = said.removeprefix("txnwatch: ")
    for pattern, usual in _CHANGING:
        said = pattern.sub(usual, said)
    return said
