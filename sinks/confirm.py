"""The fresh read before anything is said: partition, coordinator, partition, for all candidates side by side.

Reads through a TransactionAdmin and lets state/confirmation.py decide. The ledger, the abort and the one-shot
commands use this one function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from txnwatch.state.confirmation import (
    Answer,
    SpanConfirmation,
    TransactionConfirmation,
    assess_span,
    assess_transaction,
    coordinator_reading,
    covers,
)
from txnwatch.state.emitted import SpanCandidate, TransactionCandidate
from txnwatch.state.ports import TransactionAdmin, TransactionDescription


def confirm_spans(
    admin: TransactionAdmin, candidates: Sequence[SpanCandidate]
) -> list[tuple[SpanCandidate, SpanConfirmation]]:
    """Confirms hanging candidates; the order of the readings is the proof's."""
    if not candidates:
        return []
    partitions = [candidate.partition for candidate in candidates]
    before = admin.read_partitions(partitions)
    listing = admin.list_transactions([candidate.producer_id for candidate in candidates])
    names = {row.transactional_id for row in listing.transactions}
    names |= {candidate.view.transactional_id for candidate in candidates if candidate.view is not None}
    descriptions = admin.describe_transactions(sorted(names))
    after = admin.read_partitions(partitions)
    return [
        (
            candidate,
            assess_span(
                candidate,
                before[candidate.partition],
                coordinator_reading(candidate, descriptions, listing),
                after[candidate.partition],
            ),
        )
        for candidate in candidates
    ]


def confirm_contradicted(
    admin: TransactionAdmin, held: Sequence[SpanCandidate]
) -> list[tuple[SpanCandidate, SpanConfirmation]]:
    """Spans that by the log a live transaction holds: those whose coordinator says otherwise, at two looks in a row.

    The log proves nothing here, so the fresh answers must be the whole proof: the second reading of the partition and
    the second answer of its coordinator are listed after the first of either.
    """
    if not held:
        return []
    descriptions = admin.describe_transactions(
        sorted({candidate.view.transactional_id for candidate in held if candidate.view is not None})
    )
    found = [
        candidate
        for candidate in held
        if candidate.view is not None and _is_contradicted(descriptions[candidate.view.transactional_id], candidate)
    ]
    looked_at = confirm_spans(admin, found)
    return confirm_spans(admin, [candidate for candidate, first in looked_at if first.answer is Answer.CONFIRMED])


def with_past(admin: TransactionAdmin, candidate: SpanCandidate, found: SpanConfirmation) -> SpanConfirmation:
    """A confirmation with what the partition's log tells of the span's beginning; its outcome rests on it."""
    assert found.producer is not None
    start = found.producer.txn_start_offset
    return replace(found, past=admin.read_past(candidate.partition, candidate.producer_id, start))


def _is_contradicted(description: TransactionDescription, candidate: SpanCandidate) -> bool:
    return description.problem is None and not covers(description, candidate)


def confirm_transactions(
    admin: TransactionAdmin, candidates: Sequence[TransactionCandidate]
) -> list[tuple[TransactionCandidate, TransactionConfirmation]]:
    """Confirms candidates of the rules that rest on time."""
    if not candidates:
        return []
    descriptions = admin.describe_transactions([candidate.view.transactional_id for candidate in candidates])
    return [
        (candidate, assess_transaction(candidate, descriptions[candidate.view.transactional_id]))
        for candidate in candidates
    ]
