"""A barrier evaluates every producer for which it would find something new, whatever the open list has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import pytest
from msgspec import structs

from support.attempts import POLICY, USUAL_CHANGES, Query
from support.facts import DictStore
from support.seeds import in_proportion
from txnwatch.state.detection import open_transactions
from txnwatch.state.detection.bucket import process
from txnwatch.state.detection.bucket_state import BucketState
from txnwatch.state.detection.evaluate import judge
from txnwatch.state.detection.loaded_producers import LoadedProducers
from txnwatch.state.detection.proof import BarrierContext
from txnwatch.state.model.findings import BucketCount, Finding, ListedOffsets, OpenTransactions, OwnerInDoubt
from txnwatch.state.model.transaction import ProducerState
from txnwatch.state.model.values import TopicPartition

SEEDS, BATCHES = in_proportion(5), 300
FEW_CHANGES = (0, 0, 0, 1)
EVERY_FINDING = {"SpanCandidate", "TransactionCandidate", "OwnerInDoubt", "CoverInDoubt", "StrayWrite", "SpanEnded"}


def findings(seed: int) -> Iterator[list[Finding]]:
    """The findings of each batch of one bucket."""
    query = Query(seed, changes=USUAL_CHANGES if seed % 2 else FEW_CHANGES)
    bucket, store = BucketState(), DictStore()
    for _ in range(BATCHES):
        yield process(bucket, store, query.next_facts(), POLICY, reports_partitions=True)


@contextmanager
def checked_barriers() -> Iterator[Counter[str]]:
    """Evaluates at each barrier also the producers that it has left out, and compares."""
    seen: Counter[str] = Counter()
    fill = LoadedProducers.fill_open_list

    def check_and_fill(loaded: LoadedProducers, context: BarrierContext) -> None:
        for producer_id in loaded.bucket.agenda.keys() - loaded.touched.keys():
            left_out, wanted = loaded.known(producer_id), set[TopicPartition]()
            found = judge(left_out, replace(context, waiting=Counter(), wanted=wanted)).emitted
            assert all(is_paused(finding, left_out) for finding in found), found
            assert all(left_out.spans[partition].emission for partition in wanted - context.wanted)
            seen["left out"] += 1
        fill(loaded, context)

    with mock.patch.object(LoadedProducers, "fill_open_list", check_and_fill):
        yield seen


def is_paused(finding: Finding, producer: ProducerState) -> bool:
    """Whether a hang was reported for the span before, so that the question for its owner waits for the pause."""
    return isinstance(finding, OwnerInDoubt) and producer.spans[finding.candidate.partition].emission is not None


def test_a_barrier_leaves_out_no_producer_about_which_it_would_find_something() -> None:
    kinds: Counter[str] = Counter()
    with checked_barriers() as seen:
        for seed in range(SEEDS):
            for found in findings(seed):
                kinds.update(type(finding).__name__ for finding in found)
    assert seen["left out"] > SEEDS * BATCHES
    assert kinds.keys() >= EVERY_FINDING


@pytest.mark.parametrize("places", [1, 4])
def test_findings_do_not_depend_on_the_places_of_the_open_list(places: int) -> None:
    for seed in range(in_proportion(2)):
        usual = list(findings(seed))
        with mock.patch.object(open_transactions, "FOLLOWED", places):
            small = list(findings(seed))
        assert [without_list(batch) for batch in small] == [without_list(batch) for batch in usual]
        assert small != usual, "the list is full"


def without_list(batch: list[Finding]) -> list[Finding]:
    return [
        replace_ages(finding) if isinstance(finding, BucketCount) else finding
        for finding in batch
        if not isinstance(finding, OpenTransactions | ListedOffsets)  # these are of the transactions in the list
    ]


def replace_ages(count: BucketCount) -> BucketCount:
    """The count without the ages, which are those of the list."""
    return structs.replace(count, oldest_open_ms=None, oldest_prepared_ms=None)
