"""Confirms candidates by a fresh read before anything is published.

The reads are plans, in the order partition, coordinator, partition. All candidates are read in parallel, and
state/evidence/confirmation.py decides. The ledger, the abort and the one-shot commands share them. The candidates of
the ledger wait in queues. own_findings.py keeps what is confirmed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from txnwatch.state.evidence.confirmation import (
    Answer,
    SpanConfirmation,
    TransactionConfirmation,
    assess_overdue,
    assess_span,
    assess_transaction,
    coordinator_reading,
    held_by,
    is_disowned,
    names_in_log,
    unanswered,
)
from txnwatch.state.evidence.proven_hang import ProvenHang, with_history
from txnwatch.state.evidence.screening import screen
from txnwatch.state.incidents.wanted import (
    DescribeTransactions,
    ListTransactions,
    Now,
    Plan,
    ReadHistories,
    ReadLogEpochs,
    ReadPartitions,
    Say,
    ask,
)
from txnwatch.state.model.findings import SpanCandidate, SpanEnded, TransactionCandidate
from txnwatch.state.model.incident import ExpectedOutcome
from txnwatch.state.model.values import DurationMs, SpanStart, TimestampMs
from txnwatch.state.model.verdicts import Verdict
from txnwatch.state.text import Said


def confirm_spans(
    candidates: Sequence[SpanCandidate],
) -> Plan[list[tuple[SpanCandidate, SpanConfirmation]]]:
    """Confirms hanging candidates; the proof depends on the order of the reads."""
    if not candidates:
        return []
    partitions = list(dict.fromkeys(candidate.partition for candidate in candidates))
    before = yield from ask(ReadPartitions(partitions))
    listing = yield from ask(ListTransactions([candidate.producer_id for candidate in candidates]))
    names = {row.transactional_id for row in listing.transactions}
    names = names.union(*map(names_in_log, candidates))
    descriptions = yield from ask(DescribeTransactions(sorted(names)))
    after = yield from ask(ReadPartitions(partitions))
    logs = sorted({candidate.view.log for candidate in candidates if candidate.view is not None})
    epochs = (yield from ask(ReadLogEpochs(logs))) if logs else {}
    return [
        (
            candidate,
            assess_span(
                candidate,
                before[candidate.partition],
                coordinator_reading(candidate, descriptions, listing),
                after[candidate.partition],
                epochs[candidate.view.log] if candidate.view is not None else None,
            ),
        )
        for candidate in candidates
    ]


def confirm_contradicted(
    doubted: Sequence[SpanCandidate],
) -> Plan[list[tuple[SpanCandidate, SpanConfirmation]]]:
    """Confirms spans for which the log proves nothing: the coordinators must disown them in two reads in a row.

    By the log, a live transaction holds the span; or the owner of its producer id is not known (then the candidate has
    no view), while a part of the log is not read. So the fresh answers must be the whole proof: the second read of the
    partition and of its coordinator comes after the first read of both.
    """
    names = sorted({candidate.view.transactional_id for candidate in doubted if candidate.view is not None})
    descriptions = (yield from ask(DescribeTransactions(names))) if names else {}
    not_held = [
        candidate
        for candidate in doubted
        if candidate.view is None or is_disowned(descriptions[candidate.view.transactional_id], candidate)
    ]
    looked_at = yield from confirm_spans(not_held)
    unknown = [(candidate, first) for candidate, first in looked_at if first.answer is Answer.UNKNOWN]
    again = [candidate for candidate, first in looked_at if first.answer is Answer.CONFIRMED]
    return [*unknown, *(yield from confirm_spans(again))]


def confirm_asked(
    asked: Sequence[SpanCandidate], now_ms: TimestampMs
) -> Plan[list[tuple[SpanCandidate, SpanConfirmation]]]:
    """Confirms open spans about which no log was read: most of them are healthy, so the coordinators are asked first.

    A span that a live transaction holds is refuted without a read of its partition. The others need the whole proof.
    """
    if not asked:
        return []
    listing = yield from ask(ListTransactions([span.producer_id for span in asked]))
    owners = yield from ask(DescribeTransactions(sorted({row.transactional_id for row in listing.transactions})))
    screened = screen(asked, owners, listing, now_ms)
    held = [(span, held_by(owner)) for span, owner in screened.covered]
    unknown = [(span, unanswered(why)) for span, why in screened.unproven]
    return [*held, *unknown, *(yield from confirm_contradicted(screened.candidates))]


def confirm_overdue(
    overdue: Sequence[SpanCandidate],
) -> Plan[list[tuple[SpanCandidate, SpanConfirmation]]]:
    """Confirms spans that are open for too long by a fresh read of their partitions; no coordinator is asked."""
    readings = (yield from ask(ReadPartitions({candidate.partition for candidate in overdue}))) if overdue else {}
    return [(candidate, assess_overdue(candidate, readings[candidate.partition])) for candidate in overdue]


def with_histories(
    confirmed: Sequence[tuple[SpanCandidate, SpanConfirmation]],
) -> Plan[list[tuple[SpanCandidate, SpanConfirmation]]]:
    """Confirmations with what the partition logs show at and below the spans' starts; outcomes depend on it."""
    starts = [start_at_leader(candidate, confirmation) for candidate, confirmation in confirmed]
    histories = (yield from ask(ReadHistories(starts))) if starts else {}
    return [
        (candidate, replace(confirmation, history=histories[start]))
        for (candidate, confirmation), start in zip(confirmed, starts, strict=True)
    ]


def start_at_leader(candidate: SpanCandidate, confirmation: SpanConfirmation) -> SpanStart:
    """Where a confirmed span begins, according to its leader."""
    assert confirmation.producer is not None
    return candidate.start._replace(start_offset=confirmation.producer.start_offset)


def confirm_transactions(
    candidates: Sequence[TransactionCandidate],
) -> Plan[list[tuple[TransactionCandidate, TransactionConfirmation]]]:
    """Confirms candidates of the time-based rules."""
    if not candidates:
        return []
    descriptions = yield from ask(DescribeTransactions([candidate.view.transactional_id for candidate in candidates]))
    return [
        (candidate, assess_transaction(candidate, descriptions[candidate.view.transactional_id]))
        for candidate in candidates
    ]


def read_anew(evidence: ProvenHang, confirmation: SpanConfirmation) -> Plan[tuple[ProvenHang, SpanConfirmation]]:
    """The evidence after another read of the span's start in its partition's log, right before an action.

    The outcome stays only if the log leads to it again, and if the state's current view of the coordinator does not
    lead to another one. Without an answer from the log, the confirmation becomes UNKNOWN.
    """
    row, candidate = confirmation.producer, evidence.candidate
    if row is None or evidence.outcome == ExpectedOutcome.UNKNOWN:
        return evidence, confirmation
    ((_, whole),) = yield from with_histories([(candidate, confirmation)])
    history = whole.history
    if history.problem is not None:
        return evidence, replace(confirmation, answer=Answer.UNKNOWN, why=history.problem)
    return with_history(evidence, row, history), confirmation


# The way of a candidate to its answer: the queues, the number of answers, and the reasons why an answer is unknown.
#
# If one batch cannot confirm all candidates, those that have waited longest are first.

CANDIDATES_AT_A_TIME = 200
GONE_MS = DurationMs(7_200_000)  # the state repeats an unsettled candidate at least once an hour
LASTING_MS = DurationMs(30_000)

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
        line = [
            (key, candidate) for key, (candidate, emitted_ms) in self._waiting.items() if now_ms - emitted_ms < GONE_MS
        ]
        chosen, left = line[:CANDIDATES_AT_A_TIME], line[CANDIDATES_AT_A_TIME:]
        self._waiting = {key: self._waiting[key] for key, _ in left}
        return [candidate for _, candidate in chosen]

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
class Undecided:
    """Open data about which the last fresh read has proven nothing, and why. It may hang.

    Law: a leader election alone is not told. So an answer counts if nothing better has come for `LASTING_MS`.
    """

    _spans: dict[Hashable, tuple[str, TimestampMs, TimestampMs]] = field(default_factory=dict)

    def take(self, candidate: SpanCandidate, confirmation: SpanConfirmation, now_ms: TimestampMs) -> None:
        """Takes the answer about a span."""
        key = _span(candidate)
        if confirmation.answer is not Answer.UNKNOWN:
            self._spans.pop(key, None)
            return
        since_ms = self._spans[key][1] if key in self._spans else now_ms
        self._spans[key] = f"{candidate.start}: {confirmation.why}", since_ms, now_ms

    def over(self, ends: Iterable[SpanEnded]) -> None:
        """Drops spans that have ended."""
        for ended in ends:
            self._spans.pop((ended.partition, ended.producer_id), None)

    def lasting(self, now_ms: TimestampMs) -> list[str]:
        """The spans that are undecided for long, with the reasons, the oldest first."""
        self._spans = {key: doubt for key, doubt in self._spans.items() if now_ms - doubt[2] < GONE_MS}
        lasting = [(since_ms, text) for text, since_ms, _ in self._spans.values() if now_ms - since_ms >= LASTING_MS]
        return [text for _, text in sorted(lasting)]


@dataclass(slots=True)
class CountedConfirmations:
    """Counts the confirmations of candidates.

    Attributes:
        counts: confirmations by verdict and answer, for the metrics.
        said: the candidates without an answer; one that does not come again is forgotten.
        undecided: the spans among them.
    """

    counts: Counter[str]
    said: Said[str] = field(default_factory=lambda: Said(GONE_MS))
    undecided: Undecided = field(default_factory=Undecided)

    def is_confirmed(self, verdict: Verdict, what: str, answer: Answer, why: str) -> Plan[bool]:
        """Counts an answer. An unknown answer is reported once, because missing evidence must be visible."""
        self.counts[f"{verdict}:{answer}"] += 1
        key = f"{verdict} {what}"
        if answer is not Answer.UNKNOWN:
            self.said.is_over(key)
        elif self.said.is_new(key, why, (yield from ask(Now()))):
            yield Say(f"{key} can be neither confirmed nor refuted now: {why}")
        return answer is Answer.CONFIRMED
