"""The operator's shell without a JVM: blobs in, rows out, state as a head and a log."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import SimpleNamespace
from unittest import mock

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from support.facts import NAME, ORDERS, OTHER, PRODUCER, a_marker, seen, transaction
from txnwatch.state.model.errors import CheckpointError
from txnwatch.state.model.facts import Barrier, Fact
from txnwatch.state.model.findings import BucketCount, Finding, OpenTransactions, SpanCandidate, SpanEnded, Unproven
from txnwatch.state.model.serializer import VERSION_BYTES
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.verdicts import TWO_PHASE_TIMEOUT_MS, DetectionPolicy
from txnwatch.state.store.bucket_log import MAX_ENTRIES
from txnwatch.streaming.job import bucket_step, operator
from txnwatch.streaming.job.bucket_step import FINDINGS
from txnwatch.streaming.job.operator import BucketProcessor
from txnwatch.streaming.source.rows import PACKED_SCHEMA, pack_facts

HOUR_MS = 3_600_000
POLICY = DetectionPolicy(idle_retention_ms=HOUR_MS)


@pytest.fixture(autouse=True)
def _a_new_worker() -> Iterator[None]:
    operator.kept_buckets.clear()
    yield
    operator.kept_buckets.clear()
    gc.enable()  # a worker leaves that to its daemon


class Job:
    """One bucket of the operator; time passes by hand."""

    def __init__(self) -> None:
        self.tester = TwsTester(BucketProcessor(POLICY), timeMode="None", outputMode="Update")
        self.number = 0

    def batch(self, *facts: Fact, at_ms: int = 500) -> list[Finding]:
        self.number += 1
        # As two tasks would: one brings the facts, one the barrier.
        all_packed = [*pack_facts(facts, 1), *pack_facts([Barrier(self.number, at_ms, at_ms)], 1)]
        rows = [Row(*PACKED_SCHEMA.names)(*packed) for packed in all_packed]
        findings = [FINDINGS.decode(row["finding"]) for row in self.tester.test(0, rows)]
        return [emitted for emitted in findings if not isinstance(emitted, BucketCount | Unproven | OpenTransactions)]

    def kept(self) -> set[int]:
        ((_, bucket),) = operator.kept_buckets.items()
        return set(bucket.producer_ids)

    def entries(self) -> list[int]:
        return sorted(key[0] for key in self.tester.peekMapState("log", 0))


def test_a_stray_write_becomes_a_candidate_and_ends_with_its_marker() -> None:
    job = Job()
    assert job.batch(seen(0, 10, data=5)) == []
    (candidate,) = job.batch()
    assert isinstance(candidate, SpanCandidate)
    assert (candidate.producer_id, candidate.partition) == (PRODUCER, ORDERS)
    (ended,) = job.batch(seen(10, 20, marker=a_marker(12)))
    assert isinstance(ended, SpanEnded)


def test_a_worker_without_a_cache_continues_the_work_of_another() -> None:
    job = Job()
    job.batch(transaction(1, S.COMPLETE_COMMIT), seen(0, 10, data=5))
    operator.kept_buckets.clear()
    (candidate,) = job.batch()
    assert isinstance(candidate, SpanCandidate)
    assert candidate.view is not None
    assert candidate.view.transactional_id == NAME


@pytest.mark.parametrize("call", ["put_entry", "put_head"])
def test_a_failed_attempt_leaves_no_bucket_in_the_cache(call: str) -> None:
    job = Job()
    job.batch(transaction(1, S.ONGOING, ORDERS, producer_id=OTHER))
    error = mock.Mock(side_effect=OSError("the state store failed"))
    with mock.patch.object(operator.SparkLogStore, call, error), pytest.raises(OSError, match="state store"):
        job.batch(seen(0, 10, data=5))
    assert not operator.kept_buckets
    job.batch()
    assert job.kept() == {OTHER}, "the facts of the failed attempt are not applied"


def in_run(monkeypatch: pytest.MonkeyPatch, run_id: str) -> None:
    context = SimpleNamespace(getLocalProperty={operator.RUN_ID: run_id}.get)
    monkeypatch.setattr(operator, "TaskContext", SimpleNamespace(get=lambda: context))


def test_a_new_run_of_the_query_clears_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job()
    in_run(monkeypatch, "the first run")
    job.batch(transaction(1, S.ONGOING, ORDERS))
    assert operator.kept_buckets.keys() == {("the first run", 0)}
    in_run(monkeypatch, "the second run")
    with mock.patch.object(bucket_step, "load", wraps=bucket_step.load) as load:
        job.batch()
    assert load.call_args.args[0] is None, "the first batch of a run reads its state"
    assert operator.kept_buckets.keys() == {("the second run", 0)}


def test_a_batch_that_changes_nothing_writes_nothing() -> None:
    job = Job()
    job.batch(transaction(1, S.ONGOING, ORDERS), seen(0, 10, data=5))
    assert job.entries() == [1]
    job.batch()
    job.batch(transaction(1, S.ONGOING, ORDERS))
    assert job.entries() == [1]


def test_the_log_has_an_end_and_what_is_idle_for_long_leaves_with_it() -> None:
    job = Job()
    prepared = transaction(2, S.ONGOING, ORDERS, producer_id=10, timeout_ms=TWO_PHASE_TIMEOUT_MS)
    job.batch(transaction(1, S.COMPLETE_COMMIT, producer_id=OTHER), prepared, seen(0, 10, data=5))
    job.batch(transaction(3, S.COMPLETE_COMMIT, producer_id=9), at_ms=HOUR_MS)
    longest = 0
    for step in range(MAX_ENTRIES):
        start = 10 * (step + 1)
        job.batch(seen(start, start + 10, data=start + 5), at_ms=HOUR_MS + 500)
        longest = max(longest, len(job.entries()))
    assert longest == MAX_ENTRIES
    assert job.entries() == [MAX_ENTRIES + 1, MAX_ENTRIES + 2], "a snapshot has taken the place of all before it"
    assert job.kept() == {PRODUCER, 9, 10}, "what is open stays, and what was idle for less"
    operator.kept_buckets.clear()
    job.batch(at_ms=HOUR_MS + 500)
    assert job.kept() == {PRODUCER, 9, 10}, "and so for a worker that reads it"


def test_state_of_another_version_is_refused() -> None:
    job = Job()
    job.batch(seen(0, 10, data=5))
    job.tester.updateValueState("head", 0, (b"9" * VERSION_BYTES,))
    operator.kept_buckets.clear()
    with pytest.raises(CheckpointError, match="state in the checkpoint has version 99999999"):
        job.batch()
