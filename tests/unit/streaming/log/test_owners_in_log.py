"""The owner of a producer id by the coordinators' log alone: what names it, and what leaves it unnamed."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from support.batches import a_batch, a_marker, a_record
from support.problems import a_problem
from support.transaction_log import a_key, a_value
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.ports import FormerOwnersRead, ListedOffset
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, Problem, TopicPartition
from txnwatch.streaming.client.cluster import EARLIEST
from txnwatch.streaming.client.hidden_topics import NOT_SHOWN
from txnwatch.streaming.client.metadata import Metadata, PartitionInfo, TopicInfo
from txnwatch.streaming.log import coordinator_log, lookups
from txnwatch.streaming.log.coordinator_log import AT_A_TIME, FormerOwnersReader, read_owner_names
from txnwatch.streaming.log.range_reading import Range, RangeReading
from txnwatch.streaming.wire.internal_topics import TransactionLogValue

PRODUCER, OTHER = 1_000_007, 1_000_009
IDLE = TransactionLogValue(1, PRODUCER, 3, 60_000, S.COMPLETE_ABORT, (), 1, 5, PRODUCER)
LOG = TRANSACTION_STATE_TOPIC
FIRST, SECOND = (TopicPartition(LOG, number) for number in range(2))


def entry(offset: int, name: str, value: TransactionLogValue | None) -> bytes:
    record = a_record(key=a_key(name), value=a_value(value) if value is not None else None)
    return a_batch(offset, records=[record], producer_id=-1, transactional=False)


class Logs:
    """As much of a Cluster as it takes: two partitions of the log, of which a call reads so many batches each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        another = replace(IDLE, producer_id=OTHER, previous_producer_id=OTHER)
        self.batches = {
            FIRST: [entry(0, "expired", IDLE), entry(1, "another", another), entry(2, "expired", None)],
            SECOND: [entry(0, "third", replace(another, producer_id=3))],
        }
        self.most, self.begun = 9, 0
        self.unlisted: TopicPartition | None = None
        self.unread: TopicPartition | None = None
        self.until = float("inf")
        info = TopicInfo(LOG, "id", {0: PartitionInfo(1, 0), 1: PartitionInfo(1, 0)})
        self.known = Metadata("cluster", {}, {LOG: info})
        monkeypatch.setattr(lookups, "read_ranges", self.read)

    def refresh(self) -> Metadata:
        return self.known

    @contextlib.contextmanager
    def budget(self, _: float) -> Iterator[None]:
        yield

    def list_offsets(
        self, partitions: list[TopicPartition], *, timestamp: int = -1
    ) -> dict[TopicPartition, ListedOffset | Problem]:
        self.begun += timestamp == EARLIEST
        found: dict[TopicPartition, ListedOffset | Problem] = {}
        for at in partitions:
            offset = 0 if timestamp == EARLIEST else len(self.batches[at])
            found[at] = Problem("no leader") if at == self.unlisted else ListedOffset(offset, 0, 1)
        return found

    def read(self, _: object, reads: list[RangeReading], *, patience_s: float, until: float, **__: object) -> None:
        assert patience_s > 0
        assert until == self.until
        for read in reads:
            if read.partition == self.unread:
                read.gap("the leader sent nothing")
                continue
            for batch in self.batches[read.partition][read.fold.position :][: self.most]:
                read.fold.feed(batch)


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Logs:
    return Logs(monkeypatch)


def reader_of(logs: Logs) -> FormerOwnersReader:
    return FormerOwnersReader(logs)  # type: ignore[arg-type]


def test_a_record_names_the_owner_although_its_tombstone_follows(logs: Logs) -> None:
    assert reader_of(logs).read([PRODUCER, 77]) == FormerOwnersRead({PRODUCER: "expired", 77: None})


def test_two_names_name_nobody(logs: Logs) -> None:
    logs.batches[SECOND].append(entry(1, "restored", IDLE))
    assert reader_of(logs).read([PRODUCER]) == FormerOwnersRead({PRODUCER: None})


def test_a_read_continues_where_the_budget_has_stopped_it(logs: Logs) -> None:
    logs.most = 1
    reader = reader_of(logs)
    assert [reader.read([PRODUCER]).names for _ in range(3)] == [{}, {}, {PRODUCER: "expired"}]
    assert logs.begun == 1


def test_those_who_come_later_wait_for_the_next_read(logs: Logs) -> None:
    logs.most = 2
    reader = reader_of(logs)
    assert reader.read([PRODUCER]).names == {}
    assert reader.read([PRODUCER, OTHER]).names == {PRODUCER: "expired"}
    assert [reader.read([OTHER]).names for _ in range(2)] == [{}, {OTHER: "another"}]


def test_a_search_is_for_a_limited_number_of_producer_ids(logs: Logs) -> None:
    assert len(reader_of(logs).read(range(100, 100 + 2 * AT_A_TIME)).names) == AT_A_TIME


def test_a_search_that_nobody_has_asked_for_again_is_dropped(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    logs.most = 2
    reader = reader_of(logs)
    reader.read([PRODUCER])
    later_s = time.monotonic() + 10_000
    monkeypatch.setattr(time, "monotonic", lambda: later_s)
    assert [reader.read([OTHER]).names for _ in range(2)] == [{}, {OTHER: "another"}]


def test_a_part_that_is_not_listed_names_nobody(logs: Logs) -> None:
    logs.unlisted = SECOND
    assert reader_of(logs).read([PRODUCER]) == FormerOwnersRead({}, f"{SECOND}: no leader")


def test_a_part_that_is_not_read_names_nobody(logs: Logs) -> None:
    logs.unread = SECOND
    assert reader_of(logs).read([PRODUCER]) == FormerOwnersRead({}, f"{SECOND}: the leader sent nothing")


def test_a_log_that_is_not_shown_is_a_problem(logs: Logs) -> None:
    logs.known.topics.clear()
    assert reader_of(logs).read([PRODUCER]) == FormerOwnersRead({}, f"{LOG}: {NOT_SHOWN}")


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
        monkeypatch.setattr(coordinator_log, "logs_of", lambda _: LOGS)
        monkeypatch.setattr(coordinator_log, "list_extents", lambda *_: self.listed)
        monkeypatch.setattr(coordinator_log, "read_parts", self.read)

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
        monkeypatch.setattr(coordinator_log, "list_extents", refuse)
    names, ((_, why),) = log.names(1)
    assert names == {}
    assert why.startswith("no broker answers" if is_refused else "no broker shows this topic")
