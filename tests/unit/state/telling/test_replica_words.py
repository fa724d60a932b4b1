"""What is said about replicas: who is missing, who has to come back, and who must not be restarted."""

from __future__ import annotations

from typing import Any

import pytest

from txnwatch.state.model.partition_replicas import PartitionReplicas
from txnwatch.state.model.values import TopicPartition, log_numbered
from txnwatch.state.telling.replica_words import blocked_lines, last_lines, repair_step, replicas_text

ORDERS = TopicPartition("orders", 0)
# The leader, the replicas, those in sync, those away, those that led last, and min.insync.replicas; what is said.
SHORT: dict[str, tuple[tuple[Any, ...], str, str]] = {
    "one of two": (
        (1, (1, 2), (1,), (2,), (), 2),
        "1 of 2 in sync (broker 2 is missing), min.insync.replicas 2",
        "Bring broker 2 back; do not restart broker 1.",
    ),
    "one of three": (
        (1, (1, 2, 3), (1,), (2, 3), (), 2),
        "1 of 3 in sync (brokers 2 and 3 are missing), min.insync.replicas 2",
        "Bring broker 2 or 3 back; do not restart broker 1.",
    ),
    "one of three, all wanted": (
        (1, (1, 2, 3), (1,), (2, 3), (), 3),
        "1 of 3 in sync (brokers 2 and 3 are missing), min.insync.replicas 3",
        "Bring brokers 2 and 3 back; do not restart broker 1.",
    ),
    "two of three": (
        (1, (1, 2, 3), (1, 3), (2,), (), 3),
        "2 of 3 in sync (broker 2 is missing), min.insync.replicas 3",
        "Bring broker 2 back; do not restart broker 1 or 3.",
    ),
    "a slow one": (
        (1, (1, 2), (1,), (), (), 2),
        "1 of 2 in sync (broker 2 is behind), min.insync.replicas 2",
        "Find out why broker 2 does not catch up; do not restart broker 1.",
    ),
    "a slow one and one away": (
        (1, (1, 2, 3), (1,), (3,), (), 2),
        "1 of 3 in sync (broker 3 is missing, broker 2 is behind), min.insync.replicas 2",
        "Bring broker 3 back; do not restart broker 1.",
    ),
    "no leader": (
        (None, (1, 2), (2,), (1, 2), (), None),
        "no leader (replicas on brokers 1 and 2, in sync last: broker 2)",
        "Bring broker 2 back: no other broker may lead it.",
    ),
    "no leader, none in sync": (
        (None, (1, 2), (), (1, 2), (2,), None),
        "no leader (replicas on brokers 1 and 2, in sync last: broker 2)",
        "Bring broker 2 back: no other broker may lead it.",
    ),
    "no leader, nothing known": (
        (None, (1, 2), (), (1, 2), (), None),
        "no leader (replicas on brokers 1 and 2)",
        "Bring brokers 1 and 2 back: which of them may lead it is not known.",
    ),
}


@pytest.mark.parametrize(("fields", "text", "step"), SHORT.values(), ids=SHORT.keys())
def test_what_is_missing_is_named_and_what_must_not_be_restarted(fields: tuple[Any, ...], text: str, step: str) -> None:
    found = PartitionReplicas(ORDERS, *fields)
    assert found.is_blocked
    assert replicas_text(found) == text
    assert repair_step([found]) == step


@pytest.mark.parametrize(
    ("fields", "is_last"),
    [
        ((1, (1, 2), (1, 2), (), (), None), False),
        ((1, (1, 2), (1,), (2,), (), 1), True),
        ((1, (1, 2), (1,), (2,), (), None), True),
        ((1, (1,), (1,), (), (), None), False),
        ((1, (1, 2, 3), (1, 2), (3,), (), 2), False),
    ],
)
def test_enough_replicas_block_nothing(fields: tuple[Any, ...], *, is_last: bool) -> None:
    found = PartitionReplicas(ORDERS, *fields)
    assert (found.is_blocked, found.is_last) == (False, is_last)


def test_partitions_of_which_the_same_is_said_share_a_line() -> None:
    of_data = [PartitionReplicas(TopicPartition("orders", n), 1, (1, 2), (1,), (2,), (), 2) for n in range(5)]
    log = PartitionReplicas(log_numbered(3), 1, (1, 2), (1,), (2,), (), 2)
    text = "1 of 2 in sync (broker 2 is missing), min.insync.replicas 2"
    assert list(blocked_lines([*of_data, log])) == [
        f"orders-0, orders-1, orders-2 and 2 more: {text}: neither a marker nor a record with acks=all can be written.",
        f"__transaction_state-3: {text}: the coordinator cannot write its log, so no transaction of its ids begins or "
        "ends.",
    ]
    assert repair_step([*of_data, log]) == "Bring broker 2 back; do not restart broker 1."


def test_the_last_replica_is_named_also_if_it_is_enough_or_if_that_is_not_known() -> None:
    enough = PartitionReplicas(ORDERS, 1, (1, 2), (1,), (2,), (), 1)
    unknown = enough._replace(partition=log_numbered(3), min_in_sync=None)
    offline = "a restart of the broker that is in sync takes the partition offline. Do not restart broker 1."
    assert list(last_lines([enough, unknown])) == [
        f"orders-0: 1 of 2 in sync (broker 2 is missing), min.insync.replicas 1: {offline}",
        f"__transaction_state-3: 1 of 2 in sync (broker 2 is missing): {offline} If min.insync.replicas, which is not "
        "shown, is above 1, no marker can be written there.",
    ]
