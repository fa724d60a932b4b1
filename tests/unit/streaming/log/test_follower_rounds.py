"""Rounds of requests to a follower and its leader: who is asked next, and what a range loses meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from support.batches import a_batch
from support.raw_log import RawFold
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, BrokerId, Offset, TopicPartition
from txnwatch.streaming.client.cluster import RequestOf
from txnwatch.streaming.client.connection import Pace
from txnwatch.streaming.client.metadata import PartitionInfo
from txnwatch.streaming.log import fetch
from txnwatch.streaming.log.fetch import Budget, read_ranges
from txnwatch.streaming.log.range_reading import Range, RangeReading
from txnwatch.streaming.source.offsets import Position, SourceOffset
from txnwatch.streaming.source.options import parse_options
from txnwatch.streaming.source.tasks import plan_reads
from txnwatch.streaming.wire.fetch_response import Divergence, FetchAnswer, PartitionData

LEADER, FOLLOWER, EPOCH, START, END = BrokerId(1), BrokerId(2), 7, 5, 9
PATIENCE_S = 5.0

Answers = list[list[PartitionData] | BrokerError]


class Racks:
    """A cluster with a leader and a follower that answer by script; `asked` is who was asked for which partitions.

    A broker without an answer in its script does not answer in time.
    """

    timeout_s, until = PATIENCE_S, float("inf")

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: Mapping[BrokerId, Answers]) -> None:
        self.known = SimpleNamespace(
            info=lambda _: PartitionInfo(LEADER, EPOCH, FOLLOWER), leader=lambda _: LEADER, topics={}
        )
        self.asked: list[BrokerId] = []
        self.requests: list[RequestOf] = []
        self._answers = {broker: list(script) for broker, script in answers.items()}
        self._now_s = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self._now_s)
        monkeypatch.setattr(time, "sleep", lambda _: None)
        monkeypatch.setattr(fetch, "decode_fetch_response", lambda body, _: FetchAnswer(0, 0, body))

    def throttled_s(self, _: int) -> float:
        return 0.0

    def connection_to_keep(self, _: int) -> str:
        return ""

    def refresh(self, _: Any) -> Any:
        raise BrokerError("it is away")

    def ask(self, requests: Mapping[BrokerId, Any], _: float, receive: Callable[..., Any]) -> dict[BrokerId, Any]:
        self.asked += requests
        self.requests += requests.values()
        return {broker: self._answer(broker, receive) for broker in requests}

    def _answer(self, broker: BrokerId, receive: Callable[..., Any]) -> Any:
        script = self._answers.get(broker)
        if not script:
            self._now_s += self.timeout_s + 0.01
            return BrokerError("no answer in time")
        body = script.pop(0)
        connection = SimpleNamespace(
            receive_body=lambda *_, **__: (SimpleNamespace(request_api_version=12), body),
            throttled=lambda *_: None,
            pace=Pace(),
        )
        return receive(broker, connection, self.timeout_s, self.until)


def partition(number: int = 0) -> TopicPartition:
    return TopicPartition("orders", number)


def sent(*offsets: int, number: int = 0, end: int = END, divergence: Divergence | None = None) -> PartitionData:
    records = memoryview(b"".join(a_batch(base_offset=offset, leader_epoch=EPOCH) for offset in offsets))
    return PartitionData("orders", number, 0, end, end, 0, divergence, records)


def a_read(number: int = 0, *, must_check: bool = False, end_epoch: int | None = None) -> RangeReading[RawFold]:
    return RangeReading(Range(partition(number), "", START, END, EPOCH, must_check, end_epoch=end_epoch), RawFold)


def test_a_range_that_the_answer_had_no_room_for_is_asked_of_the_follower_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = a_read(0), a_read(1)
    script: Answers = [[sent(5, 6, 7, 8), sent(number=1)], [sent(5, 6, 7, 8, number=1)]]
    racks = Racks(monkeypatch, {FOLLOWER: script})
    read_ranges(racks, [first, second], patience_s=PATIENCE_S)  # type: ignore[arg-type]
    assert racks.asked == [FOLLOWER, FOLLOWER]
    assert [first.fold.offsets, second.fold.offsets] == [[5, 6, 7, 8]] * 2


@pytest.mark.parametrize("end", [START, END], ids=["it lags", "it has more and sends nothing"])
def test_an_answer_without_any_records_sends_the_range_to_the_leader(monkeypatch: pytest.MonkeyPatch, end: int) -> None:
    read = a_read()
    racks = Racks(monkeypatch, {FOLLOWER: [[sent(end=end)]], LEADER: [[sent(5, 6, 7, 8)]]})
    read_ranges(racks, [read], patience_s=PATIENCE_S)  # type: ignore[arg-type]
    assert (racks.asked, read.fold.offsets) == ([FOLLOWER, LEADER], [5, 6, 7, 8])


def test_a_follower_that_falls_silent_takes_no_patience_from_its_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    read = a_read()
    racks = Racks(monkeypatch, {FOLLOWER: [[sent(5, 6)]], LEADER: [[sent(7, 8)]]})
    read_ranges(racks, [read], patience_s=PATIENCE_S)  # type: ignore[arg-type]
    assert (racks.asked, read.notices) == ([FOLLOWER, FOLLOWER, LEADER], [])
    assert read.fold.offsets == [5, 6, 7, 8]


def test_a_limit_does_not_stop_a_range_that_only_a_follower_without_progress_has_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = a_read()
    racks = Racks(monkeypatch, {FOLLOWER: [[sent(end=START)]], LEADER: [[sent(5, 6)]]})
    budgets = [Budget([read], until_s=0.0)]
    read_ranges(racks, [read], patience_s=PATIENCE_S, budgets=budgets)  # type: ignore[arg-type]
    assert (racks.asked, read.fold.position) == ([FOLLOWER, LEADER], 7)


def test_a_follower_with_the_former_log_does_not_hide_that_the_new_leader_has_cut_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = a_read(must_check=True)
    cut = sent(divergence=Divergence(EPOCH, 3))
    racks = Racks(monkeypatch, {FOLLOWER: [[sent(5, 6)]], LEADER: [[cut], [sent(5)]]})
    budgets = [Budget([read], until_s=0.0)]
    read_ranges(racks, [read], patience_s=PATIENCE_S, budgets=budgets)  # type: ignore[arg-type]
    assert [notice.kind for notice in read.notices][:1] == ["truncated"], read.notices


@pytest.mark.parametrize(("end_epoch", "asked"), [(None, EPOCH), (EPOCH - 1, EPOCH), (EPOCH + 1, EPOCH + 1)])
def test_a_leader_that_was_deposed_before_the_end_was_listed_is_asked_under_the_later_epoch(
    monkeypatch: pytest.MonkeyPatch, end_epoch: int | None, asked: int
) -> None:
    """The metadata of a task may be older than the listing. A broker that does not know the epoch gives an error."""
    racks = Racks(monkeypatch, {LEADER: [[sent(5, 6, 7, 8)]]})
    read_ranges(racks, [a_read(must_check=True, end_epoch=end_epoch)], patience_s=PATIENCE_S)  # type: ignore[arg-type]
    connection: Any = SimpleNamespace(require_version=lambda *_, **__: 12, pace=Pace())
    (sent_partition,) = racks.requests[0](connection).topics[0].partitions
    assert sent_partition.current_leader_epoch == asked


def test_a_range_of_a_plan_has_the_epoch_under_which_its_end_was_listed() -> None:
    log = TopicPartition(TRANSACTION_STATE_TOPIC, 0)
    options = parse_options({"kafka.bootstrap.servers": "a:1", "subscribe": "orders"})
    before = {at: Position("id", START, EPOCH, START, LEADER) for at in (log, partition(0))}
    after = {at: Position("id", END, EPOCH + 1, END, LEADER) for at in (log, partition(0), partition(1))}
    start = SourceOffset("", 1, 0, 0, before)
    end = SourceOffset("", 2, 1, 1, after, begun={partition(1): Offset(0)})
    ranges = [one for plan in plan_reads(start, end, options) for one in plan.ranges]
    assert len(ranges) == 4, "one of each partition, and the last offset of the coordinators' log"
    assert {one.end_epoch for one in ranges} == {EPOCH + 1}
