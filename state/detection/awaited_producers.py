"""Which awaited producers a fact concerns that names none: by transactional id, by partition, by log partition.

Law: asking costs as much as there are answers, however many are awaited and however many facts ask. It is kept from
batch to batch beside the agenda, and told of every producer that a batch has changed. Within a batch it is as of the
batch's beginning. So it may name a producer that the fact no longer concerns, which changes nothing; and whom the
batch has concerned already has to be looked at besides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple, TypeVar

from txnwatch.state.model.facts import PartitionNotice, TransactionalIdGone
from txnwatch.state.model.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.state.model.transaction import ProducerState

_Key = TypeVar("_Key")


class Places(NamedTuple):
    """Where a producer is found; `log_partition` is -1 and the id None while the coordinators' log has not named it."""

    partitions: tuple[TopicPartition, ...]
    transactional_id: str | None
    log_partition: int


def places_of(producer: ProducerState) -> Places:
    """Where a producer is found."""
    view = producer.view
    if view is None:
        return Places(tuple(producer.spans), None, -1)
    return Places(tuple(producer.spans), view.transactional_id, view.log_partition)


class Awaited:
    """Producer ids with something open or live; every answer is in their order."""

    __slots__ = ("_by_log", "_by_name", "_by_partition", "_places")

    def __init__(self) -> None:
        self._places: dict[int, Places] = {}
        self._by_partition: dict[TopicPartition, set[int]] = {}
        self._by_log: dict[int, set[int]] = {}
        self._by_name: dict[str, tuple[int, ...]] = {}  # one, as a rule: a set for each would be the largest part

    def put(self, producer_id: int, places: Places) -> None:
        """The producer is awaited, and is there now."""
        before = self._places.get(producer_id)
        if before == places:
            return
        if before is not None:
            self._leave(producer_id, before)
        self._places[producer_id] = places
        for partition in places.partitions:
            self._by_partition.setdefault(partition, set()).add(producer_id)
        if places.transactional_id is not None:
            self._by_log.setdefault(places.log_partition, set()).add(producer_id)
            named = self._by_name.get(places.transactional_id, ())
            self._by_name[places.transactional_id] = (*named, producer_id)

    def drop(self, producer_id: int) -> None:
        """The producer has nothing open or live."""
        before = self._places.pop(producer_id, None)
        if before is not None:
            self._leave(producer_id, before)

    def _leave(self, producer_id: int, places: Places) -> None:
        for partition in places.partitions:
            _take_out(self._by_partition, partition, producer_id)
        if places.transactional_id is not None:
            _take_out(self._by_log, places.log_partition, producer_id)
            others = tuple(one for one in self._by_name[places.transactional_id] if one != producer_id)
            if others:
                self._by_name[places.transactional_id] = others
            else:
                del self._by_name[places.transactional_id]

    @property
    def partitions(self) -> Collection[TopicPartition]:
        """The data partitions on which something is open."""
        return self._by_partition.keys()

    def on(self, partitions: Iterable[TopicPartition]) -> list[int]:
        """Those with something open on one of the data partitions."""
        return sorted(set().union(*(self._by_partition.get(partition, ()) for partition in partitions)))

    def in_logs(self, log_partitions: Iterable[int]) -> list[int]:
        """Those whose id is in one of these partitions of the coordinators' log."""
        return sorted(set().union(*(self._by_log.get(log_partition, ()) for log_partition in log_partitions)))

    def concerned_by(self, fact: PartitionNotice | TransactionalIdGone) -> list[int]:
        """Those that the fact may change."""
        if isinstance(fact, TransactionalIdGone):
            return sorted(self._by_name.get(fact.transactional_id, ()))
        if fact.partition.topic == TRANSACTION_STATE_TOPIC:
            return self.in_logs([fact.partition.partition])
        return self.on([fact.partition])


def _take_out(index: dict[_Key, set[int]], key: _Key, producer_id: int) -> None:
    index[key].discard(producer_id)
    if not index[key]:
        del index[key]
