"""The owner of a producer id by the coordinators' log alone: what names it, and what leaves it unnamed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from support.batches import a_batch, a_record
from support.transaction_log import a_key, a_value
from txnwatch.state.model.ports import FormerOwnersRead, ListedOffset
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, Problem, TopicPartition
from txnwatch.streaming.client.cluster import EARLIEST
from txnwatch.streaming.client.metadata import Metadata, PartitionInfo, TopicInfo
from txnwatch.streaming.log import lookups
from txnwatch.streaming.log.former_owners import AT_A_TIME, FormerOwnersReader
from txnwatch.streaming.log.range_reading import RangeReading
from txnwatch.streaming.wire.transaction_log import TransactionLogValue

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
    assert reader_of(logs).read([PRODUCER]) == FormerOwnersRead({}, f"{LOG}: no broker shows it")
