"""The way of a candidate to its answer: the queues, the number of answers, and the reasons why an answer is unknown.

If one batch cannot confirm all candidates, those that have waited longest are first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from txnwatch.state.evidence.confirmation import Answer
from txnwatch.state.model.findings import SpanCandidate, SpanEnded, TransactionCandidate
from txnwatch.state.model.quantities import DurationMs, TimestampMs
from txnwatch.state.model.verdicts import Verdict

CANDIDATES_AT_A_TIME = 200
GONE_MS = DurationMs(7_200_000)  # the state repeats an unsettled candidate at least once an hour

T = TypeVar("T")


class CandidateQueue(Generic[T]):
    """A queue of the candidates that did not fit into a batch; a key identifies a candidate that is repeated.

    A candidate stays in the queue without being repeated, because the state repeats it only after a growing pause. If
    it has changed in the meantime, the fresh read shows that.
    """

    def __init__(self, same: Callable[[T], Hashable]) -> None:
        self._same = same
        self._waiting: dict[Hashable, tuple[T, TimestampMs]] = {}

    def next(self, candidates: Iterable[T], now_ms: TimestampMs) -> list[T]:
        """The candidates for this batch, in their latest version; the others stay in the queue."""
        self._waiting.update({self._same(candidate): (candidate, now_ms) for candidate in candidates})
        line = [(key, one) for key, (one, emitted_ms) in self._waiting.items() if now_ms - emitted_ms < GONE_MS]
        chosen, left = line[:CANDIDATES_AT_A_TIME], line[CANDIDATES_AT_A_TIME:]
        self._waiting = {key: self._waiting[key] for key, _ in left}
        return [one for _, one in chosen]

    @property
    def waiting(self) -> int:
        """The number of candidates in the queue."""
        return len(self._waiting)

    def drop(self, key: Hashable) -> None:
        """Drops a candidate that is over."""
        self._waiting.pop(key, None)


class ConfirmationQueues:
    """A queue for each kind of candidate.

    Attributes:
        spans: held by no live transaction.
        held: in doubt: held by a transaction that is older than it should be, or with an owner that may be unread.
        transactions: of the time-based rules.
    """

    def __init__(self) -> None:
        self.spans: CandidateQueue[SpanCandidate] = CandidateQueue(_span)
        self.held: CandidateQueue[SpanCandidate] = CandidateQueue(_span)
        self.transactions: CandidateQueue[TransactionCandidate] = CandidateQueue(_transaction)

    @property
    def waiting(self) -> int:
        """The number of candidates in all queues."""
        return sum(line.waiting for line in (self.spans, self.held, self.transactions))

    def over(self, ends: Iterable[SpanEnded]) -> None:
        """Drops spans that have ended."""
        for ended in ends:
            for line in (self.spans, self.held):
                line.drop((ended.partition, ended.producer_id))


def _span(candidate: SpanCandidate) -> Hashable:
    return candidate.partition, candidate.producer_id


def _transaction(candidate: TransactionCandidate) -> Hashable:
    return candidate.verdict, candidate.producer_id


@dataclass(slots=True)
class ReportedReasons:
    """The last reported reason of each candidate; dropped when the candidate does not come again."""

    _reported: dict[str, tuple[str, TimestampMs]] = field(default_factory=dict)

    def is_new(self, candidate: str, why: str, now_ms: TimestampMs) -> bool:
        """Whether this reason was not reported for the candidate yet; it is remembered."""
        if candidate not in self._reported:
            self._reported = {
                one: (reason, at_ms) for one, (reason, at_ms) in self._reported.items() if now_ms - at_ms < GONE_MS
            }
        was, _ = self._reported.get(candidate, ("", 0))
        self._reported[candidate] = (why, now_ms)
        return was != why

    def settle(self, candidate: str) -> None:
        """Forgets a candidate that has an answer."""
        self._reported.pop(candidate, None)


@dataclass(slots=True)
class Answers:
    """Counts the answers about candidates.

    Attributes:
        counts: confirmations by verdict and answer, for the metrics.
        report: called once with the reason why a candidate could be neither confirmed nor refuted.
    """

    counts: Counter[str]
    report: Callable[[str], None]
    reasons: ReportedReasons = field(default_factory=ReportedReasons)

    def is_confirmed(self, verdict: Verdict, what: str, answer: Answer, why: str, now_ms: TimestampMs) -> bool:
        """Counts an answer. An unknown answer is reported once, because missing evidence must be visible."""
        self.counts[f"{verdict}:{answer}"] += 1
        key = f"{verdict} {what}"
        if answer is not Answer.UNKNOWN:
            self.reasons.settle(key)
        elif self.reasons.is_new(key, why, now_ms):
            self.report(f"{key} can be neither confirmed nor refuted now: {why}")
        return answer is Answer.CONFIRMED
