"""Where a producer has open data: a partition that was not read is neither open nor closed."""

from __future__ import annotations

from txnwatch.state.evidence.screening import open_data
from txnwatch.state.model.ports import ActiveProducer, PartitionReading
from txnwatch.state.model.values import TopicPartition

OPEN, CLOSED, UNREAD, OTHER = (TopicPartition("orders", number) for number in range(4))
READINGS = [
    PartitionReading(OPEN, producers=(ActiveProducer(7, 0, 3, 0, 0, 5),)),
    PartitionReading(CLOSED, producers=(ActiveProducer(7, 0, 3, 0, 0, None), ActiveProducer(8, 0, 3, 0, 0, 5))),
    PartitionReading(UNREAD, "NO_LEADER", producers=(ActiveProducer(7, 0, 3, 0, 0, 5),)),
    PartitionReading(OTHER),
]


def test_each_partition_is_open_closed_or_unread() -> None:
    assert open_data(7, READINGS) == ((OPEN,), (CLOSED, OTHER), {UNREAD: "NO_LEADER"})
    assert open_data(7, READINGS, among={CLOSED}) == ((), (CLOSED,), {})


def test_nothing_is_left_only_if_every_partition_was_read() -> None:
    assert open_data(7, READINGS, among={CLOSED, OTHER}).is_nothing_left
    assert not open_data(7, READINGS, among={CLOSED, UNREAD}).is_nothing_left
    assert not open_data(7, READINGS, among={OPEN}).is_nothing_left
