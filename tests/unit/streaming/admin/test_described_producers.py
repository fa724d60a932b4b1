"""What DescribeProducers lacks is None in its rows: Kafka's -1 stays in the request layer."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from txnwatch.state.model.ports import ActiveProducer
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.admin.transaction_requests import described

ORDERS = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("returned", "expected"),
    [((-1, -1), (None, None)), ((0, 0), (0, 0)), ((3, -1), (3, None)), ((-1, 7), (None, 7))],
)
def test_an_absent_coordinator_epoch_or_start_offset_is_none(
    returned: tuple[int, int], expected: tuple[int | None, int | None]
) -> None:
    coordinator_epoch, start_offset = returned
    row = SimpleNamespace(
        producer_id=4,
        producer_epoch=1,
        last_sequence=-1,
        last_timestamp=5,
        coordinator_epoch=coordinator_epoch,
        current_txn_start_offset=start_offset,
    )
    partition = SimpleNamespace(partition_index=0, error_code=0, active_producers=[row])
    response = SimpleNamespace(topics=[SimpleNamespace(name="orders", partitions=[partition])])
    assert described(response, 1) == {ORDERS: (ActiveProducer(4, 1, None, 5, *expected),)}
