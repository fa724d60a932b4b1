"""`explain` on a partition with many open transactions: a bounded answer, and work in proportion to them."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Iterator

import pytest

from support.fake_admin import FakeAdmin
from support.one_look import a_searcher
from txnwatch.cli.explanation import Explanation, of_partition
from txnwatch.state.evidence.screening import OwnerViews, screen
from txnwatch.state.model.ports import ListedTransaction, TransactionListing
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.values import log_numbered
from txnwatch.state.telling.commands import Origin

ORIGIN = Origin("cluster", "a:1")
OTHERS = 10


def explained(count: int, hanging: int) -> tuple[Explanation, int]:
    """A partition with so many open transactions, of which the last ones hang; and the calls that it takes."""
    admin = FakeAdmin()
    (partition,) = admin.create_topic("orders")
    for number in range(count):
        admin.begin(f"id-{number}", partition)
        if number >= count - hanging:
            admin.lose_markers(f"id-{number}", commit=True)
    views = OwnerViews(epochs={log_numbered(0): 0})
    searcher = a_searcher(admin, lambda: admin.now_ms, read_log=lambda _: views)
    profile = cProfile.Profile()
    found = profile.runcall(lambda: of_partition(ORIGIN, partition, searcher.search([partition]), admin.now_ms))
    return found, pstats.Stats(profile).total_calls  # type: ignore[attr-defined]


@pytest.mark.parametrize("hanging", [0, 3, 625])
def test_the_answer_names_the_worst_and_counts_the_others(hanging: int) -> None:
    found, _ = explained(625, hanging)
    assert len(found.text) < OTHERS + 10
    others = [line for line in found.text if line.startswith("Also open")]
    assert len(others) == OTHERS
    assert sum("HANGING" in line for line in others) == min(hanging, OTHERS)
    assert all("HANGING" in line for line in others[: min(hanging, OTHERS)])
    more = next(line for line in found.text if line.startswith("And "))
    assert more.startswith(f"And {625 - 1 - OTHERS} more")
    assert "`txnwatch describe-producers --topic orders --partition 0 --bootstrap-server a:1` lists them." in more


def test_the_work_grows_with_the_open_transactions_and_not_with_their_square() -> None:
    for hanging in (0, 625):
        (_, few), (_, many) = explained(156, min(hanging, 156)), explained(625, hanging)
        assert many < 4.5 * few


class CountedRows(tuple[ListedTransaction, ...]):
    """Rows that count how often they are read."""

    __slots__ = ()
    read = 0

    def __iter__(self) -> Iterator[ListedTransaction]:
        for row in super().__iter__():
            CountedRows.read += 1
            yield row


def test_the_ids_of_the_cluster_are_read_once_and_not_for_each_open_transaction() -> None:
    admin = FakeAdmin()
    (partition,) = admin.create_topic("orders")
    for number in range(100):
        admin.begin(f"id-{number}", partition)
    spans = [span for span, _ in a_searcher(admin, lambda: admin.now_ms).search([partition]).covered]
    own = admin.list_transactions([]).transactions
    others = (ListedTransaction(f"other-{n}", 10_000 + n, TransactionState.EMPTY, 1) for n in range(5_000))
    rows = CountedRows((*own, *others))
    descriptions = admin.describe_transactions([row.transactional_id for row in own])
    assert len(screen(spans, descriptions, TransactionListing(rows), admin.now_ms).covered) == 100
    assert CountedRows.read == len(rows)
