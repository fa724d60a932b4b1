"""Whether another leader than the listed one was read: what its connection shows counts, not that there was none."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from support.facts import ORDERS
from txnwatch.state.model.errors import BrokerError
from txnwatch.streaming.client.metadata import PartitionInfo
from txnwatch.streaming.log.fetch import read_ranges
from txnwatch.streaming.log.partition_fold import PartitionFold
from txnwatch.streaming.log.range_reading import Range, RangeReading

LISTED, NOW = 3, 4
KEPT = {"epochs that a restart raises": "", "epochs that a restart keeps": "a connection"}


class FirstAsked:
    """A cluster whose leader has not been asked before; it answers, or cannot be reached."""

    timeout_s, until = 1.0, float("inf")
    known = SimpleNamespace(info=lambda _: PartitionInfo(1, NOW), leader=lambda _: 1)

    def __init__(self, read: RangeReading[Any], kept: str, *, is_reached: bool) -> None:
        self._read, self._kept, self._is_reached = read, kept, is_reached
        self._is_connected = False

    def throttled_s(self, _: int) -> float:
        return 0.0

    def connection_to_keep(self, _: int) -> str:
        return self._kept if self._is_connected else "closed meanwhile"

    def ask(self, requests: Mapping[int, Any], *_: Any) -> dict[int, Any]:
        self._is_connected = self._is_reached
        self._read.gap("the test ends")
        return dict.fromkeys(requests, {} if self._is_reached else BrokerError("it is away"))

    def refresh(self, _: Any) -> Any:
        raise BrokerError("it is away")


@pytest.mark.parametrize("is_reached", [True, False])
@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
def test_another_leader_counts_where_it_may_keep_its_epoch(kept: str, *, is_reached: bool) -> None:
    read = RangeReading(Range(ORDERS, "", 0, 9, LISTED, listed_epoch=LISTED), PartitionFold)
    read_ranges(FirstAsked(read, kept, is_reached=is_reached), [read], patience_s=1.0)  # type: ignore[arg-type]
    assert read.is_led_anew is (is_reached and bool(kept))
