"""The page of what txnwatch says about bad inputs, from docs/bad-inputs.json: results of the last `make bad-inputs`."""

from __future__ import annotations

import json
from pathlib import Path

from page_tables import escaped, places, table_line

_ABOUT = """\
txnwatch answers each input below with one line and an exit code, and without a traceback. The exit code 2 means that
the flags, the settings or the client properties have to be corrected. The exit code 1 means that txnwatch could not do
its work. Use the search of your browser to find a message.

Each row has a test. The test checks the expected part of the message, and fails if its input has no row here.
`make bad-inputs` runs these tests and writes this page. `make test` runs most of them too; those that take long are in
`make long`. Paths, ports, process numbers and cluster ids are examples. Messages of Java, Python, OpenSSL and of the
broker are repeated as they are, so they can differ on your system."""


def bad_inputs_page(root: Path, generated: str) -> str:
    """docs/bad-inputs.md."""
    rows = json.loads((root / "docs" / "bad-inputs.json").read_text()).values()
    parts = sorted({row["part"] for row in rows})
    lines = ["# Bad inputs, and what is said", "", generated, _ABOUT, "", f"{len(rows)} inputs. {places(rows)}.", ""]
    for part in parts:
        lines += [f"## {part}", "", "| input | message | exit code |", "|---|---|---:|"]
        lines += [
            table_line([_cell(row["given"]), _code(_cell(row["said"])), str(row["code"])])
            for row in rows
            if row["part"] == part
        ]
        lines.append("")
    return "\n".join(lines)


def _code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _cell(text: str) -> str:
    return escaped(text).replace("\n", " ")
