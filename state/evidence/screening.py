"""find-hanging without a log: what one round of answers makes of everything that is open. Pure.

The proof is the one of verdict.py, over answers of brokers instead of over a log that is read. Ask, each step after
the one before has been answered in full:

    P1  every partition's leader: what is open, and from which offset (DescribeProducers)
    C1  the coordinators: who owns those producer ids, and what their transactions hold
    P2  the same partitions once more
    C2  the same coordinators once more
    P3  and the partitions, under the leader epoch of P2

Take a span that is open at P1 and, from the same offset, at P2 and P3. If it were healthy its transaction had been
added at its coordinator before its first batch was appended (a), hence before P1 was answered. So at C1 it was live
and held the partition, or was complete; and if it was complete, its marker had been committed before that (b), hence
before P2 was asked, and P2 would not show it. So: not held at C1, and open from the same offset at P2, means that no
marker is owed to it, whatever ran in between and however young it is. There is no threshold of age in this, and no
timestamp: a hang of a second ago is found, a client's clock of next year hides nothing. C2 is for the one exception
that verdict.py names (the producer's next transaction has taken the partition in, whose marker will close the old
data too), and P3 for a span that ended after P2: steps P2, C2, P3 are `assess_span`, the function that confirms what
the stream has found.

What the proof asks of the answers. P1 need not be exact: whatever replica answered, what it shows had been appended
before. C1 and C2 must be, and one function reads both (`coordinator_reading`): an id counts as described only by the
broker that leads its part of the coordinators' log, if no other broker may answer for it as well; "nobody has this
producer id" counts only where every coordinator answered for all it
coordinates and hides nothing from us (docs/decisions/0009); the id that the log names for a producer id is asked for
by its name too, so that one that is hidden by a right we lack is a refusal and not an absence. Anything less leaves
the span unproven, with the reason, and never hanging.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from txnwatch.state.evidence.age_claims import Claim
from txnwatch.state.evidence.confirmation import Answer, SpanConfirmation, coordinator_reading, covers
from txnwatch.state.model.findings import SpanCandidate, TransactionCandidate
from txnwatch.state.model.ports import ActiveProducer, PartitionReading, TransactionDescription, TransactionListing
from txnwatch.state.model.transaction import UNREAD, CoordinatorView, Span
from txnwatch.state.model.verdicts import Reason, Verdict

BOTH_LOOKS = (1, 2)


@dataclass(frozen=True, slots=True)
class Screened:
    """Every open span after P1 and C1.

    Attributes:
        candidates: held by no live transaction.
        covered: held by one; its marker will come.
        unproven: with what is missing, in words.
    """

    candidates: tuple[SpanCandidate, ...] = ()
    covered: tuple[tuple[SpanCandidate, TransactionDescription], ...] = ()
    unproven: tuple[tuple[SpanCandidate, str], ...] = ()


def open_spans(readings: Iterable[PartitionReading], read_ms: int) -> list[SpanCandidate]:
    """P1: everything that is open, as candidates of which nothing is known yet; `read_ms` is our clock."""
    return [
        _candidate(reading, row, read_ms)
        for reading in readings
        if reading.problem is None
        for row in reading.producers
        if row.txn_start_offset >= 0
    ]


def _candidate(reading: PartitionReading, row: ActiveProducer, read_ms: int) -> SpanCandidate:
    span = Span(
        topic_id=reading.topic_id,
        start_offset=row.txn_start_offset,
        start_epoch=UNREAD,
        epoch=row.producer_epoch,
        last_offset=row.txn_start_offset,
        last_timestamp_ms=row.last_timestamp_ms,
        first_seen_ms=read_ms,
        eligible_from=BOTH_LOOKS[0],
    )
    return SpanCandidate(
        verdict=Verdict.HANGING,
        reason=Reason.NO_TRANSACTIONAL_ID,
        producer_id=row.producer_id,
        partition=reading.partition,
        span=span,
        view=None,
        first_barrier=BOTH_LOOKS[0],
        second_barrier=BOTH_LOOKS[1],
        data_listed_ms=read_ms,
        coordinator_listed_ms=read_ms,
    )


def screen(
    spans: Iterable[SpanCandidate],
    descriptions: Mapping[str, TransactionDescription],
    listing: TransactionListing,
    listed_ms: int,
) -> Screened:
    """C1: what the coordinators make of each open span; `listed_ms` is our clock when they were asked."""
    candidates: list[SpanCandidate] = []
    covered: list[tuple[SpanCandidate, TransactionDescription]] = []
    unproven: list[tuple[SpanCandidate, str]] = []
    for span in spans:
        reading = coordinator_reading(span, dict(descriptions), listing)
        if reading.problem is not None:
            unproven.append((span, reading.problem))
        elif reading.description is not None and covers(reading.description, span):
            covered.append((span, reading.description))
        else:
            candidates.append(replace(span, coordinator_listed_ms=listed_ms))
    return Screened(tuple(candidates), tuple(covered), tuple(unproven))


def settled(candidate: SpanCandidate, found: SpanConfirmation) -> SpanConfirmation:
    """P2 to P3 against P1: confirmed only if it is the span of P1; another one has had no C1 of its own."""
    if found.answer is not Answer.CONFIRMED:
        return found
    assert found.producer is not None
    if found.producer.txn_start_offset == candidate.span.start_offset:
        return found
    return SpanConfirmation(Answer.UNKNOWN, "the span ended and another one began while it was read")


def view_of(description: TransactionDescription) -> CoordinatorView:
    """What a coordinator tells, as a view; it does not tell when its record was written."""
    assert description.state is not None
    return CoordinatorView(
        transactional_id=description.transactional_id,
        log_partition=-1,
        log_offset=-1,
        state=description.state,
        producer_epoch=description.producer_epoch,
        timeout_ms=description.timeout_ms,
        start_ms=description.start_ms,
        last_update_ms=-1,
        record_timestamp_ms=-1,
        participants=description.partitions,
    )


def overdue_transaction(producer_id: int, view: CoordinatorView, claim: Claim, now_ms: int) -> TransactionCandidate:
    """What the coordinator has confirmed of a live transaction; `now_ms` is our clock when it was asked."""
    return TransactionCandidate(
        verdict=claim.verdict,
        producer_id=producer_id,
        view=view,
        spans=(),
        overdue_ms=claim.overdue_ms,
        barrier=BOTH_LOOKS[0],
        coordinator_listed_ms=now_ms,
        age_ms=claim.age_ms,
    )
