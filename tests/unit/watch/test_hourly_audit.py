"""The audit of a watch: a line if the findings have changed, and the numbers for the metric."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from support.audited import broker, facts, topic
from txnwatch.state.audit.audit_facts import AuditFacts
from txnwatch.state.audit.audit_table import ExposureSeverity
from txnwatch.state.model.errors import BrokerError
from txnwatch.watch import hourly_audit
from txnwatch.watch.hourly_audit import HourlyAudit

BROKERS = [broker("3.9") for _ in range(3)]
HEALTHY, ONE = facts(brokers=BROKERS), facts(topic(replicas=[2]), brokers=BROKERS)


class _Lines:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, message: str, /) -> None:
        self.lines.append(message)

    def warning(self, message: str, /) -> None:
        self.lines.append(f"warning: {message}")


class _Nobody:
    def close(self) -> None:
        pass


def test_a_line_is_written_if_the_findings_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    log, taken = _Lines(), list[Mapping[ExposureSeverity, int]]()
    known: list[AuditFacts | None] = [ONE, ONE, None, HEALTHY]

    def gathered(*_: object) -> AuditFacts:
        found = known.pop(0)
        if found is None:
            raise BrokerError("no broker answers")
        return found

    monkeypatch.setattr(hourly_audit, "gather", gathered)
    audit = HourlyAudit(_Nobody, log, taken.append)  # type: ignore[arg-type]
    for _ in range(4):
        audit.look()
    assert [line.partition(";")[0] for line in log.lines] == ["audit: 1 warn", "audit: no finding"]
    assert [counts[ExposureSeverity.WARN] for counts in taken] == [1, 1, 0]
    assert all(set(counts) == set(ExposureSeverity) for counts in taken)
