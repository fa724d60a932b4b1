"""An index of the awaited producers, for facts that name none: by transactional id, partition and log partition.

An awaited producer has an open span or a live transaction. Law: a lookup costs as much as its result, however many
producers are awaited and however many facts ask. The index is kept from batch to batch beside the agenda, and updated
with every producer that a batch has changed. Within a batch it is as of the start of the batch. So it may return a
producer that the fact no longer concerns, which changes nothing; and producers that the batch has already touched must
be checked in addition.
"""

from __future__ import annotations

from collections.abc import Iterable, KeysView
from typing import NamedTuple, TypeVar

from txnwatch.state.model.facts import PartitionNotice, TransactionalIdGone
from txnwatch.state.model.ids import TRANSACTION_STATE_TOPIC, ProducerId, TopicPartition
from txnwatch.state.model.transaction import ProducerState, Span

_Key = TypeVar("_Key")


class Places(NamedTuple):
    """The index keys of a producer.

    Attributes:
        known_by_census: those of the partitions whose span is known only from a census, and that no scan will reach.
        id_in_log: its transactional id, and the number of the partition of the coordinators' log that has the id; None
            until that log has named it.
    """

    partitions: tuple[TopicPartition, ...]
    known_by_census: tuple[TopicPartition, ...]
    id_in_log: tuple[str, int] | None


def is_known_by_census(span: Span) -> bool:
    """Whether the partition of the span is not scanned: only a census shows whether it still exists."""
    return span.by_census and not span.is_ahead_of_scan


def places_of(producer: ProducerState) -> Places:
    """The index keys of a producer."""
    view = producer.view
    by_census = tuple(partition for partition, span in producer.spans.items() if is_known_by_census(span))
    return Places(
        tuple(producer.spans), by_census, (view.transactional_id, view.log_partition) if view is not None else None
    )


class Awaited:
    """The index of producer ids with an open span or a live transaction; every result is sorted."""

    __slots__ = ("_by_census", "_by_log", "_by_name", "_by_partition", "_places")

    def __init__(self) -> None:
        self._places: dict[ProducerId, Places] = {}
        self._by_partition: dict[TopicPartition, set[ProducerId]] = {}
        self._by_census: dict[TopicPartition, set[ProducerId]] = {}
        self._by_log: dict[int, set[ProducerId]] = {}
        self._by_name: dict[
            str, tuple[ProducerId, ...]
        ] = {}  # usually one: a set for each would use most of the memory

    def put(self, producer_id: ProducerId, places: Places) -> None:
        """Adds the producer, or moves it to its new keys."""
        before = self._places.get(producer_id)
        if before == places:
            return
        if before is not None:
            self._leave(producer_id, before)
        self._places[producer_id] = places
        for partition in places.partitions:
            self._by_partition.setdefault(partition, set()).add(producer_id)
        for partition in places.known_by_census:
            self._by_census.setdefault(partition, set()).add(producer_id)
        if places.id_in_log is not None:
            transactional_id, log_partition = places.id_in_log
            self._by_log.setdefault(log_partition, set()).add(producer_id)
            named = self._by_name.get(transactional_id, ())
            self._by_name[transactional_id] = (*named, producer_id)

    def drop(self, producer_id: ProducerId) -> None:
        """Removes a producer that has nothing open or live."""
        before = self._places.pop(producer_id, None)
        if before is not None:
            self._leave(producer_id, before)

    def _leave(self, producer_id: ProducerId, places: Places) -> None:
        for partition in places.partitions:
            _take_out(self._by_partition, partition, producer_id)
        for partition in places.known_by_census:
            _take_out(self._by_census, partition, producer_id)
        if places.id_in_log is not None:
            transactional_id, log_partition = places.id_in_log
            _take_out(self._by_log, log_partition, producer_id)
            others = tuple(one for one in self._by_name[transactional_id] if one != producer_id)
            if others:
                self._by_name[transactional_id] = others
            else:
                del self._by_name[transactional_id]

    @property
    def partitions(self) -> KeysView[TopicPartition]:
        """The data partitions with an open span."""
        return self._by_partition.keys()

    @property
    def known_by_census(self) -> KeysView[TopicPartition]:
        """The data partitions with an open span that is known only from a census."""
        return self._by_census.keys()

    def on(self, partitions: Iterable[TopicPartition]) -> list[ProducerId]:
        """Producers with an open span on one of the data partitions."""
        return sorted(set().union(*(self._by_partition.get(partition, ()) for partition in partitions)))

    def in_logs(self, log_partitions: Iterable[int]) -> list[ProducerId]:
        """Producers whose id is in one of these partitions of the coordinators' log."""
        return sorted(set().union(*(self._by_log.get(log_partition, ()) for log_partition in log_partitions)))

    def log_of(self, producer_id: ProducerId) -> int | None:
        """The partition of the coordinators' log that has the producer's id; None if it is not known or not awaited."""
        places = self._places.get(producer_id)
        return places.id_in_log[1] if places is not None and places.id_in_log is not None else None

    def concerned_by(self, fact: PartitionNotice | TransactionalIdGone) -> list[ProducerId]:
        """Producers that the fact may change."""
        if isinstance(fact, TransactionalIdGone):
            return sorted(self._by_name.get(fact.transactional_id, ()))
        if fact.partition.topic == TRANSACTION_STATE_TOPIC:
            return self.in_logs([fact.partition.partition])
        return self.on([fact.partition])


def _take_out(index: dict[_Key, set[ProducerId]], key: _Key, producer_id: ProducerId) -> None:
    index[key].discard(producer_id)
    if not index[key]:
        del index[key]
