"""Laws of the core over everything hypothesis can think of: every fact has an answer, every value survives its row."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from dataclasses import replace as change

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from support.facts import DictStore, decode_bucket, encode_bucket
from support.row_facts import fact_of
from support.seeds import in_proportion
from support.strategies import barriers, buckets, facts, nearly_at_rest, producer_facts, producers
from txnwatch.state.detection.bucket import process
from txnwatch.state.detection.bucket_state import BucketState
from txnwatch.state.detection.evaluate import at_rest_until, due_ms, judge
from txnwatch.state.detection.proof import BarrierContext
from txnwatch.state.detection.reading import unread_in
from txnwatch.state.detection.span import Step
from txnwatch.state.detection.view import ProducerFact, apply
from txnwatch.state.model.errors import CheckpointError
from txnwatch.state.model.facts import Barrier, CompletionTimes, DataRead, Fact, LastStable, Throttled
from txnwatch.state.model.findings import StrayWrite
from txnwatch.state.model.serializer import VERSION_BYTES
from txnwatch.state.model.transaction import CoordinatorView, ProducerState
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.state.store.bucket_log import decode_producer, encode_producer, encode_shared
from txnwatch.streaming.job.bucket_step import FINDINGS
from txnwatch.streaming.source.rows import BLOBS, FACTS, Blob, fact_rows, pack_facts, unpack_facts

POLICY = DetectionPolicy()


@given(producers, producer_facts)
def test_every_fact_has_an_answer_in_every_state(producer: ProducerState, fact: ProducerFact) -> None:
    step = apply(producer, fact, 5)
    assert step.producer.producer_id == producer.producer_id
    for partition, span in step.producer.spans.items():
        before = producer.spans.get(partition)
        assert before is None or span.start_offset <= before.start_offset or span.emission is None, (
            "a span that moves up is another one, and nothing was emitted about it"
        )


@given(producers, producer_facts)
def test_a_fact_that_is_applied_twice_changes_nothing(producer: ProducerState, fact: ProducerFact) -> None:
    once = apply(producer, fact, 5)
    again = apply(once.producer, fact, 5)
    assert again.producer == once.producer
    repeated = [finding for finding in again.emitted if not isinstance(finding, StrayWrite)]
    assert repeated == [], "only what began and ended in the range is emitted again; the ledger knows it by its offsets"


def _first_listed(producer: ProducerState, bench: BarrierContext) -> CoordinatorView | None:
    """The view once a listing can have shown it."""
    view = producer.view
    return replace(view, since_ms=bench.now_ms) if view is not None and view.since_ms is None else view


@given(producers, barriers, buckets)
def test_an_evaluation_changes_no_evidence_and_always_has_the_time_of_the_next(
    producer: ProducerState, barrier: Barrier, bucket: BucketState
) -> None:
    bench = BarrierContext(barrier, POLICY, clocks=bucket.clocks)
    judged = judge(producer, bench).producer
    assert judged.view in (producer.view, _first_listed(producer, bench))
    dropped = producer.spans.keys() - judged.spans.keys()
    assert all(producer.spans[partition].ended_at is not None for partition in dropped)
    assert all(span.start_offset == producer.spans[p].start_offset for p, span in judged.spans.items())
    assert due_ms(judged, bench) >= 0


@given(buckets, st.lists(facts, max_size=8), barriers, st.booleans())
def test_every_batch_has_an_answer_in_every_bucket(
    bucket: BucketState,
    batch: list[Fact],
    barrier: Barrier,
    is_first_bucket: bool,  # noqa: FBT001 - hypothesis calls it
) -> None:
    store = DictStore()
    process(bucket, store, [*batch, barrier], POLICY, reports_partitions=is_first_bucket)
    for producer_id in store.rows:
        producer = store.get(producer_id)
        assert producer is not None
        assert not producer.is_awaited or producer_id in bucket.agenda, "what is awaited is on the agenda"


@given(producers)
def test_a_producer_survives_its_row(producer: ProducerState) -> None:
    assert decode_producer(encode_producer(producer)) == producer


@given(buckets)
def test_a_bucket_survives_its_row(bucket: BucketState) -> None:
    unsent = change(bucket, open_list_digest=None, ends_digest=None)  # the driver of a reader may be new
    assert decode_bucket(encode_bucket(bucket)) == unsent


def test_everything_in_a_bucket_is_stored_but_what_is_derived() -> None:
    derived = {"number", "awaited", "ages", "holders", "shown", "barrier"}
    stored = {"agenda", "followed", "holding", "readings", *encode_shared(BucketState())}
    assert {spec.name for spec in fields(BucketState)} == stored | derived


FOR_ONE_BUCKET = LastStable | Throttled | DataRead | CompletionTimes


@given(st.lists(st.one_of(facts, barriers), min_size=1, max_size=8), st.integers(1, 4))
def test_facts_survive_packing(batch: list[Fact], bucket_count: int) -> None:
    blobs = dict(pack_facts(batch, bucket_count))
    for bucket in range(bucket_count):
        back = unpack_facts(blobs[bucket]) if bucket in blobs else []
        of_bucket = [fact for fact in batch if bucket == 0 or not isinstance(fact, FOR_ONE_BUCKET)]
        expected = [fact for fact in of_bucket if getattr(fact, "producer_id", bucket) % bucket_count == bucket]
        for fact in expected:
            back.remove(fact)
        assert back == [], "packing brings nothing else, and no order: a batch is sorted before it is applied"


def test_blobs_of_another_version_are_refused() -> None:
    with pytest.raises(CheckpointError, match=f"has version 99999999, this txnwatch reads version {BLOBS.version}"):
        unpack_facts(b"99999999" + BLOBS.encode(Blob([], b""))[VERSION_BYTES:])


@given(st.lists(st.one_of(facts, barriers), min_size=1, max_size=6), st.integers(1, 4))
def test_facts_survive_arrow(batch: list[Fact], bucket_count: int) -> None:
    rows = FACTS.record_batch(fact_rows(batch, bucket_count)).to_pylist()
    for bucket in range(bucket_count):
        back = [fact_of(row) for row in rows if row["bucket"] == bucket]
        of_bucket = [fact for fact in batch if bucket == 0 or not isinstance(fact, FOR_ONE_BUCKET)]
        expected = [fact for fact in of_bucket if getattr(fact, "producer_id", bucket) % bucket_count == bucket]
        for fact in expected:
            back.remove(fact)
        assert back == []


@given(buckets, st.lists(facts, max_size=8), st.lists(barriers, min_size=2, max_size=6))
def test_an_emitted_finding_survives_its_row(bucket: BucketState, batch: list[Fact], later: list[Barrier]) -> None:
    store = DictStore()
    for number, barrier in enumerate(later):
        of_bucket = [*(batch if number == 0 else []), barrier]
        for emitted in process(bucket, store, of_bucket, POLICY, reports_partitions=True):
            assert FINDINGS.decode(FINDINGS.encode(emitted)) == emitted


@settings(max_examples=in_proportion(160))
@given(nearly_at_rest(), barriers, buckets)
def test_a_producer_at_rest_is_one_that_an_evaluation_would_not_change(
    producer: ProducerState, barrier: Barrier, bucket: BucketState
) -> None:
    def bench() -> BarrierContext:
        return BarrierContext(barrier, POLICY, unread_in(bucket.readings), bucket.clocks)

    until_ms = at_rest_until(producer, bench())
    if until_ms is None:
        return
    judging = bench()
    assert judge(producer, judging) == Step(producer)
    assert (judging.waiting, judging.wanted) == (Counter(), set())
    assert due_ms(producer, judging) == until_ms
