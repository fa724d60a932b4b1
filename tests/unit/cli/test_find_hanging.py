"""The last line of find-hanging: nothing is called well that was not looked at."""

from __future__ import annotations

from typing import cast

import pytest
from msgspec.structs import replace

from support.fake_admin import FakeAdmin
from support.one_look import a_searcher
from txnwatch.cli.find_hanging import AgeFilter, scope, summary
from txnwatch.state.evidence.screening import Search
from txnwatch.state.model.findings import SpanCandidate

MINUTE_MS = 60_000
ALL_CLEAR = "nothing hangs, nothing is late or stuck"


def searched(age: AgeFilter, last_write_ago_ms: int) -> Search:
    """A cluster with one hang, whose last write is so long ago."""
    admin = FakeAdmin()
    (partition,) = admin.create_topic("orders")
    admin.begin("checkout-1", partition)
    admin.lose_markers("checkout-1", commit=True)
    admin.now_ms += last_write_ago_ms
    return a_searcher(admin, lambda: admin.now_ms).search([partition], age.is_wanted)


@pytest.mark.parametrize(
    ("minutes", "ago_ms", "younger"),
    [
        pytest.param(0, 0, 0, id="no age is asked for"),
        pytest.param(15, 15 * MINUTE_MS + 1, 0, id="old enough"),
        pytest.param(15, 15 * MINUTE_MS, 1, id="on the edge"),
        pytest.param(15, 1, 1, id="young"),
    ],
)
def test_a_hang_that_is_too_young_is_counted_and_not_called_well(minutes: int, ago_ms: int, younger: int) -> None:
    age = AgeFilter(minutes)
    found = searched(age, ago_ms)
    assert (len(found.hanging), age.younger) == (1 - younger, younger)
    assert [kept.count for kept in age.left_out()] == [younger] * younger
    text = summary(found, len(found.hanging), "", is_all_judged=not age.younger)
    assert text.startswith(
        "nothing found that is older than --max-transaction-timeout: 1 partition checked" if younger else "1 h"
    )


def test_a_clients_clock_in_the_future_gives_no_age() -> None:
    age = AgeFilter(15)
    future = searched(AgeFilter(0), 0).hanging[0][0]
    ahead = replace(future, span=replace(future.span, last_timestamp_ms=future.data_listed_ms + 1))
    assert age.is_wanted(cast("SpanCandidate", ahead))
    assert age.younger == 0


@pytest.mark.parametrize(
    ("of", "text"),
    [
        ((None, None, None), ""),
        (("orders", None, None), "topic orders"),
        (("orders", 0, None), "orders-0"),
        ((None, None, 2), "the partitions led by broker 2"),
        (("orders", 3, 2), "the partitions led by broker 2 of orders-3"),
    ],
)
def test_the_summary_names_the_selected_partitions(of: tuple[str | None, int | None, int | None], text: str) -> None:
    assert scope(*of) == text


def test_all_is_well_only_where_all_was_looked_at() -> None:
    found = Search()
    rest = "0 partitions checked, 0 open spans held by live transactions"
    assert summary(found, 0, "", is_all_judged=True) == f"{ALL_CLEAR}: {rest}"
    assert summary(found, 0, "topic a", is_all_judged=True) == f"{ALL_CLEAR} on topic a: {rest}"
    assert ALL_CLEAR not in summary(found, 0, "topic a", is_all_judged=False)
    found.not_checked["a-0"] = "away"
    assert summary(found, 0, "topic a", is_all_judged=False).startswith(
        "nothing found on topic a, but not everything was checked: 0 partitions checked, 1 not checked"
    )
