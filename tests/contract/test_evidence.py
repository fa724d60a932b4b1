"""What a process has found outlives it: in memory for tests, in a file beside the checkpoint for real."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.kept_evidence import KeptEvidence
from support.ledger_world import LedgerWorld
from txnwatch.sinks.incidents.evidence_file import EvidenceFile, EvidenceStore
from txnwatch.state.evidence.proven_hang import StoredEvidence, StoredFindings

Again = Callable[[], EvidenceStore]


@pytest.fixture(params=["memory", "file"])
def again(request: pytest.FixtureRequest, tmp_path: Path) -> Again:
    """The store of each start."""
    if request.param == "file":
        return lambda: EvidenceFile(tmp_path / "evidence.jsonl", print)
    known = KeptEvidence()
    return lambda: known


def found(*names: str) -> tuple[StoredEvidence, ...]:
    world = LedgerWorld()
    world.batch(*[world.hang(name) for name in names])
    evidence = world.evidence.load().evidence
    assert [(one.key, one.data, one.outcome, one.witness) for one in evidence] == [
        (incident.span, proven.data, proven.outcome, proven.witness)
        for incident, proven in world.ledger.ledger.book.proven()
    ]
    return evidence


def test_nothing_was_kept_yet(again: Again) -> None:
    assert again().load() == StoredFindings()


def test_stored_findings_are_loaded_at_the_next_start_and_replace_the_former_ones(again: Again) -> None:
    two = StoredFindings(found("one", "two"), (("an-incident", 5),))
    again().keep(two)
    assert again().load() == two
    again().keep(StoredFindings(two.evidence[:1]))
    assert again().load() == StoredFindings(two.evidence[:1])


@pytest.mark.parametrize("text", ["", "nothing", "[]\n{}", '[]\n{"v":1}', "[1]\n", "[]\n[1,2]", "\x00"])
def test_a_foreign_file_is_replaced_and_reported(tmp_path: Path, text: str) -> None:
    reports: list[str] = []
    path = tmp_path / "evidence.jsonl"
    path.write_text(text)
    assert EvidenceFile(path, reports.append).load() == StoredFindings()
    assert len(reports) == 1
    assert "collected again" in reports[0]


def test_a_line_that_cannot_be_read_affects_neither_the_markers_nor_another_line(tmp_path: Path) -> None:
    reports: list[str] = []
    path = tmp_path / "evidence.jsonl"
    evidence = found("one", "two", "three")
    EvidenceFile(path, reports.append).keep(StoredFindings(evidence, (("an-incident", 5),)))
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], '["1a2b3c4d",[]]', *lines[3:]]))
    assert EvidenceFile(path, reports.append).load() == StoredFindings(
        (evidence[0], evidence[2]), (("an-incident", 5),)
    )
    assert len(reports) == 1
    assert "evidence about 1 of 3 hanging transactions from before this start cannot be read" in reports[0]


def test_a_file_that_cannot_be_written_is_reported_once(tmp_path: Path) -> None:
    reports: list[str] = []
    store = EvidenceFile(tmp_path / "not there" / "evidence.jsonl", reports.append)
    for _ in range(3):
        store.keep(StoredFindings())
    assert len(reports) == 1
