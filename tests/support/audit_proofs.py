"""Which test fired each check of the audit on which release, and whether its remedy ended it: tests/audit-proofs.json.

A test that audits a real broker is a proof by itself: what the first audits did not show, a later one showed, and the
last one did not, was made by the test and ended by it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class AuditProof:
    """One check in one test on one release.

    Attributes:
        test: its name, without its parameters.
        severities: those that it had.
        was_silent: whether the first audit of the test did not show it.
        left: the severities that it had in the last audit.
        commands: the tools that the test ran as the finding printed them.
    """

    check: str
    version: str
    test: str
    severities: list[str] = field(default_factory=list)
    was_silent: bool = False
    left: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)


class AuditProofs:
    """The file; a run replaces the rows of the tests that it runs."""

    path: Path | None = None

    def __init__(self) -> None:
        self._audits: dict[tuple[str, str], int] = {}
        self._begun: dict[str, AuditProof] = {}

    def saw(self, version: str, found: Iterable[tuple[str, str]]) -> None:
        """An audit of a broker of this release; `found` has the severity and the check of each finding."""
        if self.path is None:
            return
        test, now = _test(), set(found)
        first = (test, version) not in self._audits
        self._audits[test, version] = 1
        for severity, check in sorted(now):
            proof = self._proof(check, version, test, was_silent=not first)
            proof.severities = sorted({*proof.severities, severity})
        for proof in self._begun.values():
            if (proof.test, proof.version) == (test, version):
                proof.left = sorted(severity for severity, check in now if check == proof.check)
        self._write()

    def ran(self, version: str, check: str, command: str) -> None:
        """The test runs a command of a finding."""
        if self.path is not None:
            proof = self._proof(check, version, _test(), was_silent=False)
            proof.commands = sorted({*proof.commands, command.split(maxsplit=1)[0]})

    def _proof(self, check: str, version: str, test: str, *, was_silent: bool) -> AuditProof:
        made = AuditProof(check, version, test, was_silent=was_silent)
        return self._begun.setdefault(f"{check}/{version}/{test}", made)

    def _write(self) -> None:
        if self.path is None:
            return
        rows: dict[str, Any] = json.loads(self.path.read_text()) if self.path.exists() else {}
        ran = {(test, version) for test, version in self._audits}
        kept = {key: row for key, row in rows.items() if (row["test"], row["version"]) not in ran}
        kept |= {key: asdict(proof) for key, proof in self._begun.items()}
        self.path.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


def _test() -> str:
    return os.environ["PYTEST_CURRENT_TEST"].rpartition("::")[2].partition(" ")[0].partition("[")[0]


PROOFS = AuditProofs()
