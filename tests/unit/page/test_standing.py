"""What stands: only a partition that a list shows as held; and the step for a transaction that holds none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from support.page_world import HANG, PageWorld, a_busy_cluster, a_calm_cluster, an_incident, an_open, now_ms
from txnwatch.page import details
from txnwatch.page.picture import picture_of
from txnwatch.page.words import as_text
from txnwatch.state.model.values import Offset, ProducerId, TopicPartition
from txnwatch.state.model.verdicts import Verdict

STUCK = 7102
ORDERS = {"orders-11": TopicPartition("orders", 11), "orders-14": TopicPartition("orders", 14)}


def row_of(world: PageWorld, verdict: Verdict) -> dict[str, Any]:
    picture = msgspec.json.decode(msgspec.json.encode(picture_of(world.knowledge())))
    return next(row for row in picture["incidents"].values() if row["verdict"] == verdict)


def sentence(world: PageWorld) -> str:
    return as_text(picture_of(world.knowledge())["status"]["headline"], now_ms())


def with_foreign_markers(*closed: str, alone: bool = False) -> PageWorld:
    """A cluster in which markers of another writer have ended the data of the prepared transaction somewhere."""
    world = a_busy_cluster()
    if alone:
        world.incidents = [one for one in world.incidents if one.verdict is Verdict.STUCK_PREPARE]
    gone = {ORDERS[one] for one in closed}
    world.open = [
        one._replace(spans=tuple(span for span in one.spans if span.partition not in gone))
        if one.producer_id == STUCK
        else one
        for one in world.open
    ]
    world.batch()
    return world


def test_a_partition_that_a_foreign_marker_has_closed_does_not_stand() -> None:
    assert row_of(with_foreign_markers("orders-11"), Verdict.STUCK_PREPARE)["places"] == ["orders-14"]
    assert sentence(with_foreign_markers("orders-11")).startswith("3 partitions stand still.")


def test_a_transaction_that_holds_nothing_has_the_step_that_helps() -> None:
    row = row_of(with_foreign_markers(*ORDERS), Verdict.STUCK_PREPARE)
    assert row["places"] == []
    assert row["hidden"] == 0
    assert row["why"].startswith("Its outcome is decided. Its coordinator waits for markers on 2 partitions, ")
    assert "readers go on" in row["why"]
    (step,) = row["steps"]
    assert "replicas back" not in step["text"]
    assert "restart broker 1 (not if " in step["text"]
    assert "or move the leader of __transaction_state-23 to another broker" in step["text"]
    assert step["command"].startswith("txnwatch explain --transactional-id ledger-eos-7f3c2a10-3")


def test_the_sentence_does_not_say_that_something_stands_if_readers_go_on() -> None:
    text = sentence(with_foreign_markers(*ORDERS, alone=True))
    assert text.startswith(
        "1 incident. ledger-eos-7f3c2a10-3: its outcome is decided, and markers are missing, for at least 2 min"
    )
    assert "stand" not in text


def test_what_stands_is_named_before_an_incident_that_holds_nothing() -> None:
    world = with_foreign_markers(*ORDERS)
    world.incidents = [one for one in world.incidents if one.verdict is not Verdict.HANGING]
    world.batch()
    assert sentence(world).startswith("1 partition stands still. orders-4 for ")


def test_a_transaction_that_is_in_no_list_is_not_said_to_hold_anything() -> None:
    """Nor that readers go on: nothing is known of its data."""
    world = a_busy_cluster()
    world.open = [one for one in world.open if one.producer_id != STUCK]
    world.batch()
    row = row_of(world, Verdict.STUCK_PREPARE)
    assert row["places"] == []
    assert row["hidden"] is None
    assert "readers go on" not in row["why"]
    assert "leaders and replicas back" in row["steps"][0]["text"]


def test_an_end_that_is_not_read_yet_is_shown_by_the_leader() -> None:
    world = a_busy_cluster()
    world.stands = {ORDERS["orders-11"]: Offset(88_120_010), ORDERS["orders-14"]: Offset(90_411_400)}
    world.batch()
    row = row_of(world, Verdict.STUCK_PREPARE)
    assert row["places"] == []
    assert "readers go on" in row["why"]


def test_the_answer_about_the_incident_says_the_same() -> None:
    world = with_foreign_markers(*ORDERS)
    stuck = next(one for one in world.incidents if one.verdict is Verdict.STUCK_PREPARE)
    found = details.incident(world.knowledge(), stuck.incident_id)
    assert found is not None
    assert found["waits"]["places"] == []
    assert "readers go on" in found["why"]
    assert details.partition(world.knowledge(), ORDERS["orders-11"])["incidents"] == []


def test_a_hang_does_not_stand_if_the_leader_shows_a_later_offset() -> None:
    """Its end is not read yet."""
    world = a_calm_cluster()
    world.open.append(an_open(4021, "checkout-7", 90, ("payments", 0, 18_210_442), state="unowned", timeout_s=None))
    world.tell(an_incident("hang", 90, **HANG))
    world.batch()
    assert sentence(world).startswith("1 partition stands still. payments-0 for ")
    world.stands = {TopicPartition("payments", 0): Offset(18_258_330)}
    world.batch()
    assert row_of(world, Verdict.HANGING)["places"] == []
    assert sentence(world).startswith("1 incident. checkout-7: hanging, it never ends by itself, for ")


def test_a_hang_stands_if_no_list_has_its_partition() -> None:
    """A fresh read has shown it, and nothing contradicts that."""
    world = a_calm_cluster()
    world.tell(an_incident("hang", 90, **{**HANG, "topic": "invoices", "partition": 3}))
    world.batch()
    assert row_of(world, Verdict.HANGING)["places"] == ["invoices-3"]


def test_a_transaction_behind_another_one_does_not_hold_the_partition() -> None:
    world = a_busy_cluster()
    world.open.append(an_open(1, "first", 999, ("orders", 11, 1), ("orders", 14, 1), timeout_s=1_000))
    world.incidents = [replace(one) for one in world.incidents if one.producer_id == ProducerId(STUCK)]
    world.batch()
    row = row_of(world, Verdict.STUCK_PREPARE)
    assert row["places"] == []
    assert "readers go on" not in row["why"], "its data is open there"
