"""What is said about a producer id that no transactional id has now, and what the log shows of an id."""

from __future__ import annotations

import pytest

from txnwatch.cli.explain_names import participants_of
from txnwatch.cli.past_ids import FormerOwner, former_text, tombstone_of
from txnwatch.state.model.transaction import DescribedTransaction, NotDescribed, UnknownTransactionalId
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import Problem, TopicPartition
from txnwatch.streaming.log.coordinator_log import LogRecord
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
