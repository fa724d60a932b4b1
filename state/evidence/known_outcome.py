"""What is known of the outcome of a hang that was confirmed, and whether asking again can tell more. Pure.

Two kinds of `unknown` are kept apart. One is for want of an answer: the partition's log was not read, or the span was
written to while it was looked at. That one is asked for again as long as the data is the same. The other one is the
answer: what would tell it is gone, or never was. Only new words of the state on the span can change that.
"""

from __future__ import annotations

from typing import NamedTuple

from txnwatch.state.evidence.confirmation import SpanConfirmation
from txnwatch.state.evidence.outcome import UNKNOWN, expected_outcome
from txnwatch.state.model.findings import SpanCandidate

WRITTEN_MEANWHILE = "it was written to while it was looked at"


class Outcome(NamedTuple):
    """`awaited` is the answer that is missing, in words; None where the outcome is known, or nobody can tell it."""

    word: str
    awaited: str | None = None


def known_outcome(candidate: SpanCandidate, found: SpanConfirmation) -> Outcome:
    """What is known of the outcome, if it is true of all the data that was found; `found` has the span's past."""
    row, past = found.producer, found.past
    if row is None or candidate.span.absorbed or row.txn_start_offset != candidate.span.start_offset:
        return Outcome(UNKNOWN)  # other data, or more of it than what the candidate rests on
    if not found.is_unchanged:
        return Outcome(UNKNOWN, WRITTEN_MEANWHILE)
    if not found.is_settled:
        return Outcome(UNKNOWN)
    word = expected_outcome(candidate.partition, row.producer_epoch, candidate.view, past, row.coordinator_epoch)
    return Outcome(word, past.problem if word == UNKNOWN else None)
