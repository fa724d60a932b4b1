"""Whether an open incident is over, by a fresh read, as tables; and how long its log has time to show the end."""

from __future__ import annotations

from dataclasses import replace as changed
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from support.incidents import OPEN_SINCE_MS, an_event
from txnwatch.state.evidence import ending
from txnwatch.state.evidence.ending import (
    LOG_SHOWS_MS,
    LOOK_AGAIN_MS,
    SECOND_LOOK_MS,
    absences_in_a_row,
    is_end_missed,
    is_unexplained,
    pause_ms,
    span_end,
    transaction_end,
    unexplained_since,
    with_owner,
)
from txnwatch.state.model.incident import IncidentEvent, transaction_incident_id
from txnwatch.state.model.ports import ABSENCES_OF_A_DELETED_TOPIC, UNKNOWN_PARTITION, ActiveProducer, PartitionReading
from txnwatch.state.model.transaction import (
    DescribedTransaction,
    NotDescribed,
    TransactionDescription,
    TransactionState,
    UnknownTransactionalId,
)
from txnwatch.state.model.values import Problem, TimestampMs, TopicPartition
from txnwatch.state.model.verdicts import Verdict

NOW_MS = TimestampMs(OPEN_SINCE_MS + 60_000)
PARTITION = TopicPartition("orders", 3)
INCIDENT = an_event()
OPEN = ActiveProducer(
    producer_id=4711, producer_epoch=2, last_sequence=0, last_timestamp_ms=0, coordinator_epoch=0, txn_start_offset=99
)
STILL_THERE = PartitionReading(
    PARTITION, topic_id=INCIDENT.topic_id, last_stable_offset=99, high_watermark=120, producers=(OPEN,)
)
NO_LONGER_THERE = PartitionReading(PARTITION, topic_id=INCIDENT.topic_id, last_stable_offset=121, high_watermark=121)
ABSENT = PartitionReading(PARTITION, UNKNOWN_PARTITION, is_absent=True)
UNREADABLE = PartitionReading(PARTITION, Problem("NOT_LEADER"))

IDLE = DescribedTransaction("payments", 1, TransactionState.COMPLETE_ABORT, 4711, 2, 60_000, OPEN_SINCE_MS - 5_000)
HOLDER = replace(IDLE, state=TransactionState.ONGOING, partitions=frozenset({PARTITION}))
NEXT = replace(HOLDER, start_ms=OPEN_SINCE_MS + 5_000)
GONE = UnknownTransactionalId("payments", 1)
NO_ANSWER = NotDescribed("payments", Problem("NOT_COORDINATOR"))

SPANS = {
    "still open": (STILL_THERE, 0, None),
    "no longer open": (NO_LONGER_THERE, 0, "no_longer_open"),
    "the leader does not answer": (UNREADABLE, 0, None),
    "absent for the first time": (ABSENT, 1, None),
    "absent once less than enough": (ABSENT, ABSENCES_OF_A_DELETED_TOPIC - 1, None),
    "absent often enough": (ABSENT, ABSENCES_OF_A_DELETED_TOPIC, "partition_gone"),
}


@pytest.mark.parametrize(("reading", "absences", "how"), SPANS.values(), ids=SPANS.keys())
def test_the_end_of_a_span(reading: PartitionReading, absences: int, how: str | None) -> None:
    end = span_end(INCIDENT, reading, absences, NOW_MS)
    assert (end.how if end is not None else None) == how
    assert end is None or end.at_ms == NOW_MS


LATE = an_event(
    verdict="late", topic=None, partition=None, txn_start_offset=None, topic_id=None, transaction_state="Ongoing"
)
DECIDED_MS = OPEN_SINCE_MS - 70_000  # the start of the transaction whose decision is incomplete since OPEN_SINCE_MS
STUCK = changed(
    LATE,
    incident_id=transaction_incident_id(
        LATE.cluster_id, LATE.transactional_id or "", LATE.producer_id, DECIDED_MS, Verdict.STUCK_PREPARE
    ),
    verdict=Verdict.STUCK_PREPARE,
    transaction_state="PrepareAbort",
    expected_outcome="abort",
)
SAME = replace(
    HOLDER,
    transactional_id=LATE.transactional_id or "",
    start_ms=OPEN_SINCE_MS,
    producer_epoch=LATE.producer_epoch,
)
COMMITTED = replace(SAME, state=TransactionState.COMPLETE_COMMIT, producer_epoch=LATE.producer_epoch + 1)
ABORTED = replace(SAME, state=TransactionState.COMPLETE_ABORT)
RAISED = LATE.producer_epoch + 1
LATER_MS = OPEN_SINCE_MS + 1
NOTHING, UNKNOWN = (None, None), ("no_longer_open", "unknown")
TRANSACTIONS = {
    "the same transaction": (LATE, SAME, NOTHING),
    "nobody answers": (LATE, None, NOTHING),
    "the coordinator cannot be read": (LATE, NO_ANSWER, NOTHING),
    "the id is gone": (LATE, GONE, UNKNOWN),
    "a later transaction": (LATE, replace(SAME, start_ms=LATER_MS), UNKNOWN),
    "another producer": (LATE, replace(SAME, producer_id=4712), UNKNOWN),
    "committed": (LATE, COMMITTED, ("committed", "client")),
    "being committed": (LATE, replace(COMMITTED, state=TransactionState.PREPARE_COMMIT), NOTHING),
    "a later one was committed": (LATE, replace(COMMITTED, start_ms=LATER_MS), UNKNOWN),
    "one of another producer was committed": (LATE, replace(COMMITTED, producer_id=4712), UNKNOWN),
    "aborted under its epoch": (LATE, ABORTED, ("aborted", "client")),
    "a later one was aborted": (LATE, replace(ABORTED, start_ms=LATER_MS), UNKNOWN),
    "aborted under a raised epoch": (LATE, replace(ABORTED, producer_epoch=RAISED), ("aborted", "unknown")),
    "stuck, and complete now": (STUCK, replace(ABORTED, start_ms=DECIDED_MS), ("aborted", "unknown")),
    "stuck, and the other outcome is complete": (
        STUCK,
        replace(COMMITTED, start_ms=DECIDED_MS),
        ("committed", "client"),
    ),
    "stuck, and a later one is complete": (STUCK, replace(ABORTED, producer_epoch=RAISED), UNKNOWN),
    "stuck, and a later one of an old client has its epoch": (STUCK, ABORTED, UNKNOWN),
}


@pytest.mark.parametrize(("incident", "owner", "expected"), TRANSACTIONS.values(), ids=TRANSACTIONS.keys())
def test_the_end_of_a_transaction(
    incident: IncidentEvent, owner: TransactionDescription | None, expected: tuple[str | None, str | None]
) -> None:
    end = transaction_end(incident, owner, NOW_MS)
    assert (end.how if end is not None else None, end.by if end is not None else None) == expected
    assert is_unexplained(end) is (expected == UNKNOWN)
    assert end is None or end.detail


NO_COMMAND = {"transaction_state": TransactionState.ONGOING, "suggested_command": None}
OWNERS = {
    "nobody answers": (None, {}),
    "it cannot be read": (NO_ANSWER, {}),
    "the id is gone": (GONE, {"transaction_state": None}),
    "an idle owner": (IDLE, {"transaction_state": TransactionState.COMPLETE_ABORT}),
    "the next transaction holds the span": (NEXT, NO_COMMAND),
    "a live transaction elsewhere": (
        replace(NEXT, partitions=frozenset({TopicPartition("orders", 4)})),
        {"transaction_state": TransactionState.ONGOING},
    ),
}


@pytest.mark.parametrize(("owner", "changes"), OWNERS.values(), ids=OWNERS.keys())
def test_the_fields_about_the_owner(owner: TransactionDescription | None, changes: dict[str, Any]) -> None:
    assert with_owner(INCIDENT, owner) == changed(INCIDENT, **changes)
    stray = an_event(verdict=Verdict.STRAY_WRITE)
    assert with_owner(stray, owner) == stray


def test_only_an_end_without_explanation_waits_for_the_log() -> None:
    assert not is_unexplained(None)
    assert not is_unexplained(ending.refuted(NOW_MS, HOLDER))
    assert not is_unexplained(ending.partition_gone(NOW_MS))
    assert is_unexplained(ending.no_longer_open(NOW_MS, "gone"))


@given(st.lists(st.booleans(), max_size=8))
def test_one_read_that_finds_the_partition_ends_the_row_of_absences(reads: list[bool]) -> None:
    counted: dict[TopicPartition, int] = {}
    for is_absent in reads:
        counted = absences_in_a_row(counted, {PARTITION: ABSENT if is_absent else UNREADABLE})
    row = next((at for at, is_absent in enumerate(reversed(reads)) if not is_absent), len(reads))
    assert counted.get(PARTITION, 0) == row


def test_a_partition_that_is_not_read_has_no_row_of_absences() -> None:
    assert absences_in_a_row({PARTITION: 2}, {}) == {}


def test_an_end_keeps_its_first_time_only_while_it_has_no_explanation() -> None:
    since = unexplained_since({}, ["one"], TimestampMs(10))
    assert (since := unexplained_since(since, ["one", "two"], TimestampMs(20))) == {"one": 10, "two": 20}
    assert (since := unexplained_since(since, ["two"], TimestampMs(30))) == {"two": 20}
    assert unexplained_since(since, ["one", "two"], TimestampMs(40)) == {"one": 40, "two": 20}


@pytest.mark.parametrize(("waited_ms", "is_missed"), [(0, False), (LOG_SHOWS_MS - 1, False), (LOG_SHOWS_MS, True)])
def test_the_log_has_time_to_show_the_end(waited_ms: int, *, is_missed: bool) -> None:
    assert is_end_missed(NOW_MS, TimestampMs(NOW_MS + waited_ms)) is is_missed


PAUSES = {
    "nothing is open": ([], LOOK_AGAIN_MS),
    "opened now": ([0], SECOND_LOOK_MS),
    "opened a moment ago": ([SECOND_LOOK_MS - 1], SECOND_LOOK_MS),
    "opened a while ago": ([SECOND_LOOK_MS], LOOK_AGAIN_MS),
    "one of several is young": ([60_000, 1, 90_000], SECOND_LOOK_MS),
}


@pytest.mark.parametrize(("ages_ms", "pause"), PAUSES.values(), ids=PAUSES.keys())
def test_a_young_incident_is_read_again_soon(ages_ms: list[int], pause: int) -> None:
    assert pause_ms((TimestampMs(NOW_MS - age) for age in ages_ms), NOW_MS) == pause
