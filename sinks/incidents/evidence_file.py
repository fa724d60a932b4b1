"""Keeps this process's own evidence in a file beside its checkpoint.

The first line has the markers written within the last hour, each other line one hanging transaction, as JSON. Only this
process writes the file; a client of the cluster has no access to it. It keeps outcomes that the coordinator no longer
shows over a restart, even with another version of txnwatch (state/store/evidence_lines.py). If the file cannot be read
or written, only these data are lost. A line that cannot be read affects no other line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from txnwatch.state.abort.case import StoredEvidence, StoredFindings
from txnwatch.state.model.values import TimestampMs
from txnwatch.state.store.evidence_lines import decode_evidence, encode_evidence
from txnwatch.state.text import Said, read_json


class EvidenceStore(Protocol):
    """Durable storage for `StoredFindings`, which only this process writes."""

    def load(self) -> StoredFindings:
        """The stored findings; none if they cannot be read."""

    def keep(self, kept: StoredFindings) -> None:
        """Replaces the stored findings."""


class EvidenceFile:
    """An EvidenceStore."""

    def __init__(self, path: Path, report: Callable[[str], None]) -> None:
        self._path = path
        self._report = report
        self._said = Said[str]()

    def load(self) -> StoredFindings:
        """See EvidenceStore."""
        try:
            markers, *lines = self._path.read_text().splitlines()
            marked = tuple((str(incident_id), TimestampMs(int(at_ms))) for incident_id, at_ms in read_json(markers))
        except FileNotFoundError:
            return StoredFindings()
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as exc:
            self._report(f"{self._path}: evidence from before this start cannot be read, and is collected again: {exc}")
            return StoredFindings()
        return StoredFindings(tuple(self._evidence(lines)), marked)

    def _evidence(self, lines: Sequence[str]) -> Iterator[StoredEvidence]:
        problems = []
        for line in lines:
            try:
                yield decode_evidence(line)
            except ValueError as exc:
                problems.append(exc)
        if problems:
            found = f"evidence about {len(problems)} of {len(lines)} hanging transactions from before this start"
            self._report(f"{self._path}: {found} cannot be read, and is collected again: {problems[0]}")

    def keep(self, kept: StoredFindings) -> None:
        """See EvidenceStore."""
        lines = [json.dumps(kept.markers), *(encode_evidence(one) for one in kept.evidence)]
        text = "".join(f"{line}\n" for line in lines)
        temporary = self._path.with_suffix(".new")
        try:
            temporary.write_text(text)
            os.replace(temporary, self._path)  # noqa: PTH105 - atomic, also over an existing file
        except OSError as exc:
            if self._said.is_new("not saved"):
                self._report(f"{self._path}: evidence is not saved for the next start: {exc}")
        else:
            self._said.is_over("not saved")
