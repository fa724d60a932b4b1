"""`txnwatch audit` on a real cluster: its rows, checked against the published schema; brokers with other settings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import jsonschema
import pytest

from support.audit_proofs import PROOFS
from support.shell_tools import ShellTools
from txnwatch.cli.main import main
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

SCHEMA: dict[str, Any] = json.loads((Path(__file__).parents[2] / "docs" / "schemas" / "audit.schema.json").read_text())
Rows = list[dict[str, Any]]
_LEAVE_OUT = {"--ignore", "--min-severity", "--topic"}  # flags that leave findings out


class AuditedServers(Protocol):
    """Brokers of a version."""

    @property
    def version(self) -> str:
        """The release."""

    @property
    def bootstrap_servers(self) -> str:
        """Where they are."""


def audit_rows(
    kafka: AuditedServers, capsys: pytest.CaptureFixture[str], *flags: str, codes: Sequence[int] = (0,)
) -> Rows:
    """The rows of the JSON output; the exit code is one of `codes`."""
    capsys.readouterr()
    assert main(["audit", "-b", kafka.bootstrap_servers, "-o", "json", *flags]) in codes
    answer = json.loads(capsys.readouterr().out)
    jsonschema.validate(answer, SCHEMA)
    rows: Rows = answer["rows"]
    if _LEAVE_OUT.isdisjoint(flags):
        PROOFS.saw(kafka.version, ((row["severity"], row["check"]) for row in rows))
    return rows


def follow(kafka: AuditedServers, tools: ShellTools, rows: Rows) -> str:
    """Runs each command of each finding, as it is printed; what they print."""
    lines = [(row["check"], remedy["command"]) for row in rows for remedy in row["remedies"] if remedy["command"]]
    for check, line in lines:
        PROOFS.ran(kafka.version, check, line)
    return "".join(map(tools.run, dict.fromkeys(line for _, line in lines)))  # findings can share one


def severities(rows: Rows) -> set[str]:
    """The findings, as severity and check."""
    return {f"{row['severity']} {row['check']}" for row in rows}


def restart_with(kafka: EmbeddedKafka, node: int, **properties: str) -> None:
    """Restarts a broker after a change of its file; the names of properties have `_` for `.`."""
    file = kafka.directory / f"broker-{node}" / "server.properties"
    lines = [f"{name.replace('_', '.')}={value}\n" for name, value in properties.items()]
    kafka.broker(node).stop()
    file.write_text(file.read_text() + "".join(lines))  # of two lines with one name, the last one counts
    kafka.start_broker(node)
