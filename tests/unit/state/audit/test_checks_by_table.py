"""Each check of the audit: what fires it, how bad that is, and the near miss that must not."""

from __future__ import annotations

import pytest

from support.audit_cases import APP, FIRES, LOG, SILENT, rule, three, with_rules
from support.audited import an_id, facts, found, missing, offsets
from txnwatch.state.audit.audit_check import AuditCheck, CheckGroup
from txnwatch.state.audit.audit_table import BY_NAME, CHECKS
from txnwatch.state.audit.auditing import EVALUATED, audit
from txnwatch.state.audit.right_checks import TOPIC

# People mute checks by their names and count them in metrics: a name is added here, and none is changed or taken away.
NAMES = """
marker-skipped no-verification old-transaction-version mixed-versions stuck-prepare-bugs epoch-bugs
late-gauge-blind coordinator-log-config coordinator-log-large coordinator-partitions producer-id-reused
unclean-election replication compaction-race retention-below-timeout times-out fenced-while-open one-shot-ids
long-timeout old-protocol never-commits internal-writers marker-writers id-owners
"""


def test_the_names_of_the_checks_stay() -> None:
    assert [check.name for check in CHECKS] == NAMES.split()


@pytest.mark.parametrize("case", FIRES)
def test_it_fires(case: str) -> None:
    expected, of = FIRES[case]
    assert expected in found(of)


@pytest.mark.parametrize("case", SILENT)
def test_a_near_miss_does_not_fire(case: str) -> None:
    unexpected, of = SILENT[case]
    assert [one for one in found(of) if one.endswith(unexpected)] == []


def test_a_healthy_cluster_has_no_finding() -> None:
    healthy = facts(offsets(), brokers=three("3.9"), ids=[an_id()])
    assert found(healthy) == []
    assert missing(healthy) == []


@pytest.mark.parametrize(
    "check",
    [one for one in CHECKS if one.group is not CheckGroup.IDS],
    ids=lambda check: check.name,
)
def test_each_check_has_rows_for_each_severity_and_a_near_miss(check: object) -> None:
    name = getattr(check, "name")  # noqa: B009
    fired = {line.split()[0] for line, _ in FIRES.values() if line.split()[1] == name}
    assert fired == {str(severity) for severity in BY_NAME[name].severities}
    assert any(line.split()[-1] == name for line, _ in SILENT.values())


def test_each_check_of_the_table_is_evaluated() -> None:
    assert [*EVALUATED] == [check.name for check in CHECKS]


@pytest.mark.parametrize("case", FIRES)
def test_a_finding_has_evidence_and_a_remedy(case: str) -> None:
    for one in audit(FIRES[case][1]).exposures:
        assert one.evidence
        assert one.remedies
        assert one.severity in one.check.severities


@pytest.mark.parametrize(
    "check",
    [one for one in CHECKS if one.group is not CheckGroup.IDS],
    ids=lambda check: check.name,
)
def test_each_remedy_of_the_table_is_printed_by_a_case(check: AuditCheck) -> None:
    rows = [one for _, of in FIRES.values() for one in audit(of).exposures if one.check is check]
    printed = " ".join(remedy.text for row in rows for remedy in row.remedies)
    assert [line.text for line in check.remedies.values() if line.text not in printed] == []


def test_what_is_denied_is_the_topic_that_the_principal_may_write() -> None:
    (one,) = audit(with_rules(rule(APP, "Write", TOPIC, LOG))).exposures
    (remedy,) = one.remedies
    assert remedy.command[-1] == LOG
    assert remedy.command[3] == APP
    assert one.key == APP
