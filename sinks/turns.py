"""Whose turn it is: of more candidates than one batch confirms, those that have waited longest. Nobody starves."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from txnwatch.state.emitted import SpanCandidate, TransactionCandidate

CANDIDATES_AT_A_TIME = 200
GONE_MS = 7_200_000  # what is not settled is said again, at least once an hour

T = TypeVar("T")


class _Line(Generic[T]):
    """Those that were left out, by what makes them the same when they are said again.

    The state repeats a candidate after a pause, so between two turns there are batches without it.
    """

    def __init__(self, same: Callable[[T], Hashable]) -> None:
        self._same = same
        self._waiting: dict[Hashable, int] = {}

    def next(self, candidates: Iterable[T], now_ms: int) -> list[T]:
        """As many as one batch confirms; the others stand in line."""
        said = {self._same(candidate): candidate for candidate in candidates}
        line = [*(one for one in self._waiting if one in said), *(one for one in said if one not in self._waiting)]
        chosen, left = line[:CANDIDATES_AT_A_TIME], line[CANDIDATES_AT_A_TIME:]
        for one in chosen:
            self._waiting.pop(one, None)
        self._waiting.update(dict.fromkeys(left, now_ms))
        self._waiting = {one: at_ms for one, at_ms in self._waiting.items() if now_ms - at_ms < GONE_MS}
        return [said[one] for one in chosen]


class Turns:
    """A line for each kind of candidate.

    Attributes:
        spans: held by no live transaction.
        held: held by one that is older than it should be.
        transactions: of the rules that rest on time.
    """

    def __init__(self) -> None:
        self.spans: _Line[SpanCandidate] = _Line(_span)
        self.held: _Line[SpanCandidate] = _Line(_span)
        self.transactions: _Line[TransactionCandidate] = _Line(_transaction)


def _span(candidate: SpanCandidate) -> Hashable:
    return candidate.partition, candidate.producer_id


def _transaction(candidate: TransactionCandidate) -> Hashable:
    return candidate.verdict, candidate.producer_id
