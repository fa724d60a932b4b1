"""Who waits for pending offsets: only what the coordinators confirm, within bounds, and never a silent gap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from support.batches import a_batch, a_marker, a_record
from support.pending_offsets import an_offset_key
from txnwatch.state.model.errors import BrokerError, WireError
from txnwatch.state.model.incident import WaitingGroup
from txnwatch.state.model.ports import ListedOffset
from txnwatch.state.model.values import CONSUMER_OFFSETS_TOPIC, ErrorCode, Problem, SpanStart, TopicPartition
from txnwatch.streaming.admin import waiting_groups as waiting
from txnwatch.streaming.client.cluster import EARLIEST, LATEST
from txnwatch.streaming.log import lookups
from txnwatch.streaming.log.range_reading import RangeReading

OFFSETS, ORDERS = TopicPartition(CONSUMER_OFFSETS_TOPIC, 0), TopicPartition("orders", 0)
HUNG, OTHER = 7, 8
SPAN = SpanStart(OFFSETS, HUNG, 10)
UNSTABLE, DENIED, TOPIC_DENIED = ErrorCode.UNSTABLE_OFFSET_COMMIT, 30, 29
FULL = WaitingGroup(group_id="billing", partitions=("orders-0",))


def pending(offset: int, *keys: bytes, producer_id: int = HUNG, **how: Any) -> bytes:
    records = [a_record(at, key=key) for at, key in enumerate(keys)]
    return a_batch(offset, records=records, producer_id=producer_id, **how)


BILLING = an_offset_key("billing", "orders", 0)


class Offsets:
    """As much of a Cluster as the search takes: one partition of `__consumer_offsets`, and its leader.

    Attributes:
        errors: the error of each group, and of each partition, by name; without one, the offset is pending.
    """

    timeout_s = 1.0

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches = [pending(10, BILLING)]
        self.errors: dict[str, int] = {}
        self.problem: Problem | None = None
        self.leader: int | None = 1
        self.stops_after = 1_000
        self.asked: list[Any] = []
        topics = {CONSUMER_OFFSETS_TOPIC: SimpleNamespace(topic_id="id")}
        self.known = SimpleNamespace(topics=topics, leader=lambda _: self.leader)
        monkeypatch.setattr(lookups, "read_ranges", self.read)

    def list_offsets(self, wanted: Iterable[TopicPartition], *, timestamp: int = LATEST) -> dict[TopicPartition, Any]:
        assert list(wanted) == [OFFSETS]
        return {OFFSETS: self.problem or ListedOffset(0 if timestamp == EARLIEST else 1_000, 0, 1)}

    def read(self, _: object, reads: Iterable[RangeReading], *, budgets: Sequence[Any], **__: Any) -> None:
        (budget,) = budgets
        assert budget.max_bytes == waiting.MOST_BYTES
        for read in reads:
            assert read.start == SPAN.start_offset, "nothing before the transaction is read"
            for batch in self.batches[: self.stops_after]:
                read.size += len(batch)
                read.fold.feed(batch)
            if self.stops_after < len(self.batches):
                read.leave()

    def ask(self, requests: dict[int, Any], _: float) -> dict[int, Any]:
        if 2 in self.errors.values():
            return {node: BrokerError(f"broker {node} does not answer") for node in requests}
        return {
            node: self._answer(build(SimpleNamespace(require_version=lambda *_, **__: 9)))
            for node, build in requests.items()
        }

    def _answer(self, request: Any) -> Any:
        assert request.require_stable
        self.asked += request.groups
        return SimpleNamespace(groups=[self._group(group) for group in request.groups])

    def _group(self, group: Any) -> Any:
        code = self.errors.get(group.group_id, 0)
        topics = [
            SimpleNamespace(
                name=topic.name,
                partitions=[
                    SimpleNamespace(
                        partition_index=number, error_code=self.errors.get(f"{topic.name}-{number}", UNSTABLE)
                    )
                    for number in topic.partition_indexes
                ],
            )
            for topic in group.topics
        ]
        return SimpleNamespace(group_id=group.group_id, error_code=code, topics=[] if code else topics)

    def waiting(self) -> tuple[Any, tuple[str, ...]]:
        found = waiting.waiting_groups(self, [SPAN])  # type: ignore[arg-type]
        return found.groups.get(SPAN), found.problems


@pytest.fixture
def offsets(monkeypatch: pytest.MonkeyPatch) -> Offsets:
    return Offsets(monkeypatch)


def test_a_group_with_pending_offsets_is_named(offsets: Offsets) -> None:
    assert offsets.waiting() == ((FULL,), ())


def test_only_the_transactions_own_records_name_groups(offsets: Offsets) -> None:
    stranger = an_offset_key("stranger", "orders", 0)
    offsets.batches += [
        pending(11, stranger, producer_id=OTHER),
        pending(12, stranger, transactional=False),
        a_marker(13, producer_id=OTHER),
        pending(14, an_offset_key("billing", "payments", 2)),
    ]
    assert offsets.waiting() == ((WaitingGroup(group_id="billing", partitions=("orders-0", "payments-2")),), ())


def test_records_about_groups_and_members_name_no_offset(offsets: Offsets) -> None:
    offsets.batches = [pending(10, b"\0\2\0\1g", BILLING)]
    assert offsets.waiting() == ((FULL,), ())


def test_a_name_counts_only_if_its_coordinator_confirms_it(offsets: Offsets) -> None:
    offsets.errors["orders-0"] = ErrorCode.NONE
    assert offsets.waiting() == ((), ())


@pytest.mark.parametrize(
    ("errors", "why"),
    [
        ({"billing": DENIED}, "the right DESCRIBE on the group is missing"),
        ({"orders-0": TOPIC_DENIED}, "the right DESCRIBE on the topic is missing"),
        ({"anybody": 2}, "broker 1 does not answer"),
    ],
)
def test_what_is_not_confirmed_is_not_known(offsets: Offsets, errors: dict[str, int], why: str) -> None:
    offsets.errors = errors
    found, (problem,) = offsets.waiting()
    assert (found, why in problem) == (None, True), problem


def test_a_partition_without_a_leader_is_a_problem(offsets: Offsets) -> None:
    offsets.leader = None
    found, (problem,) = offsets.waiting()
    assert (found, "no leader" in problem) == (None, True)


def test_a_log_that_cannot_be_listed_is_a_problem(offsets: Offsets) -> None:
    offsets.problem = Problem("READ is missing")
    assert offsets.waiting() == (None, (f"pending offsets of {OFFSETS}: READ is missing",))


def test_a_transaction_without_a_record_in_the_bytes_that_are_read_is_a_problem(offsets: Offsets) -> None:
    offsets.batches = [pending(10, BILLING, producer_id=OTHER)] * 2
    offsets.stops_after = 1
    found, (problem,) = offsets.waiting()
    assert (found, f"{OFFSETS} from offset 10 on: none in the first" in problem) == (None, True)


def test_what_was_found_before_the_limit_counts(offsets: Offsets) -> None:
    offsets.batches *= 2
    offsets.stops_after = 1
    assert offsets.waiting() == ((FULL,), ())


def test_names_are_bounded(offsets: Offsets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "MOST_KEYS", 5)
    monkeypatch.setattr(waiting, "MOST_PARTITIONS", 2)
    offsets.batches = [pending(10, *(an_offset_key("billing", "orders", number) for number in range(9)))]
    assert offsets.waiting() == ((WaitingGroup(group_id="billing", partitions=("orders-0", "orders-1")),), ())
    (asked,) = offsets.asked
    assert asked.topics[0].partition_indexes == [0, 1, 2, 3, 4]


def test_nothing_is_asked_about_another_topic(offsets: Offsets) -> None:
    found = waiting.waiting_groups(offsets, [SpanStart(ORDERS, HUNG, 0)])  # type: ignore[arg-type]
    assert (dict(found.groups), found.problems, offsets.asked) == ({}, (), [])


def test_compressed_records_end_the_reading() -> None:
    fold = waiting.PendingOffsets({HUNG: 10}, 10, 1_000)
    with pytest.raises(WireError, match="compression"):
        fold.feed(pending(10, BILLING, codec=1))
