"""The owner, what has made the id, and the advice in every event; none of them decides anything."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.incidents import an_event, an_evidence
from support.ledger_world import ORIGIN, LedgerWorld
from txnwatch.owners.owner_table import OwnerTable, owners_of
from txnwatch.state.incidents.event_builder import named
from txnwatch.state.model.ownership import Advice, FoundBy, OwningTeam

ROOT = Path(__file__).parents[4]
FORGED = OwningTeam(team="risk", name="Risk", url="https://forged.example", found_by=FoundBy.TOPIC)


def table(team: str = "checkout", **names: list[str]) -> OwnerTable:
    return owners_of({"owner": [{"team": team, **(names or {"transactional_ids": ["checkout-*"]})}]}, "file")


def a_world(owners: OwnerTable) -> LedgerWorld:
    return LedgerWorld(origin=replace(ORIGIN, owners=owners))


def teams(world: LedgerWorld) -> list[tuple[str, str | None]]:
    return [(event.status, event.owner.team if event.owner else None) for event in world.topic.published]


def test_every_event_of_an_incident_has_the_owner() -> None:
    world = a_world(table())
    candidate = world.hang("checkout-1")
    world.batch(candidate)
    world.batch(world.abort(candidate))
    assert teams(world) == [("opened", "checkout"), ("resolved", "checkout")]
    application = world.topic.published[0].application
    assert application is not None
    assert application.framework == "Spring Kafka"
    assert [event.owner for event in world.redis.latest.values()] == [world.topic.published[-1].owner]


def test_an_owner_that_another_writer_claims_is_replaced() -> None:
    world = a_world(table())
    world.batch(world.hang("checkout-1"))
    forged = replace(world.topic.published[-1], owner=FORGED, advice=Advice.RESUME_FLINK_JOB)
    world.ledger = world.a_ledger([forged])
    (known,) = world.ledger.open_incidents
    assert known.owner is not None
    assert (known.owner.team, known.owner.url, known.advice) == ("checkout", None, None)


def test_a_claim_about_an_unknown_id_has_no_owner() -> None:
    forged = replace(an_event(cluster_id=ORIGIN.cluster_id, transactional_id="other"), owner=FORGED)
    world = a_world(table())
    world.ledger = world.a_ledger([forged])
    (known,) = world.ledger.open_incidents
    assert known.owner is None


def test_another_table_counts_from_the_next_event_on_and_publishes_none() -> None:
    world = a_world(table("checkout"))
    candidate = world.hang("checkout-1")
    world.batch(candidate)
    world.origin = replace(world.origin, owners=table("payments"))
    world.restart()
    world.batch(candidate)
    assert teams(world) == [("opened", "checkout")]
    (known,) = world.ledger.open_incidents
    assert known.owner is not None
    assert known.owner.team == "payments"
    world.batch(world.abort(candidate))
    assert teams(world)[-1] == ("resolved", "payments")


def cluster_names(world: LedgerWorld) -> list[str | None]:
    return [event.cluster_name for event in world.topic.published]


def test_every_event_has_the_name_of_the_cluster_and_without_one_its_id() -> None:
    for name, expected in (("payments-eu", "payments-eu"), (None, ORIGIN.cluster_id)):
        world = LedgerWorld(origin=replace(ORIGIN, cluster_name=name))
        candidate = world.hang("checkout-1")
        world.batch(candidate)
        world.batch(world.abort(candidate))
        assert cluster_names(world) == [expected, expected]
        assert [event.cluster_id for event in world.topic.published] == [ORIGIN.cluster_id] * 2


def test_another_name_counts_from_the_next_event_on_and_publishes_none() -> None:
    world = LedgerWorld(origin=replace(ORIGIN, cluster_name="payments-eu"))
    candidate = world.hang("checkout-1")
    world.batch(candidate)
    world.origin = replace(world.origin, cluster_name="payments")
    world.restart()
    world.batch(candidate)
    assert cluster_names(world) == ["payments-eu"]
    world.batch(world.abort(candidate))
    assert cluster_names(world) == ["payments-eu", "payments"]


def test_a_name_that_another_writer_claims_is_replaced() -> None:
    forged = an_event(cluster_id=ORIGIN.cluster_id, transactional_id="other", cluster_name="<!channel>")
    world = LedgerWorld(origin=replace(ORIGIN, cluster_name="payments-eu"))
    world.ledger = world.a_ledger([forged])
    assert [event.cluster_name for event in world.ledger.open_incidents] == ["payments-eu"]


GROUP = {"group_id": "ledger", "state": "stopped", "committed_offset": 99, "hidden_lag": 21}
OF_A_TRANSACTION = {"verdict": "late", "reason": None, "topic": None, "partition": None, "topic_id": None}
FLINK = {**OF_A_TRANSACTION, "transactional_id": "dwh-orders-4-1187", "transaction_state": "Ongoing"}
HANGING = {"transactional_id": "dwh-orders-4-1187", "expected_outcome": "unknown"}
ADVICE: dict[str, tuple[dict[str, Any], Advice | None]] = {
    "a late one": (FLINK, Advice.RESUME_FLINK_JOB),
    "a long running one": ({**FLINK, "verdict": "long_running"}, Advice.RESUME_FLINK_JOB),
    "decided": ({**FLINK, "verdict": "stuck_prepare", "transaction_state": "PrepareCommit"}, None),
    "hanging, the outcome is not known": (HANGING, Advice.RESUME_FLINK_JOB),
    "hanging, it was aborted": ({**HANGING, "expected_outcome": "abort"}, None),
    "a stray write is over": ({**HANGING, "verdict": "stray_write", "transaction_state": "Ongoing"}, None),
    "another form": ({**FLINK, "transactional_id": "dwh-orders"}, None),
    "it commits offsets": (
        {**FLINK, "evidence": an_evidence(coordinator_partitions=("orders-1", "__consumer_offsets-7"))},
        None,
    ),
    "it writes to the offsets topic of Connect": (
        {**FLINK, "evidence": an_evidence(coordinator_partitions=("connect-offsets-7",))},
        None,
    ),
}


@pytest.mark.parametrize(("values", "advice"), ADVICE.values(), ids=ADVICE.keys())
def test_the_advice_about_flink_needs_the_form_the_participants_and_no_outcome(
    values: dict[str, Any], advice: Advice | None
) -> None:
    assert (
        named(an_event(**{"evidence": an_evidence(coordinator_partitions=("orders-1",)), **values}), table()).advice
        is advice
    )


def test_an_affected_group_settles_the_application() -> None:
    event = an_event(transactional_id="ledger-0_11", consumer_groups=(GROUP,))
    owner = named(event, table(applications=["ledger"])).owner
    assert owner is not None
    assert owner.found_by is FoundBy.APPLICATION
    assert named(replace(event, consumer_groups=()), table(applications=["ledger"])).owner is None


def test_no_decision_reads_an_owner() -> None:
    """The modules of the abort and of the proof do not know the values of this package."""
    deciding = [
        *(
            path
            for part in ("abort", "detection", "evidence", "store")
            for path in (ROOT / "state" / part).rglob("*.py")
        ),
        *(
            ROOT / "state" / "incidents" / f"{name}.py"
            for name in ("automatic_abort", "abort_protocol", "own_findings", "confirm", "found_incidents")
        ),
        *(ROOT / "sinks" / "abort").rglob("*.py"),
    ]
    assert len(deciding) > 20
    for path in deciding:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        assert not [node for node in imported if (node.module or "").endswith("ownership")], path
        assert not {alias.name for node in imported for alias in node.names} & {
            *("named", "subject_of", "topics_of", "advice_about"),
        }, path
        read = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        assert not read & {"owner", "application", "advice"}, path
