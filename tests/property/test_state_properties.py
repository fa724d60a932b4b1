"""Laws of the core over everything hypothesis can think of: every fact has an answer, every value survives its row."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.facts import DictStore
from support.strategies import barriers, buckets, facts, producer_facts, producers
from txnwatch.state.bucket import process
from txnwatch.state.bucket_state import BucketState
from txnwatch.state.codec import VERSION, decode_bucket, decode_producer, encode_bucket, encode_producer
from txnwatch.state.emitted import StrayWrite
from txnwatch.state.errors import CheckpointError
from txnwatch.state.facts import Barrier, Fact, LastStable
from txnwatch.state.judge import Bench, due_ms, judge
from txnwatch.state.machine import ProducerFact, apply
from txnwatch.state.policy import DetectionPolicy
from txnwatch.state.transaction import ProducerState
from txnwatch.streaming.emitted_rows import decode_emitted, encode_emitted
from txnwatch.streaming.row_facts import fact_of
from txnwatch.streaming.rows import fact_rows, record_batch

POLICY = DetectionPolicy()


@given(producers, producer_facts)
def test_every_fact_has_an_answer_in_every_state(producer: ProducerState, fact: ProducerFact) -> None:
    step = apply(producer, fact, 5)
    assert step.producer.producer_id == producer.producer_id
    for partition, span in step.producer.spans.items():
        before = producer.spans.get(partition)
        assert before is None or span.start_offset <= before.start_offset or span.said is None, (
            "a span that moves up is another one, and nothing was said of it"
        )


@given(producers, producer_facts)
def test_a_fact_told_twice_says_no_more_than_once(producer: ProducerState, fact: ProducerFact) -> None:
    once = apply(producer, fact, 5)
    again = apply(once.producer, fact, 5)
    assert again.producer == once.producer
    retold = [said for said in again.emitted if not isinstance(said, StrayWrite)]
    assert retold == [], "only what began and ended in the range is told again; the ledger knows it by its offsets"


@given(producers, barriers, st.integers(-9999, 9999))
def test_judging_changes_no_evidence_and_always_knows_when_to_look_next(
    producer: ProducerState, barrier: Barrier, clock_offset_ms: int
) -> None:
    bench = Bench(barrier, POLICY, clock_offset_ms=clock_offset_ms)
    judged = judge(producer, bench).producer
    assert judged.view == producer.view
    dropped = producer.spans.keys() - judged.spans.keys()
    assert all(producer.spans[partition].over_at is not None for partition in dropped)
    assert all(span.start_offset == producer.spans[p].start_offset for p, span in judged.spans.items())
    assert due_ms(judged, bench) >= 0


@given(buckets, st.lists(facts, max_size=8), barriers, st.booleans())
def test_every_batch_has_an_answer_in_every_bucket(
    bucket: BucketState,
    batch: list[Fact],
    barrier: Barrier,
    speaks: bool,  # noqa: FBT001 - hypothesis calls it
) -> None:
    store = DictStore()
    process(bucket, store, [*batch, barrier], POLICY, speaks_for_partitions=speaks)
    for producer_id in store.rows:
        producer = store.get(producer_id)
        assert producer is not None
        assert not producer.is_awaited or producer_id in bucket.agenda, "what is awaited is on the agenda"


@given(producers)
def test_a_producer_survives_its_row(producer: ProducerState) -> None:
    assert decode_producer(producer.producer_id, encode_producer(producer)) == producer


@given(buckets)
def test_a_bucket_survives_its_row(bucket: BucketState) -> None:
    assert decode_bucket(encode_bucket(bucket)) == bucket


@pytest.mark.parametrize("row", [json.dumps({"v": VERSION + 1}), json.dumps({})], ids=["later", "none"])
def test_a_row_of_another_version_is_refused_with_both_versions_named(row: str) -> None:
    with pytest.raises(CheckpointError, match=f"this txnwatch reads version {VERSION}"):
        decode_producer(1, row)
    with pytest.raises(CheckpointError, match=f"this txnwatch reads version {VERSION}"):
        decode_bucket(row)


@given(st.lists(st.one_of(facts, barriers), min_size=1, max_size=6), st.integers(1, 4))
def test_facts_survive_arrow(batch: list[Fact], bucket_count: int) -> None:
    rows = record_batch(fact_rows(batch, bucket_count)).to_pylist()
    for bucket in range(bucket_count):
        back = [fact_of(list(row.values())) for row in rows if row["bucket"] == bucket]
        told = [fact for fact in batch if bucket == 0 or not isinstance(fact, LastStable)]
        expected = [fact for fact in told if getattr(fact, "producer_id", bucket) % bucket_count == bucket]
        assert back == expected


@given(buckets, st.lists(facts, max_size=8), st.lists(barriers, min_size=2, max_size=6))
def test_what_is_emitted_survives_its_row(bucket: BucketState, batch: list[Fact], later: list[Barrier]) -> None:
    store = DictStore()
    for number, barrier in enumerate(later):
        told = [*(batch if number == 0 else []), barrier]
        for emitted in process(bucket, store, told, POLICY, speaks_for_partitions=True):
            assert decode_emitted(*encode_emitted(emitted)) == emitted
