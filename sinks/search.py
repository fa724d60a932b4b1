"""find-hanging's readings in the order of the proof in state/screening.py, through a TransactionAdmin.

One partition or coordinator that does not answer ends nothing: it is in `not_checked`, with its reason. A look that
was in vain for a reason that may pass (a leader or a coordinator moved) is taken again, a few times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from txnwatch.sinks.confirm import confirm_spans, confirm_transactions, with_past
from txnwatch.state.confirmation import Answer, SpanConfirmation, TransactionConfirmation
from txnwatch.state.emitted import SpanCandidate, TransactionCandidate
from txnwatch.state.ids import TopicPartition
from txnwatch.state.policy import DetectionPolicy
from txnwatch.state.ports import PartitionReading, TransactionAdmin, TransactionDescription, TransactionListing
from txnwatch.state.screening import open_spans, overdue_transaction, screen, settled, view_of
from txnwatch.state.transaction import CoordinatorView

_Log = tuple[dict[int, CoordinatorView], dict[str, str]]
Views = Callable[[Collection[int]], _Log]
_AT_ONCE = 1_000
_TRIES = 3
_PAUSE_S = 0.2


@dataclass(slots=True)
class Search:
    """What was found, and what could not be looked at.

    Attributes:
        readings: P1, of every partition.
        hanging: proven, with the readings that prove it.
        overdue: late, long running and stuck transactions, confirmed.
        covered: open, and held by a live transaction.
        unproven: open, and not known whether it is held; why.
        not_checked: what, and why; the unproven among it.
    """

    readings: dict[TopicPartition, PartitionReading] = field(default_factory=dict)
    hanging: list[tuple[SpanCandidate, SpanConfirmation]] = field(default_factory=list)
    overdue: list[tuple[TransactionCandidate, TransactionConfirmation]] = field(default_factory=list)
    covered: list[tuple[SpanCandidate, TransactionDescription]] = field(default_factory=list)
    unproven: list[tuple[SpanCandidate, str]] = field(default_factory=list)
    not_checked: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Searcher:
    """Looks once.

    Attributes:
        views: reads the coordinators' log for the owners of some producer ids; and what it could not read.
        now_ms: our clock.
        progress: told how many partitions have been read.
    """

    admin: TransactionAdmin
    views: Views
    now_ms: Callable[[], int]
    policy: DetectionPolicy = field(default_factory=DetectionPolicy)
    progress: Callable[[int], None] = lambda _: None

    def search(
        self, partitions: Sequence[TopicPartition], is_wanted: Callable[[SpanCandidate], bool] = lambda _: True
    ) -> Search:
        """Both views of the partitions; `is_wanted` narrows what is open before anything is proven."""
        found = Search()
        spans = [span for span in self._open(partitions, found) if is_wanted(span)]
        for attempt in range(_TRIES):
            is_last = attempt == _TRIES - 1
            spans = self._prove(spans, found, is_first=attempt == 0, is_last=is_last)
            if not spans or is_last:
                break
            time.sleep(_PAUSE_S)
            again = list(dict.fromkeys(span.partition for span in spans))
            kept = {(span.partition, span.producer_id) for span in spans}
            spans = [span for span in self._open(again, found) if (span.partition, span.producer_id) in kept]
        return found

    def _open(self, partitions: Sequence[TopicPartition], found: Search) -> list[SpanCandidate]:
        """P1."""
        for first in range(0, len(partitions), _AT_ONCE):
            chunk = partitions[first : first + _AT_ONCE]
            found.readings.update(self.admin.read_partitions(chunk))
            self.progress(len(chunk))
        for partition in partitions:
            problem = found.readings[partition].problem
            if problem is not None:
                found.not_checked[str(partition)] = problem
        return open_spans((found.readings[partition] for partition in partitions), self.now_ms())

    def _prove(
        self, spans: list[SpanCandidate], found: Search, *, is_first: bool, is_last: bool
    ) -> list[SpanCandidate]:
        """C1 to P3; returns the spans that have to be looked at again."""
        asked = [] if is_first else [span.producer_id for span in spans]
        listing = self.admin.list_transactions(asked)  # the first time all: the coordinators' view needs them too
        live = [row.transactional_id for row in listing.transactions if row.state.is_live] if is_first else []
        ids = {span.producer_id for span in spans}
        owners = [row.transactional_id for row in listing.transactions if row.producer_id in ids]
        descriptions = self.admin.describe_transactions(sorted({*live, *owners}))
        screened = screen(spans, descriptions, listing, self.now_ms())
        found.covered += screened.covered
        known = [descriptions[name] for name in live]
        views, unread = self._log(screened.candidates, known)
        if is_first:
            self._judge_times(known, listing, views, unread, found)
        again = self._confirm(screened.candidates, listing, views, unread, found)
        again += [(span, why) for span, why in screened.unproven]
        if is_last:
            found.unproven = again
            for span, why in again:
                found.not_checked[f"{span.partition} producer id {span.producer_id}"] = f"not proven: {why}"
        return [span for span, _ in again]

    def _log(self, candidates: Sequence[SpanCandidate], live: Sequence[TransactionDescription]) -> _Log:
        """What the coordinators' log knows that their answers lack: former owners, and since when one is prepared."""
        wanted = {candidate.producer_id for candidate in candidates}
        wanted |= {one.producer_id for one in live if one.state is not None and one.state.is_prepare}
        return self.views(wanted) if wanted else ({}, {})

    def _confirm(
        self,
        candidates: Sequence[SpanCandidate],
        listing: TransactionListing,
        views: dict[int, CoordinatorView],
        unread: dict[str, str],
        found: Search,
    ) -> list[tuple[SpanCandidate, str]]:
        """P2, C2, P3, with what the log knows of the producer ids; returns what stays unknown."""
        listed = {row.producer_id for row in listing.transactions}
        named = [replace(candidate, view=views.get(candidate.producer_id)) for candidate in candidates]
        again: list[tuple[SpanCandidate, str]] = []
        for candidate, confirmation in confirm_spans(self.admin, named):
            answer = settled(candidate, confirmation)
            is_named = candidate.view is not None or candidate.producer_id in listed
            if answer.answer is Answer.CONFIRMED and unread and not is_named:
                again.append((candidate, _unread_owner(unread)))
            elif answer.answer is Answer.CONFIRMED:
                found.hanging.append((candidate, with_past(self.admin, candidate, answer)))
            elif answer.answer is Answer.UNKNOWN:
                again.append((candidate, answer.why))
        return again

    def _judge_times(
        self,
        live: Sequence[TransactionDescription],
        listing: TransactionListing,
        views: dict[int, CoordinatorView],
        unread: dict[str, str],
        found: Search,
    ) -> None:
        """The coordinators' view: every live transaction by its own timeout."""
        if listing.problems:
            found.not_checked["transactions of some coordinators"] = "; ".join(listing.problems)
        candidates: list[TransactionCandidate] = []
        now_ms = self.now_ms()
        for described in live:
            what = f"transactional id {described.transactional_id!r}"
            view = views.get(described.producer_id)
            if described.problem is not None:
                found.not_checked[what] = described.problem
                continue
            if not described.is_live:
                continue
            if described.state is not None and not described.state.is_prepare:
                view = view_of(described)
            if view is None:  # since when an outcome has been decided only the log tells
                why = next(iter(unread.values()), "its record is not in the log")
                found.not_checked[what] = f"{described.state}, not known since when: {why}"
                continue
            judged = overdue_transaction(described.producer_id, view, self.policy, now_ms)
            candidates += [judged] if judged is not None else []
        for candidate, confirmed in confirm_transactions(self.admin, candidates):
            if confirmed.answer is Answer.CONFIRMED:
                found.overdue.append((candidate, confirmed))
            elif confirmed.answer is Answer.UNKNOWN:
                found.not_checked[f"transactional id {candidate.view.transactional_id!r}"] = confirmed.why


def _unread_owner(unread: dict[str, str]) -> str:
    """An id can be hidden so that every listing looks whole; its own record is what would name it."""
    log, why = next(iter(unread.items()))
    return f"its owner may be named in {log}, which could not be read: {why}"
