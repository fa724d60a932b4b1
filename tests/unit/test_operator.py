"""The operator's shell without a JVM: rows in, rows out, state in the two maps that take turns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from support.facts import NAME, ORDERS, OTHER, PRODUCER, a_marker, seen, transaction
from txnwatch.state.emitted import BucketCount, Emitted, OpenTransactions, SpanCandidate, SpanEnded, Unproven
from txnwatch.state.facts import Barrier, Fact
from txnwatch.state.policy import DetectionPolicy
from txnwatch.state.transaction import TransactionState as S
from txnwatch.streaming.emitted_rows import decode_emitted
from txnwatch.streaming.operator import BucketProcessor
from txnwatch.streaming.rows import SCHEMA, fact_rows

HOUR_MS = 3_600_000
POLICY = DetectionPolicy(idle_retention_ms=HOUR_MS)


class Job:
    """One bucket of the operator; time passes by hand."""

    def __init__(self) -> None:
        self.tester = TwsTester(BucketProcessor(POLICY), timeMode="None", outputMode="Update")
        self.number = 0

    def batch(self, *facts: Fact, at_ms: int = 500) -> list[Emitted]:
        self.number += 1
        told: Iterable[dict[str, Any]] = fact_rows([*facts, Barrier(self.number, at_ms, at_ms)], buckets=1)
        rows = [Row(*SCHEMA.names)(*(row.get(name) for name in SCHEMA.names)) for row in told]
        said = [decode_emitted(row["kind"], row["payload"]) for row in self.tester.test(0, rows)]
        return [emitted for emitted in said if not isinstance(emitted, BucketCount | Unproven | OpenTransactions)]

    def kept(self) -> set[int]:
        found: set[int] = set()
        for name in ("producers_even", "producers_odd"):
            found |= {key[0] for key in self.tester.peekMapState(name, 0)}
        return found


def test_a_stray_write_becomes_a_candidate_and_ends_with_its_marker() -> None:
    job = Job()
    assert job.batch(seen(0, 10, data=5)) == []
    (candidate,) = job.batch()
    assert isinstance(candidate, SpanCandidate)
    assert (candidate.producer_id, candidate.partition) == (PRODUCER, ORDERS)
    (ended,) = job.batch(seen(10, 20, marker=a_marker(12)))
    assert isinstance(ended, SpanEnded)


def test_an_idle_producer_keeps_its_name_for_a_while_and_is_then_forgotten() -> None:
    job = Job()
    job.batch(transaction(1, S.ONGOING, ORDERS))
    job.batch(transaction(2, S.COMPLETE_COMMIT))
    job.batch(at_ms=HOUR_MS + 1)
    job.batch(seen(0, 10, data=5), at_ms=HOUR_MS + 2)
    (candidate,) = job.batch(at_ms=HOUR_MS + 3)
    assert isinstance(candidate, SpanCandidate)
    assert candidate.view is not None
    assert candidate.view.transactional_id == NAME


@pytest.mark.parametrize("hours", [2, 3, 50], ids=["two turns", "three turns", "a long pause"])
def test_what_is_idle_is_gone_after_two_turns_and_what_is_open_stays(hours: int) -> None:
    job = Job()
    job.batch(transaction(1, S.COMPLETE_COMMIT, producer_id=OTHER), seen(0, 10, data=5), seen(10, 20, data=12))
    assert job.kept() == {PRODUCER, OTHER}
    for hour in (1, hours) if hours < 50 else (hours,):
        job.batch(at_ms=hour * HOUR_MS)
    assert job.kept() == {PRODUCER}
    assert job.batch(seen(20, 30, marker=a_marker(25)), at_ms=hours * HOUR_MS + 1), "and remembers that it was said"


def test_an_older_copy_in_the_other_map_is_never_read() -> None:
    job = Job()
    job.batch(seen(0, 10, data=5))
    job.batch(seen(10, 20, marker=a_marker(12)), at_ms=HOUR_MS + 1)
    assert job.batch(at_ms=HOUR_MS + 2) == []
    assert job.batch(at_ms=HOUR_MS + 3) == []
