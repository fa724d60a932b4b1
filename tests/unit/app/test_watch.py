"""What the driver does after each micro-batch, and in which order."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from support.log_lines import LogLines
from txnwatch.app import Watch
from txnwatch.config import RunSettings
from txnwatch.named_files import NamedFiles
from txnwatch.state.model.findings import BucketCount, CensusReason, CensusRequest, CensusResult, Finding, Unproven
from txnwatch.state.model.values import NEVER_MS, TopicPartition
from txnwatch.streaming.source.driver_file import DriverRequests, NextBarrierDue, read_driver_file
from txnwatch.streaming.source.planner import RereadRequest

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    settings = RunSettings(bootstrap_server="k:9092", checkpoint=str(tmp_path))
    watch = Watch(settings, NamedFiles(), LogLines(), lambda _: None)
    watch.sinks, watch.metrics = mock.Mock(), mock.Mock()
    watch.sinks.ledger.refuted, watch.sinks.ledger.due_ms = (), NEVER_MS
    watch.sinks.ledger.outboxes = ()
    watch.sinks.watched.return_value = (3, 4)
    return watch


def emitted(watch: Watch) -> list[Finding]:
    """A count of each bucket, and one request to describe a partition."""
    counts = [BucketCount(7, 0, (), (), 0, 0, (), -1, -1, 900, 0) for _ in range(watch.options.buckets)]
    return [*counts, CensusRequest(ORDERS)]


def test_the_source_is_told_what_a_batch_wants_and_when_the_next_barrier_is_due(watch: Watch) -> None:
    watch.on_batch(6, emitted(watch))
    requests = frozenset([RereadRequest(ORDERS, None, CensusRequest(ORDERS).why)])
    assert read_driver_file(str(watch.files.driver_file)) == DriverRequests(requests, NextBarrierDue(7, 900))


def test_a_partition_whose_census_has_failed_is_described_again_until_it_has_an_answer(watch: Watch) -> None:
    failed = frozenset({RereadRequest(ORDERS, None, CensusReason.FAILED)})
    results = {CensusResult((ORDERS,)): failed, None: failed, CensusResult(described=(ORDERS,)): frozenset()}
    for result, wanted in results.items():
        watch.on_batch(6, [Unproven(()), *([result] if result is not None else [])])
        assert read_driver_file(str(watch.files.driver_file)).requests == wanted


def test_the_sinks_have_a_batch_before_the_source_is_told(watch: Watch) -> None:
    sinks = watch.sinks
    assert isinstance(sinks, mock.Mock)
    sinks.on_batch.side_effect = OSError("the sink failed")
    with pytest.raises(OSError, match="the sink failed"):
        watch.on_batch(6, emitted(watch))
    assert not watch.files.driver_file.exists()
