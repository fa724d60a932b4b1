"""What the driver does after each micro-batch, and in which order."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from support.log_lines import LogLines
from txnwatch.app import Watch
from txnwatch.config import RunSettings
from txnwatch.state.model.findings import BucketCount, CensusRequest, Finding
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.source.driver_files import NextBarrierDue, read_next_barrier, read_requests
from txnwatch.streaming.source.granted_requests import RereadRequest
from txnwatch.watch import source_link

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    settings = RunSettings(bootstrap_server="k:9092", checkpoint=str(tmp_path))
    watch = Watch(settings, LogLines(), lambda _: None)
    watch.sinks, watch.metrics = mock.Mock(), mock.Mock()
    watch.sinks.ledger.doubted, watch.sinks.ledger.can_wait = (), True
    watch.sinks.watched.return_value = (3, 4)
    return watch


def emitted(watch: Watch) -> list[Finding]:
    """A count of each bucket, and one request to describe a partition."""
    counts = [BucketCount(7, 0, (), (), 0, 0, (), -1, -1, 900) for _ in range(watch.options.buckets)]
    return [*counts, CensusRequest(ORDERS)]


def test_the_requests_of_a_batch_are_written_before_its_next_barrier(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, set[RereadRequest], NextBarrierDue | None]] = []

    def see(name: str) -> None:
        write = getattr(source_link, name)

        def written(*arguments: object) -> None:
            write(*arguments)
            seen.append((name, read_requests(watch.files.rereads), read_next_barrier(watch.files.next_barrier)))

        monkeypatch.setattr(source_link, name, written)

    see("write_requests")
    see("write_next_barrier")
    watch.on_batch(6, emitted(watch))
    requests, due = {RereadRequest(ORDERS, None, CensusRequest(ORDERS).why)}, NextBarrierDue(7, 900)
    assert seen == [("write_requests", requests, None), ("write_next_barrier", requests, due)]


def test_the_sinks_have_a_batch_before_its_next_barrier_is_written(watch: Watch) -> None:
    sinks = watch.sinks
    assert isinstance(sinks, mock.Mock)
    sinks.on_batch.side_effect = OSError("the sink failed")
    with pytest.raises(OSError, match="the sink failed"):
        watch.on_batch(6, emitted(watch))
    assert not watch.files.next_barrier.exists()
