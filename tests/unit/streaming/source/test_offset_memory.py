"""The stream reader decodes each offset once, and plans from the offsets that Spark gives it."""

from __future__ import annotations

import json
from unittest import mock

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from bench.planning import OPTIONS, GrowingLister
from txnwatch.streaming.source.datasource import TransactionsStreamReader
from txnwatch.streaming.source.offsets import SourceOffset


def a_reader() -> TransactionsStreamReader:
    reader = TransactionsStreamReader(OPTIONS)
    reader.plans._lister = GrowingLister(3, growth=10)  # type: ignore[assignment]
    return reader


def through_spark(reader: TransactionsStreamReader, batches: int) -> list[str]:
    """The text of each offset; each crosses to the JVM and back."""
    texts = [json.dumps(reader.initialOffset())]
    for _ in range(batches):
        texts.append(json.dumps(reader.latestOffset(json.loads(texts[-1]), ReadAllAvailable())))
        reader.partitions(json.loads(texts[-2]), json.loads(texts[-1]))
    return texts


def test_an_offset_of_the_running_query_is_not_decoded_again() -> None:
    with mock.patch.object(SourceOffset, "from_json", wraps=SourceOffset.from_json) as decode:
        through_spark(a_reader(), batches=5)
    assert decode.call_count == 1, "only the first offset was not planned by this reader"


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_a_replayed_batch_has_the_plans_of_its_own_offsets(batch: int) -> None:
    reader = a_reader()
    texts = through_spark(reader, batches=5)
    start, end = (json.loads(text) for text in texts[batch - 1 : batch + 1])
    replayed, fresh = (one.partitions(start, end) for one in (reader, a_reader()))
    assert [part.plan for part in replayed] == [part.plan for part in fresh]
    assert replayed[0].plan.end == SourceOffset.from_json(end)
