"""Confirms candidates by a fresh read before anything is published: partition, coordinator, partition.

All candidates are read in parallel through a TransactionAdmin; state/evidence/confirmation.py decides. The ledger, the
abort and the one-shot commands share this code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from txnwatch.state.evidence.confirmation import (
    Answer,
    SpanConfirmation,
    TransactionConfirmation,
    assess_overdue,
    assess_span,
    assess_transaction,
    is_disowned,
)
from txnwatch.state.evidence.coordinator_reading import coordinator_reading, names_in_log
from txnwatch.state.evidence.screening import screen
from txnwatch.state.model.findings import SpanCandidate, TransactionCandidate
from txnwatch.state.model.ports import SpanStart, TransactionAdmin
from txnwatch.state.model.quantities import TimestampMs


def confirm_spans(
    admin: TransactionAdmin, candidates: Sequence[SpanCandidate]
) -> list[tuple[SpanCandidate, SpanConfirmation]]:
    """Confirms hanging candidates; the proof depends on the order of the reads."""
    if not candidates:
        return []
    partitions = [candidate.partition for candidate in candidates]
    before = admin.read_partitions(partitions)
    listing = admin.list_transactions([candidate.producer_id for candidate in candidates])
    names = {row.transactional_id for row in listing.transactions}
    names = names.union(*map(names_in_log, candidates))
    descriptions = admin.describe_transactions(sorted(names))
    after = admin.read_partitions(partitions)
    logs = sorted({candidate.view.log_partition for candidate in candidates if candidate.view is not None})
    epochs = admin.log_epochs(logs) if logs else {}
    return [
        (
            candidate,
            assess_span(
                candidate,
                before[candidate.partition],
                coordinator_reading(candidate, descriptions, listing),
                after[candidate.partition],
                epochs[candidate.view.log_partition] if candidate.view is not None else None,
            ),
        )
        for candidate in candidates
    ]


def confirm_contradicted(
    admin: TransactionAdmin, doubted: Sequence[SpanCandidate]
) -> list[tuple[SpanCandidate, SpanConfirmation]]:
    """Confirms spans for which the log proves nothing: the coordinators must disown them in two reads in a row.

    By the log, a live transaction holds the span; or the owner of its producer id is not known (then the candidate has
    no view), while a part of the log is not read. So the fresh answers must be the whole proof: the second read of the
    partition and of its coordinator comes after the first read of both.
    """
    names = sorted({candidate.view.transactional_id for candidate in doubted if candidate.view is not None})
    descriptions = admin.describe_transactions(names) if names else {}
    found = [
        candidate
        for candidate in doubted
        if candidate.view is None or is_disowned(descriptions[candidate.view.transactional_id], candidate)
    ]
    looked_at = confirm_spans(admin, found)
    unknown = [(candidate, first) for candidate, first in looked_at if first.answer is Answer.UNKNOWN]
    again = [candidate for candidate, first in looked_at if first.answer is Answer.CONFIRMED]
    return [*unknown, *confirm_spans(admin, again)]


def confirm_asked(
    admin: TransactionAdmin, asked: Sequence[SpanCandidate], now_ms: TimestampMs
) -> list[tuple[SpanCandidate, SpanConfirmation]]:
    """Confirms open spans about which no log was read: most of them are healthy, so the coordinators are asked first.

    A span that a live transaction holds is refuted without a read of its partition. The others need the whole proof.
    """
    if not asked:
        return []
    listing = admin.list_transactions([span.producer_id for span in asked])
    owners = admin.describe_transactions(sorted({row.transactional_id for row in listing.transactions}))
    screened = screen(asked, owners, listing, now_ms)
    held = [
        (span, SpanConfirmation(Answer.REFUTED, f"{owner.transactional_id} holds the partition", description=owner))
        for span, owner in screened.covered
    ]
    unknown = [(span, SpanConfirmation(Answer.UNKNOWN, why)) for span, why in screened.unproven]
    return [*held, *unknown, *confirm_contradicted(admin, screened.candidates)]


def confirm_overdue(
    admin: TransactionAdmin, overdue: Sequence[SpanCandidate]
) -> list[tuple[SpanCandidate, SpanConfirmation]]:
    """Confirms spans that are open for too long by a fresh read of their partitions; no coordinator is asked."""
    readings = admin.read_partitions({candidate.partition for candidate in overdue}) if overdue else {}
    return [(candidate, assess_overdue(candidate, readings[candidate.partition])) for candidate in overdue]


def with_histories(
    admin: TransactionAdmin, confirmed: Sequence[tuple[SpanCandidate, SpanConfirmation]]
) -> list[tuple[SpanCandidate, SpanConfirmation]]:
    """Confirmations with what the partition logs show at and below the spans' starts; outcomes depend on it."""
    starts = [start_of(candidate, found) for candidate, found in confirmed]
    histories = admin.read_span_histories(starts) if starts else {}
    return [
        (candidate, replace(found, history=histories[start]))
        for (candidate, found), start in zip(confirmed, starts, strict=True)
    ]


def with_span_history(admin: TransactionAdmin, candidate: SpanCandidate, found: SpanConfirmation) -> SpanConfirmation:
    """The same for one confirmation."""
    ((_, whole),) = with_histories(admin, [(candidate, found)])
    return whole


def start_of(candidate: SpanCandidate, found: SpanConfirmation) -> SpanStart:
    """Where a confirmed span begins, according to its leader."""
    assert found.producer is not None
    return SpanStart(candidate.partition, candidate.producer_id, found.producer.start_offset)


def confirm_transactions(
    admin: TransactionAdmin, candidates: Sequence[TransactionCandidate]
) -> list[tuple[TransactionCandidate, TransactionConfirmation]]:
    """Confirms candidates of the time-based rules."""
    if not candidates:
        return []
    descriptions = admin.describe_transactions([candidate.view.transactional_id for candidate in candidates])
    return [
        (candidate, assess_transaction(candidate, descriptions[candidate.view.transactional_id]))
        for candidate in candidates
    ]
