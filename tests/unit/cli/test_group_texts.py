"""What `explain` says about groups: what a hang on the offsets' topic means, and names that are bounded."""

from __future__ import annotations

from txnwatch.cli.group_texts import affected_lines, held_text, waiting_lines
from txnwatch.state.model.incident import AffectedGroup, GroupState, WaitingGroup
from txnwatch.state.model.values import CONSUMER_OFFSETS_TOPIC, TopicPartition

OFFSETS, ORDERS = TopicPartition(CONSUMER_OFFSETS_TOPIC, 1), TopicPartition("orders", 0)


def waits(name: str, *partitions: str) -> WaitingGroup:
    return WaitingGroup(group_id=name, partitions=partitions)


def at(name: str, offset: int) -> AffectedGroup:
    return AffectedGroup(group_id=name, state=GroupState.AT_RISK, committed_offset=offset, hidden_lag=9)


def test_only_the_readers_of_a_users_topic_are_said_to_stop() -> None:
    assert held_text(ORDERS, 5, 6, 1) == (
        "read_committed consumers of orders-0 stop at offset 5: 1 record up to 6 are hidden from them, and the log "
        "cleaner stops there too."
    )
    assert "read_committed consumers" not in held_text(OFFSETS, 5, 7, 2)


def test_a_group_that_waits_is_named_with_its_partitions_and_what_the_application_shows() -> None:
    first, last = waiting_lines([waits("billing", "orders-0", "orders-1")])
    assert first == (
        "Consumer group 'billing' waits: its committed offsets of orders-0, orders-1 are pending in this transaction."
    )
    assert "UNSTABLE_OFFSET_COMMIT" in last


def test_five_groups_and_partitions_are_named_and_the_others_counted() -> None:
    partitions = [f"orders-{number}" for number in range(9)]
    *named, more, _ = waiting_lines([waits(f"group-{number}", *partitions) for number in range(7)])
    assert len(named) == 5
    assert "orders-4 and 4 more are pending" in named[0]
    assert more.startswith("2 more groups wait")


def test_nothing_is_said_without_a_group() -> None:
    assert list(waiting_lines([])) == []
    assert list(affected_lines([], 5)) == []


def test_the_groups_at_the_last_stable_offset_and_those_below_are_apart() -> None:
    reached, coming = affected_lines([at("audit", 5), at("billing", 3)], 5)
    assert reached.endswith("they have reached this offset: 'audit' (at 5, lag 9).")
    assert coming.endswith("they have not reached it yet: 'billing' (at 3, lag 9).")
