"""The producers that one batch has loaded, between the store and the rules.

Apart: bucket.py has the order of the phases, and more than 500 lines without this one.

Law: each producer is read at most once and written at most once. A producer that is only inspected is not loaded,
because every loaded producer is evaluated at the barrier.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Protocol

from msgspec.structs import replace

from txnwatch.state.detection.broker_clocks import dated
from txnwatch.state.detection.bucket_indexes import Age, Awaited, HolderIndex, OpenAges, age_of, places_of
from txnwatch.state.detection.bucket_state import BucketState
from txnwatch.state.detection.open_transactions import (
    follow,
    free_places,
    holders,
    keep_oldest,
    listable_at,
    state_of,
    youngest_followed,
)
from txnwatch.state.detection.proof import BarrierContext
from txnwatch.state.detection.span import Step
from txnwatch.state.detection.view import apply, is_newer, is_of_another_id, is_shared
from txnwatch.state.model.completion_latency import Tally
from txnwatch.state.model.facts import Barrier, PartitionNotice, TransactionalIdGone, TransactionSeen
from txnwatch.state.model.findings import Finding, StrayWrite
from txnwatch.state.model.transaction import CoordinatorView, ProducerState
from txnwatch.state.model.values import NEVER_MS, BarrierNumber, ProducerId, TimestampMs


class ProducerStore(Protocol):
    """Storage for producers between batches."""

    def get(self, producer_id: ProducerId) -> ProducerState | None:
        """The latest version of the producer, or None."""

    def put(self, producer: ProducerState) -> None:
        """Keeps the producer."""


class LoadedProducers:
    """The producers loaded from the store for one batch; each is read once and written once."""

    def __init__(self, bucket: BucketState, store: ProducerStore, barrier: Barrier) -> None:
        self.bucket = bucket
        self.barrier = barrier
        self.emitted: list[Finding] = []
        self._store = store
        self._stored: dict[ProducerId, ProducerState] = {}
        self.touched: dict[ProducerId, ProducerState] = {}
        self.ended = Tally()

    @cached_property
    def _youngest(self) -> Age | None:
        """The youngest transaction in a full open list as of the start of the batch."""
        return youngest_followed(self.bucket.followed)

    @property
    def awaited(self) -> Awaited:
        """The index of awaited producers as of the start of the batch; built on first use."""
        if self.bucket.awaited is None:
            self.bucket.awaited = Awaited()
            for producer_id in self.bucket.agenda:
                self.bucket.awaited.put(producer_id, places_of(self.known(producer_id)))
        return self.bucket.awaited

    def known(self, producer_id: ProducerId) -> ProducerState:
        """The producer as it is now; does not load it for evaluation.

        What was read before the barrier was listed, and could not be dated then, is dated by this listing.
        """
        if producer_id in self.touched:
            return self.touched[producer_id]
        return dated(self.stored(producer_id), self.barrier)

    def stored(self, producer_id: ProducerId) -> ProducerState:
        """The producer as it was before the batch."""
        if producer_id not in self._stored:
            self._stored[producer_id] = self._store.get(producer_id) or ProducerState(producer_id)
        return self._stored[producer_id]

    def awaits(self, producer_id: ProducerId) -> bool:
        """Whether the producer has an open span or a live transaction, or is loaded in this batch."""
        return producer_id in self.touched or producer_id in self.bucket.agenda

    def load(self, producer_id: ProducerId) -> ProducerState:
        """Loads the producer, so that it is evaluated at the barrier."""
        producer = self.touched.get(producer_id)
        if producer is None:
            producer = self.touched[producer_id] = self.known(producer_id)
        return producer

    def take(self, step: Step) -> None:
        """Keeps the new state of a producer, and the findings of the step."""
        self.touched[step.producer.producer_id] = step.producer
        if step.emitted:
            self.emitted.extend(step.emitted)

    def apply_to_concerned(
        self, facts: Iterable[PartitionNotice | TransactionalIdGone], barrier_number: BarrierNumber
    ) -> None:
        """Applies facts that name no producer to the producers that they concern."""
        for fact in facts:
            for producer_id in self.awaited.concerned_by(fact):
                self.take(apply(self.load(producer_id), fact, barrier_number))

    def time(self, prior: CoordinatorView | None, view: CoordinatorView, fact: TransactionSeen) -> None:
        """Times the transaction that was prepared before the range, before the fact is applied.

        Not for a log partition that is read again.
        """
        if prior is None or fact.first_end is None or is_of_another_id(prior, view):
            return
        if is_newer(prior, view) and prior.reading == view.reading:
            self.ended.finish(prior, fact.first_end)

    def follow(self, producer: ProducerState, context: BarrierContext) -> TimestampMs:
        """Counts the producer by its state, and keeps it in the open list while it is listable and not too young.

        Returns when it will be listable; NEVER_MS if it is, or has nothing open.
        """
        access, followed, youngest = context.policy.coordinator_access, self.bucket.followed, self._youngest
        was, now_is = state_of(self._stored[producer.producer_id], access), state_of(producer, access)
        if was != now_is:
            for state, change in ((was, -1), (now_is, 1)):
                if state is not None:
                    self.bucket.states[state] = self.bucket.states.get(state, 0) + change
        age = age_of(producer, context) if now_is is not None else None
        listable_ms = listable_at(now_is, age, context) if now_is is not None and age is not None else NEVER_MS
        is_listable = listable_ms <= context.now_ms
        if is_listable != producer.is_listable:
            producer = self.touched[producer.producer_id] = replace(producer, is_listable=is_listable)
        if age is None or not is_listable or (youngest is not None and age > youngest):
            followed.pop(producer.producer_id, None)
        else:
            follow(followed, producer, age, context)
        return NEVER_MS if is_listable else listable_ms

    def fill_open_list(self, context: BarrierContext) -> None:
        """Gives the free places of the open list to listable producers without one, and evaluates none."""
        bucket, followed = self.bucket, self.bucket.followed
        for producer in self.changed:
            bucket.index(producer)
        keep_oldest(followed)
        listable = len(followed)
        if listable < len(bucket.agenda):
            ages = self._ages()
            listable, free = ages.producers, free_places(followed)
            if free and len(followed) < listable:
                for age in ages.oldest(free, context, without=followed):
                    follow(followed, self.known(age.producer_id), age, context)
        if len(followed) == listable:
            bucket.holders = None
            bucket.holding.clear()
        elif self.touched:
            self._place_holders(context)

    def _place_holders(self, context: BarrierContext) -> None:
        """Gives the places for the lowest open data of a partition anew."""
        bucket = self.bucket
        if bucket.holders is None:
            bucket.holders = HolderIndex()
            for producer_id in bucket.agenda:
                bucket.holders.put(self.known(producer_id), self.known)
        for producer in self.changed:
            bucket.holders.put(producer, self.known)
        placed = holders(bucket.holders, bucket.followed, context)
        for producer_id in bucket.holding.keys() - placed:
            del bucket.holding[producer_id]
        for producer_id in placed:
            if producer_id in self.touched or producer_id not in bucket.holding:
                producer = self.known(producer_id)
                follow(bucket.holding, producer, age_of(producer, context), context)

    def _ages(self) -> OpenAges:
        """The index of listable producers by age."""
        if self.bucket.ages is None:
            self.bucket.ages = OpenAges()
            for producer_id in self.bucket.agenda:
                self.bucket.ages.take(self.known(producer_id))
        return self.bucket.ages

    def name_strays(self) -> None:
        """Adds the owner to stray writes: a batch's data is applied before the coordinator records that name it.

        If the records name two owners, no stray write is proven.
        """
        self.emitted = [
            replace(finding, view=self.touched[finding.producer_id].view)
            if isinstance(finding, StrayWrite) and finding.view is None
            else finding
            for finding in self.emitted
            if not (isinstance(finding, StrayWrite) and is_shared(self.touched[finding.producer_id].view))
        ]

    @cached_property
    def changed(self) -> list[ProducerState]:
        """The producers that have changed; used first when nothing changes them any more."""
        stored = self._stored
        return [
            producer
            for pid, producer in self.touched.items()
            if producer is not stored[pid] and producer != stored[pid]
        ]

    def store_changes(self) -> None:
        """Writes the producers that have changed."""
        for producer in self.changed:
            self._store.put(producer)
