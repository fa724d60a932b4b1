"""What is said about a producer id that no transactional id has now, and what the log shows of an id."""

from __future__ import annotations

from dataclasses import replace

import pytest

from txnwatch.cli.explain_names import participants_of
from txnwatch.cli.past_ids import FormerOwner, ends_of, former_text, tombstone_of
from txnwatch.state.evidence.past_ends import EndCause, ended_with, past_ends
from txnwatch.state.model.transaction import DescribedTransaction, Marker, NotDescribed, UnknownTransactionalId
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import Problem, TopicPartition
from txnwatch.streaming.log.coordinator_log import LogRecord, history_of
from txnwatch.streaming.wire.internal_topics import TransactionLogValue

AT_MS = 1_700_000_000_000
VALUE = TransactionLogValue(1, 7, 0, 60_000, S.ONGOING, (("orders", (0, 2)), ("a-b", (1,))), AT_MS, AT_MS)
RECORD, TOMBSTONE = LogRecord(3, 16, AT_MS, "app", VALUE), LogRecord(3, 17, AT_MS, "app", None)
LATER = DescribedTransaction("app", 1, S.EMPTY, 9, 0, 60_000)

TEXTS = {
    "nobody": (FormerOwner(None), "the coordinators' log names none"),
    "the id has another one": (
        FormerOwner("app", LATER),
        "that of transactional id 'app', which has producer id 9 now.",
    ),
    "the id has expired": (
        FormerOwner("app", UnknownTransactionalId("app", 1), TOMBSTONE),
        "which has expired: its tombstone is at __transaction_state-3@17, written at 2023-11-14 22:13:20.000Z.",
    ),
    "its coordinator does not answer, so it may have it": (
        FormerOwner("app", NotDescribed("app", Problem("DESCRIBE is missing")), TOMBSTONE),
        "Whether that id has it now is not known: DESCRIBE is missing.",
    ),
    "compaction has removed the tombstone": (
        FormerOwner("app", UnknownTransactionalId("app", 1)),
        "transactional id 'app', which no coordinator has now.",
    ),
}


@pytest.mark.parametrize(("owner", "text"), TEXTS.values(), ids=TEXTS.keys())
def test_who_had_a_producer_id(owner: FormerOwner, text: str) -> None:
    assert text in former_text(7, owner)
    assert "roducer id 7" in former_text(7, owner)


def test_only_the_last_record_is_a_tombstone_of_now() -> None:
    assert tombstone_of([RECORD, TOMBSTONE]) is TOMBSTONE
    assert tombstone_of([TOMBSTONE, RECORD]) is None
    assert tombstone_of([]) is None


def test_the_participants_of_all_records_are_known() -> None:
    expected = {TopicPartition("orders", 0), TopicPartition("orders", 2), TopicPartition("a-b", 1)}
    assert participants_of([RECORD, TOMBSTONE]) == expected


def a_life(producer_id: int, ends_at_epoch: int, begin_ms: int, first: int) -> list[LogRecord]:
    """One aborted transaction of an old client; the coordinator ends it if its epoch is not 0."""

    def record(state: S, number: int, epoch: int, at_ms: int) -> LogRecord:
        held = VALUE.partitions if state.is_live else ()
        value = replace(VALUE, producer_id=producer_id, producer_epoch=epoch, state=state, partitions=held)
        value = replace(value, last_update_ms=at_ms, start_ms=begin_ms)
        return LogRecord(3, first + number, at_ms, "app", value, 0)

    return [
        record(S.ONGOING, 0, 0, begin_ms),
        record(S.PREPARE_ABORT, 1, ends_at_epoch, begin_ms + 70_000),
        record(S.COMPLETE_ABORT, 2, ends_at_epoch, begin_ms + 70_010),
    ]


def test_a_marker_belongs_to_an_end_under_its_producer_id() -> None:
    """An id that has expired begins again with another producer id, and with the epochs of before."""
    records = [*a_life(7, 0, AT_MS, 10), *a_life(9, 1, AT_MS + 700_000_000, 20)]
    by_hand = Marker(50, 1, commit=False, coordinator_epoch=0, timestamp_ms=AT_MS + 80_000)
    assert ended_with(past_ends(history_of(records)), by_hand) is not None
    assert ended_with(ends_of(records, 7), by_hand) is None
    its_own = ended_with(ends_of(records, 9), by_hand)
    assert its_own is not None
    assert its_own.cause is EndCause.TIMEOUT_OR_FENCE


def test_an_end_that_gives_the_id_another_producer_id_is_one_of_the_former() -> None:
    """The epochs are exhausted: Prepare* has the producer id of the markers, and Complete* the next one."""
    prepared, complete = a_life(7, 0, AT_MS, 10)[1:]
    assert complete.value is not None
    complete = complete._replace(value=replace(complete.value, producer_id=9))
    (end,) = ends_of([prepared, complete], 7)
    assert end.complete_ms == complete.timestamp_ms
    assert ends_of([prepared, complete], 9) == ()
