"""Missing evidence is reported once if it persists, and again when it is back."""

from __future__ import annotations

from support.facts import ORDERS, PAYMENTS
from support.log_lines import LogLines
from txnwatch.watch.alerts import PersistentAlert


def test_persistent_missing_evidence_is_reported_once_and_its_end_too() -> None:
    lines = LogLines()
    clock = [0]
    alert = PersistentAlert("not listed", lines, lambda: clock[0])
    for at_ms, partitions in ((0, {ORDERS}), (20_000, {ORDERS}), (31_000, {ORDERS}), (40_000, {ORDERS, PAYMENTS})):
        clock[0] = at_ms
        alert.update(partitions)
    assert lines == ["warning: partitions not listed, so nothing is proven there: orders-0"]
    clock[0] = 41_000
    alert.update(set())
    assert lines[1:] == ["resolved: partitions not listed"]


def test_a_short_time_is_not_reported() -> None:
    lines = LogLines()
    clock = [0]
    alert = PersistentAlert("not listed", lines, lambda: clock[0])
    for at_ms in range(0, 300_000, 10_000):
        clock[0] = at_ms
        alert.update({ORDERS} if at_ms % 20_000 else set())
    assert lines == []
