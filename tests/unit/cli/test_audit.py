"""`txnwatch audit`: the rows, the commands for an administrator, the owners, the exit code, and names of strangers."""

from __future__ import annotations

import io
import json
import shlex
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from support.audited import NOW_MS, an_id, broker, facts, log, record, topic
from support.incidents import an_event
from txnwatch.cli.main import main
from txnwatch.cli.output import CommandAnswer, envelope, write
from txnwatch.owners.owner_table import OwnerTable, owners_of
from txnwatch.state.audit.audit_facts import AuditFacts
from txnwatch.state.audit.audit_table import CHECKS
from txnwatch.state.audit.auditing import audit
from txnwatch.state.audit.exposure_rows import AuditRow, command_of, row_of_exposure, summary
from txnwatch.state.audit.exposures import Exposure, explained, of_the_week
from txnwatch.state.audit.left_out import NO_CHECKS
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.verdicts import Verdict
from txnwatch.state.text import Grantee

ADMIN = Grantee("b:1", "User:x", is_configured=True)
SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "schemas" / "audit.schema.json").read_text())
HOSTILE = "\x1b[2J\u202e'; rm -rf / #\n"


def of_check(name: str, of: AuditFacts) -> Exposure:
    return next(one for one in audit(of).exposures if one.check.name == name)


def row(name: str, of: AuditFacts) -> AuditRow:
    return row_of_exposure(of_check(name, of), of, ADMIN, OwnerTable())


def shown(*rows: AuditRow) -> str:
    out = io.StringIO()
    write(CommandAnswer("audit", "c", AuditRow, rows), "text", out)
    return out.getvalue()


def test_a_plan_keeps_the_replicas_and_adds_others() -> None:
    (first, _) = row("marker-skipped", facts(topic(replicas=[2]), brokers=[broker("4.3") for _ in range(3)])).remedies
    line, _, plan = (first["command"] or "").partition(" --reassignment-json-file ")
    assert line == (
        "kafka-reassign-partitions.sh --bootstrap-server b:1 --command-config ADMIN.properties --execute --additional"
    )
    (partition,) = json.loads(shlex.split(plan.removeprefix("<(echo ").removesuffix(")"))[0])["partitions"]
    assert (partition["topic"], partition["partition"], partition["replicas"][0]) == ("payments", 0, 2)
    assert sorted(partition["replicas"]) == [1, 2, 3]


def test_with_one_broker_there_is_no_plan() -> None:
    of = facts(topic(replicas=[1]), log(replicas=[1]), brokers=[broker("4.3")])
    assert all(remedy["command"] is None for remedy in row("replication", of).remedies)


def test_a_command_has_the_topic_of_the_finding() -> None:
    of = facts(topic("orders", settings={"unclean.leader.election.enable": ("true", 1)}))
    (remedy,) = of_check("unclean-election", of).remedies
    assert command_of(remedy, Grantee("b:1", "User:x")) == (
        "kafka-configs.sh --bootstrap-server b:1 --alter --entity-type topics --entity-name orders "
        "--add-config unclean.leader.election.enable=false"
    )


def test_names_of_strangers_are_shown_safely_and_stay_whole_for_programs() -> None:
    ids = [
        an_id(HOSTILE, record(timeout_ms=7_200_000)),
        an_id("x" * 32_767, record(timeout_ms=7_200_000, producer_id=2)),
    ]
    of = facts(ids=ids)
    rows = [row_of_exposure(one, of, ADMIN, OwnerTable()) for one in audit(of).exposures]
    text = shown(*rows)
    assert all(line.isprintable() for line in text.splitlines())
    assert len(text) < 20_000
    found = envelope(CommandAnswer("audit", "c", AuditRow, rows, also={"unexplained_incidents": []}))
    jsonschema.validate(json.loads(json.dumps(found)), SCHEMA)
    assert any(HOSTILE in one["transactional_ids"] for one in found["rows"])


def test_the_ids_that_wrote_to_the_topics_are_exposed() -> None:
    of = facts(topic(replicas=[2]), ids=[an_id("checkout-1")])
    assert (row("replication", of).exposed_ids, row("replication", of).transactional_ids) == (1, ("checkout-1",))
    assert row("replication", replace(of, ids=None)).exposed_ids is None


def test_a_finding_about_ids_names_the_owners_of_their_topics() -> None:
    """An id without an entry of its own belongs to the team of the topics that it wrote to."""
    table = owners_of(
        {
            "owner": [
                {"team": "pay", "contact": "#pay", "topics": ["payments"]},
                {"team": "risk", "contact": "#risk", "transactional_ids": ["risk-*"]},
                {"team": "nobody", "contact": "#nobody", "topics": ["orders"]},
            ]
        },
        "the table of the test",
    )

    def teams(*names: str) -> tuple[str, ...]:
        slow = [an_id(name, record(timeout_ms=7_200_000)) for name in names]
        of = facts(topic("orders"), ids=slow)
        return row_of_exposure(of_check("long-timeout", of), of, ADMIN, table).owners

    assert teams("checkout") == ("pay (#pay)",)
    assert teams("risk-a") == ("risk (#risk)",)


def test_an_incomplete_audit_never_says_that_there_is_nothing() -> None:
    assert summary([], has_all=True) == f"no finding of {len(CHECKS)} checks"
    assert summary([], has_all=False) == "no finding in what could be checked"
    assert summary([], has_all=True, left_out=2) == "no finding beside 2 that are left out"
    of = facts(topic(replicas=[2]), brokers=[broker("3.9") for _ in range(3)])
    assert summary(audit(of).exposures, has_all=True) == "1 warn"


def test_the_checks_are_listed_without_a_broker(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--list"]) == 0
    text = capsys.readouterr().out
    assert [line for line in text.splitlines() if not line.startswith("  ")] == [
        *(f"{check.name}  ({check.group}; {', '.join(check.severities)})" for check in CHECKS),
        *(f"{one.name}  (no check)" for one in NO_CHECKS),
    ]
    assert "  thousands of producers on a partition: only DescribeProducers of all partitions counts them" in text
    assert main(["audit", "--list", "-o", "json"]) == 0
    names = [one["check"] for one in json.loads(capsys.readouterr().out)["rows"]]
    assert names == [*(check.name for check in CHECKS), *(one.name for one in NO_CHECKS)]


def test_a_wrong_name_of_a_check_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["audit", "-b", "a:1", "--ignore", "no-such-check"])
    assert "expected the name of a check (marker-skipped" in capsys.readouterr().err
    assert main(["audit"]) == 2
    assert "--bootstrap-server" in capsys.readouterr().err


def test_incidents_of_the_last_week_fit_by_verdict_and_topic() -> None:
    one = of_check("replication", facts(topic(replicas=[2])))
    event = replace(
        an_event(),
        verdict=Verdict.STUCK_PREPARE,
        topic=None,
        pending_partitions=("payments-0",),
        time_ms=NOW_MS - 1_000,
    )
    assert [fit.incident_id for fit in explained(one, [event])] == [event.incident_id]
    for other in (replace(event, pending_partitions=("orders-0",)), replace(event, verdict=Verdict.LATE)):
        assert explained(one, [other]) == ()


def test_of_a_week_each_incident_counts_once_with_its_last_event() -> None:
    first = replace(an_event("one"), time_ms=NOW_MS - 5_000)
    last, other = replace(first, time_ms=NOW_MS - 1_000), replace(an_event("other"), time_ms=NOW_MS - 3_000)
    old = replace(an_event("old"), time_ms=NOW_MS - 8 * 86_400_000)
    assert of_the_week([old, first, last, other], NOW_MS) == [last, other]


def test_a_finding_about_ids_fits_the_incidents_of_its_ids() -> None:
    ids = [an_id("slow", record(S.COMPLETE_COMMIT, timeout_ms=7_200_000))]
    one = of_check("long-timeout", facts(ids=ids))
    event = replace(an_event(), verdict=Verdict.LONG_RUNNING, transactional_id="slow", time_ms=NOW_MS)
    assert [fit.incident_id for fit in explained(one, [event])] == [event.incident_id]
    assert explained(one, [replace(event, transactional_id="other")]) == ()
