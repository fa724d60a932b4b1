"""Whose producer ids these are, from the records of the coordinators' log; what was not read is a notice."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from support.batches import a_batch, a_marker, a_record
from support.problems import a_problem
from support.transaction_log import a_key, a_value
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.streaming.log import named_owners
from txnwatch.streaming.log.named_owners import read_owner_names
from txnwatch.streaming.log.range_reading import Range, RangeReading
from txnwatch.streaming.wire.transaction_log import TransactionLogValue

LOGS = [TopicPartition(TRANSACTION_STATE_TOPIC, number) for number in (0, 1)]
VALUE = TransactionLogValue(1, 7, 0, 60_000, S.EMPTY, None, 1, None)
Entry = tuple[str, TransactionLogValue | None]


def of(producer_id: int, **changes: Any) -> TransactionLogValue:
    return dataclasses.replace(VALUE, producer_id=producer_id, **changes)


class Reading:
    """A log of two partitions: their records, and what happens instead of the listing or after the reading."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entries: dict[TopicPartition, list[Entry]] = {log: [] for log in LOGS}
        self.listed: dict[TopicPartition, Any] = {log: Range(log, "id", 0, 10) for log in LOGS}
        self.gap: str | None = None
        self.reads = 0
        monkeypatch.setattr(named_owners, "logs_of", lambda _: LOGS)
        monkeypatch.setattr(named_owners, "list_extents", lambda *_: self.listed)
        monkeypatch.setattr(named_owners, "read_parts", self.read)

    def read(self, _: object, parts: Iterable[RangeReading[Any]]) -> list[RangeReading[Any]]:
        reads = list(parts)
        self.reads += len(reads)
        for read in reads:
            for offset, (name, value) in enumerate(self.entries[read.partition]):
                record = a_record(key=a_key(name), value=a_value(value) if value is not None else None)
                read.fold.feed(a_batch(offset, records=[record], producer_id=-1, transactional=False))
            read.fold.feed(a_marker(9))
            if self.gap is not None:
                read.gap(self.gap)
        return reads

    def names(self, *wanted: int) -> tuple[dict[int, str], list[tuple[int, str]]]:
        found = read_owner_names(SimpleNamespace(refresh=lambda: None), set(wanted))  # type: ignore[arg-type]
        return dict(found.names), [(notice.partition.partition, notice.detail) for notice in found.missing]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Reading:
    return Reading(monkeypatch)


def test_each_producer_id_that_a_record_names_has_the_id_of_that_record(log: Reading) -> None:
    log.entries[LOGS[0]] = [("a", of(1)), ("b", of(3, previous_producer_id=2)), ("gone", None)]
    log.entries[LOGS[1]] = [("c", of(5, next_producer_id=6)), ("a-2", of(8))]
    assert log.names(1, 2, 3, 4, 5, 6) == ({1: "a", 2: "b", 3: "b", 5: "c", 6: "c"}, [])


def test_an_id_that_two_transactional_ids_have_had_is_not_known(log: Reading) -> None:
    log.entries[LOGS[0]] = [("a", of(1)), ("a", of(1))]
    log.entries[LOGS[1]] = [("b", of(1)), ("b", of(2))]
    assert log.names(1, 2) == ({2: "b"}, [])


def test_without_a_producer_id_nothing_is_read(log: Reading) -> None:
    assert (log.names(), log.reads) == (({}, []), 0)


def test_a_part_that_is_not_listed_and_one_that_is_not_read_are_notices(log: Reading) -> None:
    log.entries[LOGS[1]] = [("b", of(2))]
    log.listed[LOGS[0]] = a_problem("NOT_LEADER_OR_FOLLOWER")
    log.gap = "no leader"
    names, ((first, why), (second, _)) = log.names(1, 2)
    assert (names, first, second) == ({2: "b"}, 0, 1)
    assert why.startswith("NOT_LEADER_OR_FOLLOWER: transactional ids that only this part")


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_log_that_cannot_be_had_is_a_notice_and_no_error(
    log: Reading,
    monkeypatch: pytest.MonkeyPatch,
    is_refused: bool,  # noqa: FBT001 - a case
) -> None:
    def refuse(*_: object) -> None:
        raise BrokerError("no broker answers")

    log.listed = {}
    if is_refused:
        monkeypatch.setattr(named_owners, "list_extents", refuse)
    names, ((_, why),) = log.names(1)
    assert names == {}
    assert why.startswith("no broker answers" if is_refused else "no broker shows this topic")
