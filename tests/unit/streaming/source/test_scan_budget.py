"""Which partitions are scanned: those that write least, named ones first, and never back and forth."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.facts import ORDERS, PAYMENTS
from txnwatch.state.model.facts import DataRead, TopicVolume
from txnwatch.state.model.ports import ListedOffset
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, BarrierNumber, BrokerId, Offset, TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.metadata import Metadata, PartitionInfo, TopicInfo
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.client.security import Security
from txnwatch.streaming.source import lister as lister_module
from txnwatch.streaming.source.driver_file import DriverFile
from txnwatch.streaming.source.lister import Lister
from txnwatch.streaming.source.offsets import LookedAt, SourceOffset
from txnwatch.streaming.source.options import parse_options
from txnwatch.streaming.source.planner import RereadRequest
from txnwatch.streaming.source.scan_budget import WINDOW_S, Extent, ScanBudget, beyond

LOGS = TopicPartition("logs", 0)
IDS = {ORDERS: "o", PAYMENTS: "p", LOGS: "l"}
BUDGET = 1000.0

partitions = st.builds(TopicPartition, st.sampled_from(["orders", "payments", "logs"]), st.integers(0, 9))
written = st.dictionaries(partitions, st.floats(0, 2 * BUDGET), max_size=12)
ranks = st.fixed_dictionaries(dict.fromkeys(("orders", "payments", "logs"), st.integers(0, 2)))


@given(rates=written, looked=st.sets(partitions), rank=ranks)
def test_what_is_scanned_is_within_the_budget(
    rates: dict[TopicPartition, float], looked: set[TopicPartition], rank: dict[str, int]
) -> None:
    found = beyond(BUDGET, rates, looked, rank.__getitem__)
    assert sum(rate for at, rate in rates.items() if at not in found) <= BUDGET
    assert looked - rates.keys() <= found <= looked | rates.keys()


@given(rates=written, looked=st.sets(partitions), rank=ranks)
def test_nothing_of_a_higher_rank_changes_what_is_scanned_first(
    rates: dict[TopicPartition, float], looked: set[TopicPartition], rank: dict[str, int]
) -> None:
    first = {at: rate for at, rate in rates.items() if rank[at.topic] == 0}
    alone = beyond(BUDGET, first, looked & first.keys(), rank.__getitem__)
    assert beyond(BUDGET, rates, looked, rank.__getitem__) & first.keys() == alone


@given(rates=written, noise=st.lists(st.lists(st.floats(0.91, 1.09), min_size=12, max_size=12), min_size=2, max_size=8))
def test_rates_that_hardly_change_let_no_partition_change_its_side_twice(
    rates: dict[TopicPartition, float], noise: list[list[float]]
) -> None:
    looked: set[TopicPartition] = set()
    changes = dict.fromkeys(rates, 0)
    for factors in noise:
        now = {at: rate * factor for (at, rate), factor in zip(rates.items(), factors, strict=False)}
        found = beyond(BUDGET, now, looked)
        for at in found ^ looked:
            changes[at] += 1
        looked = found
    assert all(count <= 1 for count in changes.values()), "each goes beyond at most once, and none comes back"


CASES: dict[str, tuple[dict[TopicPartition, float], set[TopicPartition], set[TopicPartition]]] = {
    "all fit": ({ORDERS: 400, PAYMENTS: 600}, set(), set()),
    "the one that writes most": ({ORDERS: 400, PAYMENTS: 601}, set(), {PAYMENTS}),
    "one alone is too much": ({ORDERS: 1001}, set(), {ORDERS}),
    "it fits, but not with a reserve": ({ORDERS: 400, PAYMENTS: 301}, {PAYMENTS}, {PAYMENTS}),
    "it comes back": ({ORDERS: 400, PAYMENTS: 300}, {PAYMENTS}, set()),
    "it is known too little of it": ({ORDERS: 400}, {PAYMENTS}, {PAYMENTS}),
    "an idle one waits, too": ({ORDERS: 800, PAYMENTS: 0}, {PAYMENTS}, {PAYMENTS}),
}


@pytest.mark.parametrize(("rates", "looked", "expected"), CASES.values(), ids=CASES.keys())
def test_the_choice(
    rates: Mapping[TopicPartition, float], looked: set[TopicPartition], expected: set[TopicPartition]
) -> None:
    assert beyond(BUDGET, rates, looked) == expected


class OneBroker(Cluster):
    """Leads everything; all partitions end at the same offset."""

    def __init__(self, end: int) -> None:
        super().__init__([Endpoint("a", 1)], Security())
        self.end = Offset(end)

    def metadata_from(self, endpoint: Endpoint, _: Iterable[str] | None = None) -> Metadata:
        names = (ORDERS.topic, TRANSACTION_STATE_TOPIC)
        found = {name: TopicInfo(name, name, {0: PartitionInfo(1, 0)}) for name in names}
        return Metadata("cluster", {1: endpoint}, found)

    def list_offsets(self, partitions: Iterable[TopicPartition], **_: Any) -> dict[TopicPartition, ListedOffset]:
        return dict.fromkeys(partitions, ListedOffset(self.end, 0, 1))

    def connection_to_keep(self, _: BrokerId) -> str:
        return ""


class Watch:
    """Partitions to which a given number of offsets is written in each window; an offset has ten bytes.

    Attributes:
        unread: how many offsets below its end the reading of a partition goes on, or would begin.
    """

    def __init__(
        self, first: str = "", looked: Mapping[TopicPartition, LookedAt] | None = None, *, wants_backlog: bool = False
    ) -> None:
        self.budget = ScanBudget(int(BUDGET), lambda name: name == first, wants_backlog=wants_backlog)
        self.unread: dict[TopicPartition, int] = {}
        self.offset = SourceOffset("", BarrierNumber(7), 0, 0, {}, looked=dict(looked or {}))
        self.ends = dict.fromkeys(IDS, Offset(0))
        self.now_s = 50.0
        self.budget.take(self.extents, self.now_s)

    @property
    def extents(self) -> dict[TopicPartition, Extent]:
        return {at: Extent(Offset(end - self.unread.get(at, 0)), end) for at, end in self.ends.items()}

    def read(self, *topics: str, has_transactions: bool = True) -> None:
        self.budget.learn({topic: TopicVolume(100, 1000, has_transactions) for topic in topics})

    def window(self, **written: int) -> set[TopicPartition]:
        """Ten seconds pass; how many offsets a second were written to which topic."""
        for at in self.ends:
            self.ends[at] = Offset(self.ends[at] + int(WINDOW_S) * written.get(at.topic, 0))
        self.now_s += WINDOW_S
        assert self.budget.is_due(self.now_s)
        self.budget.take(self.extents, self.now_s)
        looked = self.budget.looked(self.offset, IDS)
        self.offset = replace(self.offset, barrier=BarrierNumber(self.offset.barrier + 1), looked=looked)
        return set(looked)


def test_a_partition_goes_beyond_the_budget_and_comes_back_after_a_while() -> None:
    watch = Watch()
    watch.read("orders", "payments", "logs")
    assert watch.window(orders=50, logs=40) == set()
    assert watch.window(orders=50, logs=60) == {LOGS}
    assert watch.offset.looked[LOGS] == LookedAt("l", 10, BarrierNumber(9))
    assert watch.offset.let_go == [LOGS]
    sides = [watch.window(orders=50, logs=5) for _ in range(9)]
    assert sides[0] == {LOGS}, "rates fall slowly"
    assert watch.offset.let_go == []
    assert sides[-1] == set()


def test_what_is_first_is_scanned_and_what_has_no_transactions_is_not() -> None:
    watch = Watch(first="logs")
    watch.read("orders", "logs")
    watch.read("payments", has_transactions=False)
    assert watch.window(orders=80, logs=60) == {ORDERS}
    watch = Watch()
    watch.read("orders", "logs")
    watch.read("payments", has_transactions=False)
    assert watch.window(orders=50, logs=40, payments=20) == {PAYMENTS}


def test_a_backlog_that_is_not_read_within_a_window_is_not_read() -> None:
    watch = Watch()
    watch.read("orders", "payments", "logs")
    watch.unread = {LOGS: 600, ORDERS: 300}
    assert watch.window(orders=10) == set(), "100 of 100 offsets a second are to be read"
    watch.unread = {LOGS: 601, ORDERS: 300}
    assert watch.window(orders=10) == {LOGS}
    watch.unread = {LOGS: 700}
    assert watch.window() == {LOGS}, "its scan would begin that far below its end"
    watch.unread = {}
    assert watch.window() == set(), "at once: a backlog is no rate, which falls slowly"


def test_a_backlog_that_somebody_wants_is_read_however_long_that_takes() -> None:
    watch = Watch(wants_backlog=True)
    watch.read("orders", "payments", "logs")
    watch.unread = {LOGS: 10**9}
    assert watch.window(orders=10) == set()


@pytest.mark.parametrize(("starting", "beyond_it"), [("latest", {ORDERS}), ("earliest", set())])
def test_after_a_pause_the_rest_that_a_task_has_left_is_no_lag_to_carry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starting: str, beyond_it: set[TopicPartition]
) -> None:
    now_s = itertools.count(1_000, int(WINDOW_S))
    monkeypatch.setattr(lister_module, "time", SimpleNamespace(monotonic=lambda: next(now_s)))
    file = DriverFile(tmp_path / "driver")
    chosen = {"subscribe": ORDERS.topic, "maxBytesPerSecond": str(int(BUDGET)), "startingOffsets": starting}
    options = parse_options({"kafka.bootstrap.servers": "a:1", "driverFile": str(file.path), **chosen})
    lister, offset = Lister(options, OneBroker(1_000)), SourceOffset.beginning()
    read = DataRead({ORDERS.topic: TopicVolume(100, 1_100, has_transactions=True)})
    for _ in range(3):
        offset = lister.next_offset(offset) or offset
        file.write([RereadRequest(ORDERS, Offset(90))], read=[read])
    assert offset.looked.keys() == beyond_it


def test_what_is_not_known_stays_on_its_side() -> None:
    before = BarrierNumber(3)
    watch = Watch(looked={ORDERS: LookedAt("o", 10, before), PAYMENTS: LookedAt("another", 10, before)})
    assert set(watch.budget.looked(watch.offset, IDS)) == {ORDERS}, "of another topic of that name nothing is known"
    assert watch.window(orders=99, logs=10**6) == {ORDERS}, "nobody has read the other topics"
    assert watch.window(orders=0) == {ORDERS}
    assert [watch.window() for _ in range(3)][-1] == set(), "what it had for an offset is in the source's offset"


def test_without_a_budget_all_is_scanned() -> None:
    budget = ScanBudget(None, lambda _: False)
    assert not budget.is_due(0.0)
    looked = {ORDERS: LookedAt("o", 10, BarrierNumber(3))}
    assert budget.looked(SourceOffset("", BarrierNumber(7), 0, 0, {}, looked=looked), IDS) == {}
