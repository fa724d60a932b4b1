"""Which incidents of the last week fit which finding: exact verdicts, reasons and outcomes, and its topics or ids."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.audited import an_id, broker, facts, log, record, topic
from support.incidents import an_event
from txnwatch.state.audit.audit_facts import AuditFacts
from txnwatch.state.audit.audit_table import CHECKS
from txnwatch.state.audit.auditing import audit
from txnwatch.state.audit.exposures import Exposure, fits, unexplained, unexplained_line
from txnwatch.state.model.incident import ExpectedOutcome, IncidentEvent, OutcomeDoubt
from txnwatch.state.model.verdicts import Reason, Verdict

OFF = {"transaction.partition.verification.enable": "false"}
UNCLEAN = "unclean.leader.election.enable"
BAD = facts(
    topic(replicas=[2], settings={UNCLEAN: ("true", 1)}),
    topic("unclean", settings={UNCLEAN: ("true", 1)}),
    log(settings={"cleanup.policy": "delete"}),
    brokers=[broker("4.3", settings=OFF, level=1)] * 3,
    ids=[
        an_id("old", record(client_version=0)),
        an_id("shared", record(producer_id=2)),
        an_id("too", record(producer_id=2)),
    ],
)
UNCLEAN_LOG = facts(log(settings={UNCLEAN: ("true", 1)}))
AT_LAST_EPOCHS = facts(brokers=[broker("4.2")] * 3)
MOVED = facts(ids=[an_id("moved", partition=1)])


def finding(check: str, of: AuditFacts = BAD) -> Exposure:
    return next(one for one in audit(of).exposures if one.check.name == check)


def hang(outcome: str, reason: str = "already_completed", **more: Any) -> IncidentEvent:
    values = {"topic": "payments", "transactional_id": "old", **more}
    return replace(
        an_event(),
        verdict=Verdict.HANGING,
        reason=Reason(reason),
        expected_outcome=ExpectedOutcome(outcome),
        **values,
    )


def unknown(doubt: str, **more: Any) -> IncidentEvent:
    return hang("unknown", outcome_doubt=OutcomeDoubt(doubt), **more)


def of(verdict: str, **more: Any) -> IncidentEvent:
    values = {"topic": None, "transactional_id": "old", "reason": None, **more}
    return replace(an_event(), verdict=Verdict(verdict), **values)


@pytest.mark.parametrize("reason", ["already_completed", "not_started", "not_a_participant"])
@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ("commit", {"marker-skipped"}),
        ("abort", {"marker-skipped"}),
        ("none", {"no-verification"}),
        ("unknown", set()),
    ],
)
def test_a_lost_marker_is_no_late_write(outcome: str, reason: str, expected: set[str]) -> None:
    checks = ("marker-skipped", "no-verification", "old-transaction-version", "coordinator-log-config")
    assert {check for check in checks if fits(finding(check), hang(outcome, reason))} == expected


@pytest.mark.parametrize(
    ("check", "of_cluster", "event", "fit"),
    [
        ("no-verification", BAD, of("stray_write"), True),
        ("no-verification", BAD, hang("none", transactional_id="of-a-new-client"), False),
        ("old-transaction-version", BAD, of("stray_write"), True),
        ("old-transaction-version", BAD, of("late"), False),
        ("coordinator-log-config", BAD, hang("unknown", "no_transactional_id", transactional_id=None), True),
        ("coordinator-log-config", BAD, of("stuck_prepare"), True),
        ("coordinator-log-config", BAD, of("long_running"), False),
        ("coordinator-partitions", MOVED, hang("unknown", "no_transactional_id", transactional_id=None), True),
        ("coordinator-partitions", MOVED, hang("none"), False),
        ("coordinator-partitions", MOVED, unknown("ongoing_moved", transactional_id="moved"), True),
        ("coordinator-partitions", MOVED, unknown("records_moved", transactional_id="moved"), True),
        ("coordinator-partitions", MOVED, unknown("records_moved"), False),
        ("coordinator-partitions", MOVED, unknown("epoch_shared", transactional_id="moved"), False),
        ("coordinator-partitions", MOVED, of("late", transactional_id="moved"), True),
        ("coordinator-partitions", MOVED, of("late"), False),
        ("producer-id-reused", BAD, hang("unknown", transactional_id="shared"), True),
        ("producer-id-reused", BAD, hang("unknown"), False),
        ("producer-id-reused", BAD, hang("unknown", "no_transactional_id", transactional_id=None), False),
        ("unclean-election", BAD, hang("commit", topic="unclean"), True),
        ("unclean-election", BAD, hang("none", topic="unclean"), False),
        ("unclean-election", BAD, hang("commit"), False),
        ("unclean-election", BAD, hang("unknown", "no_transactional_id", topic="unclean"), False),
        ("unclean-election", UNCLEAN_LOG, hang("unknown", "no_transactional_id"), True),
        ("unclean-election", UNCLEAN_LOG, hang("commit"), False),
        ("replication", BAD, of("stuck_prepare", pending_partitions=("payments-0",)), True),
        ("replication", BAD, of("stuck_prepare", pending_partitions=("orders-0",)), False),
        ("epoch-bugs", AT_LAST_EPOCHS, of("late", producer_epoch=32_766), True),
        ("epoch-bugs", AT_LAST_EPOCHS, of("late", producer_epoch=7), False),
    ],
)
def test_a_finding_takes_the_incidents_that_it_can_cause(
    check: str, of_cluster: AuditFacts, event: IncidentEvent, fit: object
) -> None:
    assert fits(finding(check, of_cluster), event) is fit


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([hang("commit")], None),
        ([of("long_running")], "1, for example {0}"),
        (
            [hang("commit"), unknown("epoch_shared")],
            "1, for example {1}; 1 is a hang whose expected outcome is unknown",
        ),
        (
            [of("long_running"), unknown("epoch_shared"), unknown("no_record")],
            "3, for example {0}, {1}, {2}; 2 are hangs whose expected outcome is unknown",
        ),
    ],
)
def test_what_fits_no_finding_is_said(events: list[IncidentEvent], expected: str | None) -> None:
    named = [replace(event, incident_id=f"incident-{at}") for at, event in enumerate(events)]
    left = unexplained(audit(BAD).exposures, named)
    if expected is None:
        assert left == []
    else:
        ids = [event.incident_id for event in named]
        assert unexplained_line(left).startswith(
            f"incidents of the last week that fit no finding: {expected.format(*ids)}"
        )


def test_the_table_says_which_incidents_fit() -> None:
    shown = {check.name: "; ".join(map(str, check.explains)) for check in CHECKS}
    assert shown["no-verification"] == "hanging, expected outcome none; stray_write"
    doubt = "hanging, outcome in doubt because of ongoing_moved or records_moved"
    assert shown["coordinator-partitions"] == f"hanging, reason no_transactional_id; {doubt}; late"
    assert shown["epoch-bugs"] == "late, producer epoch 32766 or more"
    assert shown["mixed-versions"] == ""
