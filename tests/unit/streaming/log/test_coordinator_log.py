"""The coordinators' log searched for producer ids: what it shows, and that an unread part is reported."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterable

import pytest

from support.batches import a_batch, a_record
from support.problems import a_problem
from support.transaction_log import a_key, a_value
from txnwatch.state.model.ports import LeaderStamp, ListedOffset
from txnwatch.state.model.transaction import EpochUse
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, Problem, TopicPartition, log_numbered
from txnwatch.streaming.client.cluster import EARLIEST, LATEST
from txnwatch.streaming.client.metadata import Metadata, PartitionInfo, TopicInfo
from txnwatch.streaming.log import lookups as extent
from txnwatch.streaming.log.coordinator_log import newest_stamps, read_records, read_views
from txnwatch.streaming.log.range_reading import Range, RangeReading
from txnwatch.streaming.wire.internal_topics import TransactionLogValue
from txnwatch.streaming.wire.record_batch import walk

ORDERS, LOG = TopicPartition("orders", 0), TopicPartition(TRANSACTION_STATE_TOPIC, 0)
NAME, PRODUCER, OTHER = "payments", 1_000_007, 1_000_009
EMPTY = TransactionLogValue(0, PRODUCER, 3, 60_000, S.EMPTY, None, 1, None)
ONGOING = dataclasses.replace(EMPTY, state=S.ONGOING, partitions=(("orders", (0,)),), start_ms=5)
COMMITTED = dataclasses.replace(ONGOING, state=S.COMPLETE_COMMIT, partitions=())
PREPARED = dataclasses.replace(ONGOING, state=S.PREPARE_COMMIT)


def a_log_entry(offset: int, name: str, value: TransactionLogValue | None) -> bytes:
    record = a_record(key=a_key(name), value=a_value(value) if value is not None else None)
    return a_batch(offset, records=[record], producer_id=-1, transactional=False, base_timestamp=1_000 + offset)


class Logs:
    """As much of a Cluster as reading two logs takes; `on_batch` and `on_read` are what happens meanwhile and then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: dict[TopicPartition, list[bytes]] = {
            ORDERS: [a_batch(0, producer_id=PRODUCER, producer_epoch=3)],
            LOG: [
                a_log_entry(offset, name, value)
                for offset, (name, value) in enumerate(
                    [
                        (NAME, EMPTY),
                        ("another", dataclasses.replace(EMPTY, producer_id=OTHER)),
                        (NAME, ONGOING),
                        (NAME, PREPARED),
                        (NAME, COMMITTED),
                    ]
                )
            ],
        }
        self.on_read: Callable[[RangeReading], None] = lambda _: None
        self.on_batch: Callable[[RangeReading], None] = lambda _: None
        self.errors: dict[int, str] = {}
        self.unlisted = LOG
        self.epoch: int | None = 0
        self.until = math.inf
        self.connection = ""
        topics = {at.topic: TopicInfo(at.topic, "id", {0: PartitionInfo(1, 0)}) for at in self.batches}
        self.known = Metadata("cluster", {}, topics)
        monkeypatch.setattr(extent, "read_ranges", self.read)

    def refresh(self) -> Metadata:
        return self.known

    def budget(self, seconds: float) -> contextlib.nullcontext[None]:
        assert seconds > 0
        return contextlib.nullcontext()

    def list_offsets(
        self, partitions: Iterable[TopicPartition], *, timestamp: int = LATEST
    ) -> dict[TopicPartition, ListedOffset | Problem]:
        error = self.errors.get(timestamp)
        return {
            at: a_problem(error)
            if error is not None and at == self.unlisted
            else ListedOffset(0 if timestamp == EARLIEST else self.end(at), self.epoch, 1)
            for at in partitions
        }

    def connection_to_keep(self, _: int) -> str:
        return self.connection

    def end(self, at: TopicPartition) -> int:
        ends = [header.last_offset + 1 for batch in self.batches[at] for _, header in walk(batch)]
        return max(ends, default=0)

    def read(self, _: object, reads: Iterable[RangeReading], *, patience_s: float, until: float, **__: object) -> None:
        assert patience_s > 0
        assert until == self.until
        for read in reads:
            while not read.fold.is_done and (batch := self.next_batch(read)) is not None:
                read.fold.feed(batch)
                self.on_batch(read)
            if read.partition == LOG:
                self.on_read(read)

    def next_batch(self, read: RangeReading) -> bytes | None:
        later = (
            batch
            for batch in self.batches[read.partition]
            if all(header.last_offset >= read.fold.position for _, header in walk(batch))
        )
        return next(later, None)


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Logs:
    return Logs(monkeypatch)


def test_a_producer_ids_records_are_found_and_follow_one_another(logs: Logs) -> None:
    found = read_views(logs, [PRODUCER])  # type: ignore[arg-type]
    assert (list(found.views), found.problems) == ([PRODUCER], {})
    view = found.views[PRODUCER]
    assert (view.transactional_id, view.state, view.log_offset) == (NAME, S.COMPLETE_COMMIT, 4)
    assert (view.participants, view.epoch_use) == ({ORDERS}, EpochUse.FIRST)


SECOND = dataclasses.replace(ONGOING, start_ms=9)
SECOND_ENDED = dataclasses.replace(SECOND, state=S.COMPLETE_ABORT, partitions=(), producer_epoch=4)


@pytest.mark.parametrize("is_at_rest", [True, False], ids=["at rest", "swapped while it is read"])
def test_a_record_does_not_follow_on_where_compaction_has_taken_what_was_between(
    logs: Logs,
    is_at_rest: bool,  # noqa: FBT001 - a case
) -> None:
    log = logs.batches[LOG]
    log += [a_log_entry(5, NAME, SECOND), a_log_entry(6, NAME, SECOND_ENDED)]
    cleaned = [log[0], *log[5:]] if is_at_rest else log[5:]

    def swap(_: RangeReading) -> None:
        logs.batches[LOG] = cleaned

    if is_at_rest:
        swap(None)  # type: ignore[arg-type]
    logs.on_batch = swap
    view = read_views(logs, [PRODUCER]).views[PRODUCER]  # type: ignore[arg-type]
    assert (view.log_offset, view.start_ms, view.epoch_use) == (6, 9, EpochUse.SHARED)


def test_a_hole_among_the_records_of_others_is_one_too(logs: Logs) -> None:
    del logs.batches[LOG][1]
    assert read_views(logs, [PRODUCER]).views[PRODUCER].epoch_use is EpochUse.SHARED  # type: ignore[arg-type]


@pytest.mark.parametrize(("leader_epoch", "expected"), [(0, {LOG: 0}), (1, {LOG: 1}), (None, {})])
def test_a_record_has_the_epoch_of_its_leader_and_the_log_that_of_its_listing(
    logs: Logs, leader_epoch: int | None, expected: dict[TopicPartition, int]
) -> None:
    logs.epoch = leader_epoch
    found = read_views(logs, [PRODUCER])  # type: ignore[arg-type]
    assert (found.views[PRODUCER].coordinator_epoch, found.epochs) == (0, expected)


def test_an_election_in_the_log_breaks_the_lineage_of_an_epoch(logs: Logs) -> None:
    record = a_record(key=a_key(NAME), value=a_value(COMMITTED))
    logs.batches[LOG][4] = a_batch(4, records=[record], producer_id=-1, transactional=False, leader_epoch=1)
    logs.epoch = 1
    view = read_views(logs, [PRODUCER]).views[PRODUCER]  # type: ignore[arg-type]
    assert (view.coordinator_epoch, view.epoch_use) == (1, EpochUse.SHARED)
    assert view.participants == {ORDERS}


@pytest.mark.parametrize(("state", "kept"), [(S.EMPTY, "restored"), (S.ONGOING, "restored"), (None, NAME)])
def test_two_ids_with_one_producer_id_are_both_named(logs: Logs, state: S | None, kept: str) -> None:
    second = dataclasses.replace(ONGOING, state=state or S.EMPTY)
    at = 1 if state is None else len(logs.batches[LOG])
    logs.batches[LOG][at : at + 1] = [a_log_entry(at, "restored", second)]
    view = read_views(logs, [PRODUCER]).views[PRODUCER]  # type: ignore[arg-type]
    assert {view.transactional_id, view.also_used_by} == {NAME, "restored"}
    assert view.transactional_id == kept


def test_a_producer_id_that_the_log_does_not_have_has_no_view(logs: Logs) -> None:
    assert read_views(logs, [5]).views == {}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "lose",
    [
        pytest.param(lambda read: read.gap("no leader"), id="a gap"),
        pytest.param(lambda read: read.truncated(3, "the log diverges"), id="cut, and what was kept of it is void"),
    ],
)
def test_unread_ranges_and_repeated_losses_are_reported(logs: Logs, lose: Callable[[RangeReading], None]) -> None:
    logs.on_read = lose
    assert LOG in read_views(logs, [PRODUCER]).problems  # type: ignore[arg-type]
    assert read_records(logs, NAME)[1] is not None  # type: ignore[arg-type]


@pytest.mark.parametrize("timestamp", [EARLIEST, LATEST], ids=["beginning", "end"])
def test_a_log_that_is_not_listed_is_a_problem_and_not_an_empty_one(logs: Logs, timestamp: int) -> None:
    logs.errors[timestamp] = "NOT_LEADER_OR_FOLLOWER"
    found = read_views(logs, [PRODUCER])  # type: ignore[arg-type]
    assert (found.views, found.problems, found.epochs) == ({}, {LOG: "NOT_LEADER_OR_FOLLOWER"}, {})
    assert newest_stamps(logs) == []  # type: ignore[arg-type]


def test_the_newest_stamp_is_the_last_batches(logs: Logs) -> None:
    assert newest_stamps(logs) == [(1, 1_004, LOG, 4)]  # type: ignore[arg-type]
    logs.batches[LOG].clear()
    assert newest_stamps(logs) == []  # type: ignore[arg-type]


def test_a_timestamp_of_a_former_leader_counts_for_no_present_leader(logs: Logs) -> None:
    assert read_views(logs, [PRODUCER]).led == {log_numbered(0): LeaderStamp(1, 1_000)}  # type: ignore[arg-type]
    logs.epoch = 1
    logs.known.topics[LOG.topic].partitions[0] = PartitionInfo(1, 1)
    assert newest_stamps(logs) == [(None, 1_004, LOG, 4)]  # type: ignore[arg-type]
    assert read_views(logs, [PRODUCER]).led == {}  # type: ignore[arg-type]
    record = a_record(key=a_key(NAME), value=a_value(EMPTY))
    for offset in (5, 6):
        logs.batches[LOG].append(
            a_batch(offset, records=[record], producer_id=-1, base_timestamp=1_000 + offset, leader_epoch=1)
        )
    assert newest_stamps(logs) == [(1, 1_006, LOG, 6)]  # type: ignore[arg-type]
    assert read_views(logs, [PRODUCER]).led == {log_numbered(0): LeaderStamp(1, 1_005)}  # type: ignore[arg-type]


def test_every_record_of_an_id_is_read_oldest_first(logs: Logs) -> None:
    found, problem = read_records(logs, NAME)  # type: ignore[arg-type]
    assert problem is None
    assert [(one.offset, one.value) for one in found] == [(0, EMPTY), (2, ONGOING), (3, PREPARED), (4, COMMITTED)]


@pytest.mark.parametrize(
    ("start", "end", "part"),
    [(0, None, (3, 9)), (5, None, (5, 9)), (0, 5, (3, 5)), (12, None, (9, 9)), (0, 2, (2, 2)), (-7, 40, (3, 9))],
)
def test_a_part_of_a_log_is_what_is_there_of_it(start: int, end: int | None, part: tuple[int, int]) -> None:
    read = RangeReading(Range(LOG, "id", 3, 9).part(start, end), lambda first, last: (first, last))
    assert read.fold == part


@pytest.mark.parametrize(("connection", "unwatched"), [("", set()), ("a1", {LOG})])
def test_a_leader_that_may_have_restarted_unseen_is_named(
    logs: Logs, connection: str, unwatched: set[TopicPartition]
) -> None:
    logs.connection = connection
    assert read_views(logs, [PRODUCER]).unwatched == unwatched  # type: ignore[arg-type]
