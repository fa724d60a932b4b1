"""The fresh read before anything is said: partition, coordinator, partition, for all candidates side by side.

Reads through a TransactionAdmin and lets state/confirmation.py decide. The ledger, the abort and the one-shot
commands use this one function.
"""

from __future__ import annotations

from collections.abc import Sequence

from txnwatch.state.confirmation import (
    SpanConfirmation,
    TransactionConfirmation,
    assess_span,
    assess_transaction,
    coordinator_reading,
)
from txnwatch.state.emitted import SpanCandidate, TransactionCandidate
from txnwatch.state.ports import TransactionAdmin


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
