"""The search of `find-hanging`: reads partitions and coordinators in the order of the proof.

Apart: it reads through ports, so tests search without a cluster; cli/compose.py gives it a real one.

state/evidence/screening.py has the proof and its steps P1, C1, P2, C2, P3. A partition or coordinator that does not
answer does not stop the search: it is in `not_checked`, with the reason. A read that fails for a temporary reason (a
leader or a coordinator moved) is repeated a few times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from txnwatch.state.evidence.confirmation import Answer, SpanConfirmation
from txnwatch.state.evidence.screening import (
    Claim,
    OwnerViews,
    Search,
    claims,
    held_by,
    open_spans,
    overdue_transaction,
    screen,
    settled,
)
from txnwatch.state.incidents.confirm import confirm_spans, confirm_transactions, with_histories
from txnwatch.state.incidents.wanted import Plan, PlanRunner, T
from txnwatch.state.model.findings import SpanCandidate, TransactionCandidate
from txnwatch.state.model.partition_replicas import NONE_AT_RISK, PlacesAtRisk
from txnwatch.state.model.ports import TransactionAdmin, TransactionListing
from txnwatch.state.model.transaction import (
    DescribedTransaction,
    NotDescribed,
    TransactionDescription,
    TransactionView,
)
from txnwatch.state.model.values import DurationMs, Problem, ProducerId, TimestampMs, TopicPartition
from txnwatch.state.model.verdicts import RULE_OF, DetectionPolicy, Verdict

_AT_ONCE = 1_000
_TRIES = 3
_PAUSE_S = 0.2
_NO_STAMP = Problem(
    "its coordinator took over later and has written no timestamp; `txnwatch run` measures the time itself"
)
_MOVED = "its coordinator moved to another broker during the request"

ReadLog = Callable[[Collection[ProducerId]], OwnerViews]
IsOpenForLonger = Callable[[DescribedTransaction, DurationMs], bool | Problem]


@dataclass(slots=True)
class Searcher:
    """Searches once.

    Attributes:
        read_log: reads `__transaction_state` for the owners of some producer ids.
        is_open_for_longer: whether a transaction has been open for longer than so many milliseconds by the clock of its
            coordinator; a problem is the reason why that is not known.
        now_ms: local clock.
        progress: called with the number of partitions that have been read.
        hidden: returns the hidden participants of live transactions, with the reason.
        foreign_topics: regular expression; topics that match are copies of another cluster's topics.
        at_risk: returns which of some partitions, and of the log's partitions of some ids, are at risk.
    """

    admin: TransactionAdmin
    read_log: ReadLog
    is_open_for_longer: IsOpenForLonger
    now_ms: Callable[[], TimestampMs]
    policy: DetectionPolicy = field(default_factory=DetectionPolicy)
    progress: Callable[[int], None] = lambda _: None
    hidden: Callable[[Sequence[TransactionDescription]], Mapping[str, Problem]] = lambda _: {}
    foreign_topics: str | None = None
    at_risk: Callable[[Collection[TopicPartition], Collection[str]], PlacesAtRisk] = lambda *_: NONE_AT_RISK

    def _run(self, plan: Plan[T]) -> T:
        return PlanRunner(self.admin, self.now_ms).run(plan)

    def search(
        self, partitions: Sequence[TopicPartition], is_wanted: Callable[[SpanCandidate], bool] = lambda _: True
    ) -> Search:
        """Searches the partitions and the coordinators; `is_wanted` filters open spans before anything is proven."""
        result = Search(policy=self.policy)
        spans = [span for span in self._open(partitions, result) if is_wanted(span)]
        for attempt in range(_TRIES):
            is_last = attempt == _TRIES - 1
            spans = self._prove(spans, result, is_first=attempt == 0, is_last=is_last)
            if not spans or is_last:
                break
            time.sleep(_PAUSE_S)
            again = list(dict.fromkeys(span.partition for span in spans))
            kept = {(span.partition, span.producer_id) for span in spans}
            spans = [span for span in self._open(again, result) if (span.partition, span.producer_id) in kept]
        return self._with_replicas(result, result.found)

    def _with_replicas(self, result: Search, found: Iterable[tuple[Collection[TopicPartition], str | None]]) -> Search:
        """The result with the replicas of the partitions of what was found."""
        held = list(found)
        ids = {name for _, name in held if name is not None}
        if held:
            result.at_risk = self.at_risk({at for places, _ in held for at in places}, ids)
        return result

    def _open(self, partitions: Sequence[TopicPartition], result: Search) -> list[SpanCandidate]:
        """Step P1: the open spans of the partitions."""
        for first in range(0, len(partitions), _AT_ONCE):
            chunk = partitions[first : first + _AT_ONCE]
            result.readings.update(self.admin.read_partitions(chunk))
            self.progress(len(chunk))
        for partition in partitions:
            problem = result.readings[partition].problem
            if problem is not None:
                result.not_checked[str(partition)] = str(problem)
        return open_spans((result.readings[partition] for partition in partitions), self.now_ms())

    def _prove(
        self, spans: list[SpanCandidate], result: Search, *, is_first: bool, is_last: bool
    ) -> list[SpanCandidate]:
        """Steps C1 to P3; returns the spans that need another attempt."""
        asked = [] if is_first else [span.producer_id for span in spans]
        listing = self.admin.list_transactions(asked)  # the first time all: `_judge_times` needs them too
        live = [row.transactional_id for row in listing.transactions if row.state.is_live] if is_first else []
        ids = {span.producer_id for span in spans}
        owners = [row.transactional_id for row in listing.transactions if row.producer_id in ids]
        descriptions = self.admin.describe_transactions(sorted({*live, *owners}))
        screened = screen(spans, descriptions, listing, self.now_ms(), self.foreign_topics)
        result.covered += screened.covered
        described = [descriptions[name] for name in live]
        log = self._log(screened.candidates, described)
        if is_first:
            result.has_ids = listing.has_ids
            if listing.problems and (spans or listing.has_ids):
                result.not_checked["transactions of some coordinators"] = "; ".join(map(str, listing.problems))
            self._judge_times(described, log, result)
            result.not_checked.update({what: str(why) for what, why in self.hidden(described).items()})
        again = self._confirm(screened.candidates, listing, log, result)
        again += [(span, why) for span, why in screened.unproven]
        if is_last:
            result.unproven = again
            for span, why in again:
                result.not_checked[f"{span.partition} producer id {span.producer_id}"] = f"not proven: {why}"
        return [span for span, _ in again]

    def judge(self, described: DescribedTransaction) -> Search:
        """Checks one live transaction against its own timeout."""
        result = Search(policy=self.policy)
        self._judge_times([described], self._log((), [described]), result)
        return self._with_replicas(result, [held_by(described)] if described.is_live else [])

    def _log(self, candidates: Sequence[SpanCandidate], live: Sequence[TransactionDescription]) -> OwnerViews:
        """What `__transaction_state` adds to the coordinators' answers: former owners, and broker timestamps."""
        wanted = {candidate.producer_id for candidate in candidates}
        wanted |= {
            transaction.producer_id
            for transaction in live
            if isinstance(transaction, DescribedTransaction) and self._needs_log(transaction)
        }
        return self.read_log(wanted) if wanted else OwnerViews()

    def _needs_log(self, described: DescribedTransaction) -> bool:
        if not described.is_live:
            return False
        return described.state.is_prepare or any(
            RULE_OF[claim.verdict].is_past_timeout
            for claim in claims(described, None, None, self.policy, self.now_ms())
        )

    def _confirm(
        self,
        candidates: Sequence[SpanCandidate],
        listing: TransactionListing,
        log: OwnerViews,
        result: Search,
    ) -> list[tuple[SpanCandidate, str]]:
        """Steps P2, C2, P3, with the owners from the log; returns the spans that stay unknown."""
        listed = {row.producer_id for row in listing.transactions}
        named = [log.name(candidate) for candidate in candidates]
        again: list[tuple[SpanCandidate, str]] = []
        proven: list[tuple[SpanCandidate, SpanConfirmation]] = []
        for candidate, confirmation in self._run(confirm_spans(named)):
            answer = settled(candidate, confirmation)
            is_named = candidate.view is not None or candidate.producer_id in listed
            if answer.answer is Answer.CONFIRMED and log.problems and not is_named:
                again.append((candidate, _unread_owner(log.problems)))
            elif answer.answer is Answer.CONFIRMED:
                proven.append((candidate, answer))
            elif answer.answer is Answer.UNKNOWN:
                again.append((candidate, answer.why))
        result.hanging += self._run(with_histories(proven))
        return again

    def _judge_times(self, live: Sequence[TransactionDescription], log: OwnerViews, result: Search) -> None:
        """Checks every live transaction against its own timeout."""
        candidates: list[TransactionCandidate] = []
        coordinators: dict[str, int] = {}
        for transaction in live:
            if isinstance(transaction, NotDescribed):
                result.not_checked[_named(transaction.transactional_id)] = str(transaction.problem)
            if not isinstance(transaction, DescribedTransaction) or not transaction.is_live:
                continue
            coordinators[transaction.transactional_id] = transaction.coordinator
            claim, view, why_not = self._proven(transaction, log)
            if why_not is not None:
                result.not_checked[_named(transaction.transactional_id)] = why_not
            if claim is not None and view is not None:
                candidates.append(overdue_transaction(transaction.producer_id, view, claim, self.now_ms()))
        for candidate, confirmed in self._run(confirm_transactions(candidates)):
            name = candidate.view.transactional_id
            has_moved = confirmed.description is not None and confirmed.description.coordinator != coordinators[name]
            if confirmed.answer is Answer.CONFIRMED and not has_moved:
                result.overdue.append((candidate, confirmed))
            elif confirmed.answer is not Answer.REFUTED:
                result.not_checked[_named(name)] = confirmed.why or _MOVED

    def _proven(
        self, described: DescribedTransaction, log: OwnerViews
    ) -> tuple[Claim | None, TransactionView | None, str | None]:
        """The worst claim that the coordinator confirms, with its view; and why that, or a worse one, is not known."""
        logged = log.views.get(described.producer_id)
        view = logged if described.state.is_prepare else described
        if view is None:  # only the log has the time when an outcome was decided
            why = next(iter(log.problems.values()), "its record is not in the log")
            return None, None, f"{described.state} for an unknown time: {why}"
        led = log.led.get(logged.log) if logged is not None else None
        led = led if led is not None and led.broker == described.coordinator else None
        doubts: dict[Verdict, str] = {}
        for claim in claims(view, led, log.epoch_of(logged), self.policy, self.now_ms()):
            answer = self._is_confirmed(described, claim)
            if answer is True:
                doubts.pop(claim.verdict, None)
                return claim, view, next(iter(doubts.values()), None)
            if isinstance(answer, Problem):
                doubt = f"{claim.verdict} by this machine's clock, but not proven by its coordinator's clock: {answer}"
                doubts.setdefault(claim.verdict, doubt)
        return None, view, next(iter(doubts.values()), None)

    def _is_confirmed(self, described: DescribedTransaction, claim: Claim) -> bool | Problem:
        return _NO_STAMP if claim.open_for_ms is None else self.is_open_for_longer(described, claim.open_for_ms)


def _named(transactional_id: str) -> str:
    return f"transactional id {transactional_id!r}"


def _unread_owner(unread: Mapping[str, str]) -> str:
    """Why the owner is not known. A hidden id is missing from every listing; only its own record names it."""
    log, why = next(iter(unread.items()))
    return f"its owner may be named in {log}, which could not be read: {why}"
