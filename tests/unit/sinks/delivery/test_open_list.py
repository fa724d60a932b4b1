"""What is open, shown as a whole: soon when it changes, now and then when it does not, and never kept."""

from __future__ import annotations

from collections.abc import Sequence

from txnwatch.sinks.delivery.outbox import SHOWN, OpenList
from txnwatch.state.model.errors import SinkError
from txnwatch.state.model.findings import OpenTransaction, OpenTransactions


class Board:
    def __init__(self) -> None:
        self.shown: list[list[int]] = []
        self.is_away = False

    def show(self, transactions: Sequence[OpenTransaction]) -> None:
        if self.is_away:
            raise SinkError("away")
        self.shown.append([transaction.producer_id for transaction in transactions])


def opened(*producer_ids: int) -> OpenTransactions:
    return OpenTransactions(
        0, tuple(OpenTransaction(one, None, "Ongoing", 1_000 + one, None, ()) for one in producer_ids)
    )


def test_a_change_is_shown_oldest_first_and_at_most_once_a_second() -> None:
    board = Board()
    shown = OpenList(board.show)
    shown.on_batch([opened(5, 7), opened(6)], 0)
    shown.on_batch([opened(5)], 999)
    shown.on_batch([opened(5)], 1_000)
    shown.on_batch([], 2_000)
    assert board.shown == [[5, 6, 7], [5], []]


def test_an_unchanged_list_is_published_again_before_it_expires() -> None:
    board = Board()
    shown = OpenList(board.show)
    for second in range(41):
        shown.on_batch([opened(5)], 1_000 * second)
    assert board.shown == [[5], [5], [5]]


def test_only_so_many_are_shown() -> None:
    board = Board()
    OpenList(board.show).on_batch([opened(*range(SHOWN + 5))], 0)
    assert board.shown == [list(range(SHOWN))]


def test_a_board_that_is_away_costs_a_batch_a_try_now_and_then() -> None:
    board = Board()
    board.is_away = True
    shown = OpenList(board.show)
    shown.on_batch([opened(5)], 0)
    board.is_away = False
    shown.on_batch([opened(5)], 29_999)
    assert board.shown == []
    shown.on_batch([opened(5)], 30_000)
    assert board.shown == [[5]]
