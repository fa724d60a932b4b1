"""Where a producer has open data, by readings of partitions. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from txnwatch.state.model.ids import ProducerId, TopicPartition
from txnwatch.state.model.ports import PartitionReading
from txnwatch.state.model.problem import Problem


class OpenData(NamedTuple):
    """The partitions of some readings, by what their leaders show about one producer.

    Attributes:
        open: its transaction is open.
        closed: it has no open transaction. If its coordinator still waits for the marker there, a marker of another
            writer has closed the transaction, and the leader may refuse the coordinator's own marker for ever.
        unread: the leader did not answer, with the reason.
    """

    open: tuple[TopicPartition, ...]
    closed: tuple[TopicPartition, ...]
    unread: dict[TopicPartition, Problem]

    @property
    def is_nothing_left(self) -> bool:
        """Whether it is proven that the producer has no open data on these partitions."""
        return not self.open and not self.unread


def open_data(
    producer_id: ProducerId, readings: Iterable[PartitionReading], among: Collection[TopicPartition] | None = None
) -> OpenData:
    """What the readings show about a producer; `among` limits them to some partitions."""
    known = [reading for reading in readings if among is None or reading.partition in among]
    read = [reading for reading in known if reading.problem is None]
    is_open = {reading.partition: reading.open_transaction(producer_id) is not None for reading in read}
    return OpenData(
        open=tuple(partition for partition, has_some in is_open.items() if has_some),
        closed=tuple(partition for partition, has_some in is_open.items() if not has_some),
        unread={reading.partition: reading.problem for reading in known if reading.problem is not None},
    )
