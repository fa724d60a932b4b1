"""The producers that one batch has loaded, between the store and the rules.

Apart: bucket.py has the order of the phases, and more than 500 lines without this one.

Law: each producer is read at most once and written at most once. A producer that is only inspected is not loaded,
because every loaded producer is evaluated at the barrier.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from heapq import nsmallest
from typing import Protocol

from msgspec.structs import replace

from txnwatch.state.detection.broker_clocks import dated
from txnwatch.state.detection.bucket_indexes import Age, Awaited, HolderIndex, OpenAges, places_of, starts_of
from txnwatch.state.detection.bucket_state import BucketState
from txnwatch.state.detection.open_transactions import (
    follow,
    free_places,
    holders,
    keep_oldest,
    state_of,
    youngest_followed,
)
from txnwatch.state.detection.proof import BarrierContext
from txnwatch.state.detection.span import Step
from txnwatch.state.detection.view import ProducerFact, apply, is_newer, is_of_another_id, is_shared
from txnwatch.state.model.completion_latency import Tally
from txnwatch.state.model.facts import Barrier, PartitionNotice, TransactionalIdGone, TransactionSeen
from txnwatch.state.model.findings import Finding, StrayWrite
from txnwatch.state.model.transaction import ProducerState
from txnwatch.state.model.values import NO_BARRIER, BarrierNumber, ProducerId


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
        self._too_young: list[Age] = []

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

    def apply(
        self,
        producer_id: ProducerId,
        fact: ProducerFact,
        barrier_number: BarrierNumber,
        *,
        is_consecutive: bool = True,
        read_since: BarrierNumber = NO_BARRIER,
    ) -> None:
        """Applies one fact to one producer."""
        producer = self.load(producer_id)
        self.take(apply(producer, fact, barrier_number, is_consecutive=is_consecutive, read_since=read_since))

    def apply_to_concerned(
        self, facts: Iterable[PartitionNotice | TransactionalIdGone], barrier_number: BarrierNumber
    ) -> None:
        """Applies facts that name no producer to the producers that they concern."""
        for fact in facts:
            for producer_id in self.awaited.concerned_by(fact):
                self.apply(producer_id, fact, barrier_number)

    def time(self, fact: TransactionSeen) -> None:
        """Collects completion times, before the fact is applied; not for a log partition that is read again."""
        prior = self.load(fact.producer_id).view
        if is_of_another_id(prior, fact.view):
            return
        if prior is None or (is_newer(prior, fact.view) and prior.reading == fact.view.reading):
            self.ended.add(fact.ended)
            if prior is not None and fact.first_end is not None:
                self.ended.finish(prior, fact.first_end)

    def follow(self, producer: ProducerState, context: BarrierContext) -> None:
        """Counts the producer by its state, and keeps it in the open list while it has something open."""
        access = context.policy.coordinator_access
        was, now_is = state_of(self._stored[producer.producer_id], access), state_of(producer, access)
        if was != now_is:
            for state, change in ((was, -1), (now_is, 1)):
                if state is not None:
                    self.bucket.states[state] = self.bucket.states.get(state, 0) + change
        age = follow(self.bucket.followed, producer, context, self._youngest)
        if age is not None:
            self._too_young.append(age)

    def fill_open_list(self, context: BarrierContext) -> None:
        """Gives the free places of the open list to open producers without one, and evaluates none."""
        bucket = self.bucket
        keep_oldest(bucket.followed)
        free = free_places(bucket.followed)
        if free > 0 and len(bucket.followed) < len(bucket.agenda):
            touched = nsmallest(free, self._too_young)
            last = touched[-1] if len(touched) == free else None
            without = bucket.followed.keys() | self.touched.keys()
            others = self._ages().oldest(free, context, without=without, before=last)
            for age in nsmallest(free, [*touched, *others]):
                follow(bucket.followed, self.known(age.producer_id), context)
        if len(bucket.followed) == len(bucket.agenda):
            bucket.ages = bucket.holders = None
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
        for producer in self.touched.values():
            bucket.holders.put(producer, self.known)
        placed = holders(bucket.holders, bucket.followed, context)
        for producer_id in bucket.holding.keys() - placed:
            del bucket.holding[producer_id]
        for producer_id in placed:
            if producer_id in self.touched or producer_id not in bucket.holding:
                follow(bucket.holding, self.known(producer_id), context)

    def _ages(self) -> OpenAges:
        """The index of open producers by age; of those that this batch has touched it may be as of its start."""
        if self.bucket.ages is None:
            self.bucket.ages = OpenAges()
            for producer_id in self.bucket.agenda:
                self.bucket.ages.put(producer_id, starts_of(self.known(producer_id)))
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

    def store_changes(self) -> None:
        """Writes the producers that have changed."""
        for producer in self._changed():
            self._store.put(producer)
            self.bucket.index(producer)

    def _changed(self) -> Iterator[ProducerState]:
        for producer_id, producer in self.touched.items():
            stored = self._stored[producer_id]
            if producer is not stored and producer != stored:
                yield producer
