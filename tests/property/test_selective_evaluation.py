"""Evaluating what clocks and leaders concern, against evaluating everything at every barrier: both find the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from support.changing_clocks import Differential
from support.seeds import in_proportion
from txnwatch.state.detection import bucket as buckets
from txnwatch.state.detection import evaluate
from txnwatch.state.detection.broker_clocks import RESERVE_MS
from txnwatch.state.detection.bucket import Concerned
from txnwatch.state.detection.bucket_state import BucketState
from txnwatch.state.detection.proof import BarrierContext
from txnwatch.state.model.clocks import Clock
from txnwatch.state.model.facts import Barrier
from txnwatch.state.model.findings import CoverInDoubt, SpanCandidate, StrayWrite
from txnwatch.state.model.values import TopicPartition
from txnwatch.state.model.verdicts import DetectionPolicy, Verdict

SEEDS, BATCHES = in_proportion(16), 150


def run(first: int = 0) -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in range(first, first + SEEDS):
        both = Differential(seed)
        for _ in range(BATCHES):
            both.batch()
        seen += both.batches.seen
        seen["evaluated"] += both.selective.evaluated
        seen["evaluated of all"] += both.of_all.evaluated
    return seen


def test_both_find_the_same_at_the_same_barrier() -> None:
    seen = run()
    by_time = (Verdict.LATE, Verdict.STUCK_PREPARE, Verdict.LONG_RUNNING)
    others = (SpanCandidate.__name__, CoverInDoubt.__name__, StrayWrite.__name__)
    assert min(seen[name] for name in ("election", "clock set", *map(str, by_time), *others)) > 0, seen
    assert seen["evaluated"] < seen["evaluated of all"] / 2


_take, _is_assumed = buckets.take_clocks, buckets.is_assumed


def concern_nobody(bucket: BucketState, barrier: Barrier) -> Concerned:
    _take(bucket, barrier)
    return Concerned(set(), set())


def _elected(bucket: BucketState, barrier: Barrier) -> tuple[Concerned, set[TopicPartition]]:
    before = dict(bucket.clocks.reigns)
    concerned = _take(bucket, barrier)
    return concerned, {log for log, reign in bucket.clocks.reigns.items() if before.get(log) != reign}


def without_elections(bucket: BucketState, barrier: Barrier) -> Concerned:
    concerned, elected = _elected(bucket, barrier)
    return concerned._replace(to_evaluate=concerned.to_evaluate - elected)


def without_bounds(bucket: BucketState, barrier: Barrier) -> Concerned:
    concerned, elected = _elected(bucket, barrier)
    return concerned._replace(to_evaluate=elected)


def first_bound_is_assumed(bucket: BucketState, broker: int, was: Clock | None, *arguments: Any) -> bool:
    return _is_assumed(bucket, broker, was, *arguments) or was is None


def last_due_times_count(
    bucket: BucketState, broker: int, was: Clock | None, now_is: Clock | None, now_ms: int
) -> bool:
    if was is not None:
        bucket.assumed_ms[broker] = was.now(now_ms).lowest_ms + RESERVE_MS
    return _is_assumed(bucket, broker, was, now_is, now_ms)


def first_due_times_count(
    bucket: BucketState, broker: int, was: Clock | None, now_is: Clock | None, now_ms: int
) -> bool:
    known_ms = bucket.assumed_ms.get(broker)
    is_assumed = _is_assumed(bucket, broker, was, now_is, now_ms)
    if is_assumed and known_ms is not None and now_is is not None:
        bucket.assumed_ms[broker] = known_ms
    return is_assumed


# With a seed to begin with.
_BUGS: dict[str, tuple[Any, str, Callable[..., Any], int]] = {
    "no change concerns anybody": (buckets, "take_clocks", concern_nobody, 2),
    "elections concern nobody": (buckets, "take_clocks", without_elections, 8),
    "bounds concern nobody": (buckets, "take_clocks", without_bounds, 3),
    "a first bound concerns nobody": (buckets, "is_assumed", first_bound_is_assumed, 3),
    "only the last due times count": (buckets, "is_assumed", last_due_times_count, 3),
    "only the first due times count": (buckets, "is_assumed", first_due_times_count, 9),
    "no reserve": (BarrierContext, "assumed_age_ms", lambda _, __, age_ms: age_ms, 3),
    "another policy changes no due time": (DetectionPolicy, "digest", lambda *_: 0, 38),
    "a look that is still to come waits": (evaluate, "is_settled", lambda *_, **__: True, 24),
}


@pytest.mark.parametrize(("where", "name", "bug", "first"), _BUGS.values(), ids=_BUGS.keys())
def test_a_planted_bug_is_found(where: Any, name: str, bug: Callable[..., Any], first: int) -> None:
    with mock.patch.object(where, name, bug), pytest.raises(AssertionError):
        run(first)
