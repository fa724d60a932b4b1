"""The longest timeout of a transaction: it is read again in time, and it never becomes shorter."""

from __future__ import annotations

import pytest

from txnwatch.cli.watch_process import Reload
from txnwatch.state.model.values import DurationMs, TimestampMs
from txnwatch.streaming.checks.preflight import BrokerTimeout
from txnwatch.watch.coverage import TimeoutLimit

MINUTE_MS = 60_000


def shows(minutes: int) -> BrokerTimeout:
    return BrokerTimeout(DurationMs(minutes * MINUTE_MS))


HIDDEN = BrokerTimeout(None, problem="broker 2 does not show it")
TWO_PHASE = BrokerTimeout(DurationMs(MINUTE_MS), is_unlimited=True, problem="no timeout limits it")
# The brokers at the start and a minute later, the limit in minutes then (None: no limit), and the line about it.
CHANGES = {
    "the same": ([shows(15)], [shows(15)], 15, None),
    "a broker allows more": ([shows(15), shows(15)], [shows(15), shows(60)], 60, "900000 ms before, 3600000 ms now"),
    "a broker allows less": ([shows(15)], [shows(5)], 15, None),
    "a broker does not show it now": ([shows(15), shows(15)], [shows(15), HIDDEN], 15, None),
    "no broker answers now": ([shows(15)], [], 15, None),
    "two-phase transactions begin": ([shows(15)], [shows(15), TWO_PHASE], None, "900000 ms before, no limit now"),
    "two-phase transactions end": ([TWO_PHASE], [shows(15)], None, None),
    "a broker shows it at last": ([shows(15), HIDDEN], [shows(15), shows(30)], 30, "unknown before, 1800000 ms now"),
    "a broker still does not show it": ([HIDDEN], [HIDDEN], None, None),
}


@pytest.mark.parametrize(("before", "after", "minutes", "line"), CHANGES.values(), ids=CHANGES.keys())
def test_the_limit_is_read_again(
    before: list[BrokerTimeout], after: list[BrokerTimeout], minutes: int | None, line: str | None
) -> None:
    limit = TimeoutLimit(None)
    limit.read(lambda: before)
    limit.refresh(lambda: before, TimestampMs(0))
    assert limit.take_change() is None
    limit.refresh(lambda: after, TimestampMs(MINUTE_MS - 1))
    assert limit.take_change() is None, "asked too early"
    limit.refresh(lambda: after, TimestampMs(MINUTE_MS))
    assert limit.ms == (None if minutes is None else minutes * MINUTE_MS)
    change = limit.take_change()
    assert (change is None) if line is None else line in (change or "")
    assert limit.take_change() is None


def test_a_setting_counts_and_no_broker_is_asked() -> None:
    def nobody() -> list[BrokerTimeout]:
        raise AssertionError

    limit = TimeoutLimit(DurationMs(7))
    limit.read(nobody)
    limit.refresh(nobody, TimestampMs(MINUTE_MS))
    assert (limit.ms, limit.take_change()) == (7, None)


def test_a_short_limit_is_read_again_before_data_can_be_older() -> None:
    limit = TimeoutLimit(None)
    limit.read(lambda: [BrokerTimeout(DurationMs(15_000))])
    limit.refresh(lambda: [BrokerTimeout(DurationMs(15_000))], TimestampMs(0))
    limit.refresh(lambda: [BrokerTimeout(DurationMs(60_000))], TimestampMs(15_000))
    assert limit.ms == 60_000


def test_a_new_limit_starts_the_query_again() -> None:
    reload = Reload(pytest.fail)
    reload.timeout_limit = limit = TimeoutLimit(None)
    limit.read(lambda: [shows(15)])
    limit.refresh(lambda: [shows(15)], TimestampMs(0))
    assert not reload.apply(None)  # type: ignore[arg-type]
    limit.refresh(lambda: [shows(20)], TimestampMs(MINUTE_MS))
    assert reload.apply(None)  # type: ignore[arg-type]
    assert reload.is_due
