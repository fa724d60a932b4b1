"""Which incidents are of one cause, and which of them is the worst."""

from __future__ import annotations

import time
from typing import Any

import pytest

from support.incidents import OWNER_VALUE, a_life, an_event
from txnwatch.state.telling.folding import by_cause, cause_of, harm, id_prefix

UUID = "6c84fb90-12c4-11e1-840d-7b25c5ee775a"


@pytest.mark.parametrize(
    ("transactional_id", "expected"),
    [
        ("dwh-orders-4-1187", "dwh-orders"),
        ("dwh-orders-2893412567-4-1187", "dwh-orders"),
        (f"ledger-eos-{UUID}-2", "ledger-eos"),
        (f"billing{UUID}", "billing"),
        ("ledger-eos-0_11", "ledger-eos"),
        (f"Sink: orders-{'0af3' * 8}-7", "Sink: orders"),
        ("checkout-7", "checkout"),
        ("tx-billing.orders.3", "tx-billing.orders"),
        ("payments-\u00fc", "payments-\u00fc"),
        ("4711", "4711"),
        (UUID, UUID),
        ("", ""),
    ],
)
def test_the_prefix_of_an_id_names_its_application(transactional_id: str, expected: str) -> None:
    assert id_prefix(transactional_id) == expected


@pytest.mark.parametrize("part", ["1", "-", "a1", f"{UUID}-"])
def test_an_id_of_any_length_is_read_in_no_time(part: str) -> None:
    begun = time.process_time()
    id_prefix((part * 1_000)[:1_000])
    id_prefix((part * 40_000)[:32_767])
    assert time.process_time() - begun < 0.05


def of_an_id(transactional_id: str, **changes: Any) -> Any:
    whole = {"topic": None, "partition": None, "topic_id": None, "reason": None, "verdict": "late"}
    return an_event(transactional_id, transactional_id=transactional_id, **{**whole, **changes})


def test_one_cause_has_one_reason_place_and_owner() -> None:
    first = an_event("first")
    assert cause_of(first) == cause_of(an_event("other", partition=7, transactional_id="x", hidden_records=9))
    for other in ({"reason": "not_started"}, {"topic": "other"}, {"owner": OWNER_VALUE}, {"cluster_name": "other"}):
        assert cause_of(first) != cause_of(an_event("other", **other))
    assert cause_of(of_an_id("dwh-1")) == cause_of(of_an_id("dwh-2"))
    assert cause_of(of_an_id("dwh-1")) != cause_of(of_an_id("audit-1"))
    assert cause_of(of_an_id("dwh-1")) != cause_of(of_an_id("dwh-1", verdict="long_running"))


def test_the_worst_is_the_one_that_hurts_most() -> None:
    stopped = [{"group_id": "a", "state": "stopped", "committed_offset": 1, "hidden_lag": 2}]
    at_risk = [{**stopped[0], "state": "at_risk"}]
    events = [
        of_an_id("hurts", consumer_groups=stopped),
        an_event("risky", topic="payments", consumer_groups=at_risk),
        an_event("many", hidden_records=99),
        an_event("few", hidden_records=1),
        of_an_id("late"),
        a_life("over")[-1],
    ]
    assert [*sorted({event.incident_id: event for event in events[::-1]}.values(), key=harm)] == events
    folded = by_cause(events[::-1])
    assert [[*found] for found in folded.values()] == [
        [events[0]],
        [events[1]],
        [events[2], events[3], events[5]],
        [events[4]],
    ]
