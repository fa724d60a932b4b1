"""What several incidents share, and who waits for several of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from support.incidents import an_event, an_evidence
from support.page_world import GROUPS
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.telling.roots import RootKind, hurt_groups, shared_roots


def hang(number: int, name: str = "dwh", log: str = "7@1", coordinator: int = 1, **changes: Any) -> IncidentEvent:
    leader = changes.pop("leader", 10 + number)
    place = {"topic": "orders", "partition": number, "transactional_id": name, "coordinator_id": coordinator}
    evidence = an_evidence(coordinator_log=log, leader=leader)
    return an_event(f"{name}-{number}", **{**place, "evidence": evidence, **changes})


def roots(*events: IncidentEvent) -> list[tuple[RootKind, str, int, int, int]]:
    found = shared_roots(events, lambda event: [f"{event.topic}-{event.partition}"])
    return [(one.kind, one.name, len(one.incidents), len(one.partitions), len(one.groups)) for one in found]


def test_one_id_holds_many_partitions_and_groups() -> None:
    events = [hang(number, consumer_groups=GROUPS if number else ()) for number in range(14)]
    assert roots(*events) == [(RootKind.TRANSACTIONAL_ID, "dwh", 14, 14, 3)]


def test_a_coarser_root_counts_only_if_it_is_behind_more() -> None:
    two_ids = [hang(0), hang(1), hang(2, "other", coordinator=2)]
    assert roots(*two_ids) == [(RootKind.LOG_PARTITION, "7", 3, 3, 0), (RootKind.TRANSACTIONAL_ID, "dwh", 2, 2, 0)]
    on_two_logs = [hang(0, "a", "1@1"), hang(1, "b", "2@1"), hang(2, "c", "3@1", coordinator=9)]
    assert roots(*on_two_logs) == [(RootKind.COORDINATOR, "1", 2, 2, 0)]


def test_a_broker_behind_half_of_them_is_no_root() -> None:
    ids = "abcd"
    events = [hang(at, name, f"{at}@1", coordinator=at % 2, leader=at % 2) for at, name in enumerate(ids)]
    assert roots(*events) == []
    same = [hang(at, name, f"{at}@1", coordinator=at, leader=5) for at, name in enumerate(ids)]
    assert roots(*same) == [(RootKind.LEADER, "5", 4, 4, 0)]


def test_one_incident_has_no_root() -> None:
    assert roots(hang(0)) == roots() == []


def groups(*events: IncidentEvent) -> Sequence[tuple[str, bool, int]]:
    return [(one.name, one.is_stopped, len(one.incidents)) for one in hurt_groups(events)]


def test_a_group_behind_two_hangs_is_one_row() -> None:
    at_risk = {**GROUPS[0], "state": "at_risk"}
    waits = ({"group_id": "audit-export", "partitions": ()},)
    first, second = hang(0, consumer_groups=GROUPS), hang(1, consumer_groups=(at_risk,), waiting_groups=waits)
    assert groups(first, second) == [
        ("audit-export", True, 2),
        ("fraud-scoring", True, 2),
        ("ledger-writer", True, 1),
    ]
    assert groups(second) == [("audit-export", True, 1), ("fraud-scoring", False, 1)]
    assert groups() == []
