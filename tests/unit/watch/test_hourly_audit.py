"""The audit of a watch: a line if the findings have changed, and what the metric and the page get."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from support.audited import NOW_MS, broker, facts, topic
from support.incidents import an_event
from txnwatch.owners.owner_table import owners_of
from txnwatch.state.audit.audit_check import ExposureSeverity
from txnwatch.state.audit.audit_facts import AuditFacts, NotAudited
from txnwatch.state.audit.exposure_rows import PeriodicAudit
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.verdicts import Verdict
from txnwatch.state.text import Grantee
from txnwatch.watch import hourly_audit
from txnwatch.watch.hourly_audit import HourlyAudit

BROKERS = [broker("3.9") for _ in range(3)]
OWNERS = owners_of({"owner": [{"team": "pay", "contact": "#pay", "topics": ["payments"]}]}, "the table of the test")
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


def an_hourly_audit(
    log: _Lines, taken: list[PeriodicAudit], events: Callable[[], Iterable[object]] = tuple
) -> HourlyAudit:
    return HourlyAudit(_Nobody, events, lambda: OWNERS, Grantee("b:1", "User:x"), log, taken.append)  # type: ignore[arg-type]


def answers(monkeypatch: pytest.MonkeyPatch, *known: AuditFacts | None) -> None:
    left = [*known]

    def gathered(*_: object) -> AuditFacts:
        found = left.pop(0)
        if found is None:
            raise BrokerError("no broker answers")
        return found

    monkeypatch.setattr(hourly_audit, "gather", gathered)


def test_a_line_is_written_if_the_findings_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    log, taken = _Lines(), list[PeriodicAudit]()
    answers(monkeypatch, ONE, ONE, None, HEALTHY)
    audit = an_hourly_audit(log, taken)
    for _ in range(4):
        audit.look()
    assert [line.partition(";")[0] for line in log.lines] == [
        "audit: 1 warn",
        "audit: no finding in what could be checked",
    ]
    assert [found.counts[ExposureSeverity.WARN] for found in taken] == [1, 1, 0]
    assert all(set(found.counts) == set(ExposureSeverity) for found in taken)


def test_the_rows_have_owners_commands_and_the_incidents_of_the_week(monkeypatch: pytest.MonkeyPatch) -> None:
    fitting = replace(
        an_event("fits"), verdict=Verdict.STUCK_PREPARE, topic=None, pending_partitions=("payments-0",), time_ms=NOW_MS
    )
    old = replace(fitting, incident_id="0" * 32, time_ms=NOW_MS - 8 * 86_400_000)
    taken = list[PeriodicAudit]()
    answers(monkeypatch, ONE)
    other = replace(fitting, incident_id="f" * 32, pending_partitions=("elsewhere-0",))
    an_hourly_audit(_Lines(), taken, lambda: [old, "a heartbeat", fitting, other]).look()
    (row,) = taken[0].rows
    assert (row.incidents, row.incident_ids, row.owners) == (1, (fitting.incident_id,), ("pay (#pay)",))
    assert (row.remedies[0]["command"] or "").startswith("kafka-reassign-partitions.sh --bootstrap-server b:1 ")
    assert taken[0].unexplained == f"incidents of the last week that fit no finding: 1, for example {other.incident_id}"


def test_what_is_not_repeated_or_cannot_be_read_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> Iterable[object]:
        raise BrokerError("the right READ is missing")
        yield

    taken = list[PeriodicAudit]()
    answers(monkeypatch, ONE)
    an_hourly_audit(_Lines(), taken, refused).look()
    of_log, of_incidents = taken[0].missing
    assert of_incidents == NotAudited("incidents of the last week", "the right READ is missing")
    assert "times-out" in of_log.what
    assert "replication" not in of_log.what
    assert (taken[0].fitting, taken[0].unexplained, taken[0].rows[0].incidents) == (None, None, None)
