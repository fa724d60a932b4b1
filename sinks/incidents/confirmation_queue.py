"""Whose turn it is: of more candidates than one batch confirms, those that have waited longest. Nobody starves."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from txnwatch.state.model.findings import SpanCandidate, SpanEnded, TransactionCandidate

CANDIDATES_AT_A_TIME = 200
GONE_MS = 7_200_000  # what is not settled is said again, at least once an hour

T = TypeVar("T")


class _Line(Generic[T]):
    """Those that were left out, by what makes them the same when they are said again.

    They need not be said again: the state repeats a candidate after a growing pause. What has become of one that stands
    in line, the fresh read sees.
    """

    def __init__(self, same: Callable[[T], Hashable]) -> None:
        self._same = same
        self._waiting: dict[Hashable, tuple[T, int]] = {}

    def next(self, candidates: Iterable[T], now_ms: int) -> list[T]:
        """As many as one batch confirms, as they were said last; the others stand in line."""
        self._waiting.update({self._same(candidate): (candidate, now_ms) for candidate in candidates})
        line = [(key, one) for key, (one, said_ms) in self._waiting.items() if now_ms - said_ms < GONE_MS]
        chosen, left = line[:CANDIDATES_AT_A_TIME], line[CANDIDATES_AT_A_TIME:]
        self._waiting = {key: self._waiting[key] for key, _ in left}
        return [one for _, one in chosen]

    @property
    def waiting(self) -> int:
        """How many stand in line."""
        return len(self._waiting)

    def drop(self, key: Hashable) -> None:
        """It is over."""
        self._waiting.pop(key, None)


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

    @property
    def waiting(self) -> int:
        """How many stand in line."""
        return sum(line.waiting for line in (self.spans, self.held, self.transactions))

    def over(self, ends: Iterable[SpanEnded]) -> None:
        """These spans are over."""
        for ended in ends:
            for line in (self.spans, self.held):
                line.drop((ended.partition, ended.producer_id))


def _span(candidate: SpanCandidate) -> Hashable:
    return candidate.partition, candidate.producer_id


def _transaction(candidate: TransactionCandidate) -> Hashable:
    return candidate.verdict, candidate.producer_id
