"""Evaluates a fresh read of a candidate: confirmed, refuted or unknown. Pure: the reading is done elsewhere.

A hanging candidate is read in the order partition, coordinator, partition. This is the proof of detection/proof.py
again, on fresh answers: open before, owned by no live transaction, still the same span after. Anything less is unknown.
An unknown candidate waits until it is emitted again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from txnwatch.state.detection.view import is_begun_anew
from txnwatch.state.model.findings import SpanCandidate, TransactionCandidate
from txnwatch.state.model.ports import (
    NOT_ASKED,
    ActiveProducer,
    ListedTransaction,
    PartitionReading,
    SpanHistory,
    TransactionListing,
)
from txnwatch.state.model.transaction import (
    CoordinatorView,
    DescribedTransaction,
    NotDescribed,
    TransactionDescription,
    TransactionState,
    UnknownTransactionalId,
)
from txnwatch.state.model.values import CoordinatorEpoch, Problem
from txnwatch.state.model.verdicts import Reason
from txnwatch.state.text import cut, quoted, some

# Combines the answers of all coordinators about one producer id. Pure: no I/O, no clock.
#
# Law: every id that may have written the data is described, and an answer that may be old proves nothing. All callers
# of a fresh read use this function: the watcher, the abort, and the commands that read once.
#
# Whose a producer id is. Data names a producer id P, and the question is whether an id that we do not ask may own it.
# A listing by all coordinators answers it, but a partition of the log without a leader lists nothing. The log answers
# it as well, if the watcher has read each partition to an end that it has listed, at any time since its reading began:
#
#   * The controller gives a producer id to one transactional id, once. Only a cluster that was restored from a backup
#     gives it to a second one, and then both stand in what was read.
#   * So if the log names A for P, what is not read cannot name another id: neither what was written to a partition
#     after the last read and before its leader went away, nor what is unreadable. A record of A itself is in the
#     partition of A only. That partition has a leader, because A is described now, by this leader.
#   * The listing of this leader names A as well as the log does: it is the memory of the log. The state does not keep
#     ids that were idle when reading began. Such an id holds nothing, and a record of its next transaction is read.
#   * An id that has begun a transaction with P holds P in the record (proof.py, (a)). So data that was open when every
#     partition was read to its listed end can belong only to ids that were read, on a restored cluster too.
#   * If neither names P, P may be new, and its first record may be what was not read. Then only the whole listing
#     answers. The same applies until each partition was read to an end once.
#
# What remains: a restored cluster, where one of the two ids begins its first transaction in the moment between the last
# read of its partition and the loss of its leader. Nobody can see this. The hang is told, and no abort is made, because
# an abort waits for the whole listing (docs/decisions/0053).

_MISSING = Problem("it was not described")
_IDS_NAMED = 5


@dataclass(frozen=True, slots=True)
class CoordinatorReading:
    """What the coordinators answer about one producer id: the id that maps to it, none, or why this is not known.

    Attributes:
        unlisted: why a second id with the producer id may be missing in the listing; None if the listing is whole.
        log_partitions: how many partitions the coordinators' log has now; None if this is not known.
    """

    description: DescribedTransaction | None = None
    problem: Problem | None = None
    unlisted: Problem | None = None
    log_partitions: int | None = None


def names_in_log(candidate: SpanCandidate) -> frozenset[str]:
    """The transactional ids that have used the candidate's producer id, as far as the log that was read names them."""
    view = candidate.view
    names = (view.transactional_id, view.also_used_by) if view is not None else ()
    return frozenset(name for name in names if name is not None)


def coordinator_reading(
    candidate: SpanCandidate,
    descriptions: Mapping[str, TransactionDescription],
    listing: TransactionListing,
) -> CoordinatorReading:
    """Combines the coordinators' answers; all callers use this function, so all apply the same checks.

    The answer about an id counts only if no other broker may be its coordinator: no other broker listed it, and none
    was silent. "No id has the producer id" counts only if the listing is complete. "No other id has it" counts if the
    listing is complete; or if an id with the producer id is known, and the watcher has read every partition of the log
    to an end. Then an id that its coordinator has forgotten counts too: it was the only one.

    A cluster that was restored from a backup may give a producer id to a second transactional id. If any id with the
    producer id holds the span, its marker will come. If none does, it is not known which id has written the data.
    """
    listed = listing.of_producer(candidate.producer_id)
    names = sorted({row.transactional_id for row in listed} | names_in_log(candidate))
    problems: list[Problem] = []
    owners: list[DescribedTransaction] = []
    for name in names:
        description = descriptions.get(name, NotDescribed(name, _MISSING))
        if isinstance(description, NotDescribed):
            problems.append(description.problem.of(f"transactional id {quoted(name)}"))
        elif (doubt := _doubt(description, listed, listing)) is not None:
            problems.append(doubt)
        elif isinstance(description, DescribedTransaction):
            if covers(description, candidate):
                return CoordinatorReading(description)
            owners.append(description)
    if problems:
        return CoordinatorReading(problem=problems[0])
    if len(names) > 1:
        ids = some([quoted(name) for name in names], _IDS_NAMED)
        problem = Problem(f"transactional ids {ids} have the same producer id {candidate.producer_id}")
        return CoordinatorReading(problem=problem)
    missing = _whole(listing.problems)
    if missing is not None and not (names and candidate.is_log_read):
        return CoordinatorReading(problem=missing)
    owner = owners[0] if owners else None
    return CoordinatorReading(owner, unlisted=missing, log_partitions=listing.log_partitions)


def _whole(problems: Sequence[Problem]) -> Problem | None:
    return Problem("; ".join(map(str, problems))) if problems else None


def _doubt(
    described: DescribedTransaction | UnknownTransactionalId,
    listed: Sequence[ListedTransaction],
    listing: TransactionListing,
) -> Problem | None:
    """Why another broker may be the coordinator: one that has lost the coordinators' log describes an old state."""
    name = described.transactional_id
    brokers = {row.coordinator for row in listed if row.transactional_id == name} | {described.coordinator}
    if len(brokers) > 1:
        numbers = ", ".join(str(broker) for broker in sorted(brokers))
        return Problem(f"brokers {numbers} all answer as coordinators of {cut(name)}")
    return _whole(listing.silent)


def covers(description: TransactionDescription, candidate: SpanCandidate) -> bool:
    """Whether a live transaction of the span's producer holds the partition, so that its marker will come."""
    return (
        isinstance(description, DescribedTransaction)
        and description.is_live
        and description.producer_id == candidate.producer_id
        and candidate.partition in description.partitions
    )


def is_disowned(description: TransactionDescription, candidate: SpanCandidate) -> bool:
    """Whether the coordinator has answered, and no live transaction of the producer holds the partition."""
    return not isinstance(description, NotDescribed) and not covers(description, candidate)


class Answer(StrEnum):
    """The result of a confirmation."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class SpanConfirmation:
    """The fresh read of a hanging candidate, and its result.

    Attributes:
        why: the explanation of REFUTED and UNKNOWN.
        reading, producer: the second reading of the partition, and the producer's row in it.
        description: the fresh description of the transactional id, None if no id maps to the producer id; with REFUTED
            it is set only if the transaction is live.
        is_unchanged: whether nothing was written between the two readings.
        is_settled: `is_unchanged`, and the coordinator still has the transaction that the state had. Then the outcome
            that the state knows applies to all the data.
        log_epoch: the leader epoch of the log partition of the candidate's view, listed after all other readings; or
            why it is not known. None without a view.
        unlisted: see CoordinatorReading; an abort waits for it, because the other id may own the data.
        history: what its log shows about the start of the span, once it was read (state/incidents/confirm.py).
        log_partitions: see CoordinatorReading.
    """

    answer: Answer
    why: str = ""
    reason: Reason | None = None
    reading: PartitionReading | None = None
    producer: ActiveProducer | None = None
    description: DescribedTransaction | None = None
    is_unchanged: bool = False
    is_settled: bool = False
    log_epoch: CoordinatorEpoch | Problem | None = None
    history: SpanHistory = NOT_ASKED
    unlisted: Problem | None = None
    log_partitions: int | None = None


def assess_span(
    candidate: SpanCandidate,
    before: PartitionReading,
    coordinator: CoordinatorReading,
    after: PartitionReading,
    log_epoch: CoordinatorEpoch | Problem | None = None,
) -> SpanConfirmation:
    """Whether the candidate's span is hanging, by a fresh read of both views."""
    objection = next(_objections(candidate, before, coordinator, after), None)
    if objection is not None:
        return objection
    description = coordinator.description
    producer = after.open_transaction(candidate.producer_id)
    is_unchanged = before.open_transaction(candidate.producer_id) == producer
    return SpanConfirmation(
        Answer.CONFIRMED,
        "",
        _reason(description, candidate),
        after,
        producer,
        description,
        is_unchanged,
        is_unchanged and _is_as_seen(candidate, description),
        log_epoch,
        unlisted=coordinator.unlisted,
        log_partitions=coordinator.log_partitions,
    )


def held_by(owner: DescribedTransaction) -> SpanConfirmation:
    """The answer about a span that a live transaction holds, by its coordinator alone."""
    return SpanConfirmation(Answer.REFUTED, f"{cut(owner.transactional_id)} holds the partition", description=owner)


def unanswered(why: str) -> SpanConfirmation:
    """The answer about a span of which the coordinators prove nothing."""
    return SpanConfirmation(Answer.UNKNOWN, why)


def assess_overdue(candidate: SpanCandidate, reading: PartitionReading) -> SpanConfirmation:
    """Whether the span that was open for too long is still open, by a fresh read of its partition.

    The leader may show an earlier start: the log that was read is only an upper bound of it. A later start is another
    transaction, which is younger.
    """
    if reading.problem is not None and not reading.problem.is_unsupported:
        return SpanConfirmation(Answer.UNKNOWN, f"{candidate.partition}: {reading.problem}")
    if reading.topic_id != candidate.span.topic_id:
        return SpanConfirmation(Answer.REFUTED, "the topic was deleted or re-created")
    if reading.problem is not None:
        return _assess_by_offset(candidate, reading)
    producer = reading.open_transaction(candidate.producer_id)
    if producer is None:
        return SpanConfirmation(Answer.REFUTED, "the partition's leader has no open transaction of the producer")
    if producer.start_offset > candidate.span.start_offset:
        return SpanConfirmation(Answer.REFUTED, "the span ended, and another one is open")
    return SpanConfirmation(Answer.CONFIRMED, reading=reading, producer=producer)


def _assess_by_offset(candidate: SpanCandidate, reading: PartitionReading) -> SpanConfirmation:
    """The same where the leader cannot describe its producers: by its last stable offset.

    This is where the oldest open transaction starts (`UnifiedLog.lastStableOffset`), or the high watermark without one.
    So it proves an end, and it proves the oldest open span, but none above that, and none above the high watermark.
    """
    span, stable = candidate.span, reading.last_stable_offset
    if stable is None or reading.high_watermark is None:
        return SpanConfirmation(Answer.UNKNOWN, f"{candidate.partition}: its leader returned no last stable offset")
    if stable > span.start_offset:
        return SpanConfirmation(Answer.REFUTED, "the last stable offset is above the span: it has ended")
    if stable < span.start_offset or stable >= reading.high_watermark:
        is_behind = stable < reading.high_watermark
        why = "an older transaction is open below it" if is_behind else "it begins at or above the high watermark"
        return SpanConfirmation(Answer.UNKNOWN, f"{candidate.partition}: {why}, and {reading.problem}")
    producer = ActiveProducer(candidate.producer_id, span.epoch, None, span.last_timestamp_ms, None, span.start_offset)
    return SpanConfirmation(Answer.CONFIRMED, reading=replace(reading, problem=None), producer=producer)


def _is_as_seen(candidate: SpanCandidate, description: DescribedTransaction | None) -> bool:
    """Whether the coordinator still has the transaction that the state had."""
    view = candidate.view
    if view is None or description is None:
        return False
    is_same_id = (description.producer_id, description.producer_epoch) == (candidate.producer_id, view.producer_epoch)
    return is_same_id and description.state is view.state and _has_its_start(description, view)


def _has_its_start(description: DescribedTransaction, view: CoordinatorView) -> bool:
    """Whether the start is that of the view: up to transaction.version 1 the next one may have the same epoch and end.

    After an InitProducerId the log has no start, but older brokers still describe that of the transaction before (3.3.2
    to 4.0.0 do, 4.3.1 does not). Their coordinator has taken both times from one clock. A start that is not earlier
    than the InitProducerId may be that of a later transaction.
    """
    if description.start_ms == view.start_ms:
        return True
    is_earlier = description.start_ms is not None and description.start_ms < view.last_update_ms
    return view.state is TransactionState.EMPTY and is_earlier


def _objections(
    candidate: SpanCandidate,
    before: PartitionReading,
    coordinator: CoordinatorReading,
    after: PartitionReading,
) -> Iterator[SpanConfirmation]:
    """All objections, in order: a refutation comes after every problem that makes its own reading uncertain."""
    for reading in (before, after):
        if reading.problem is not None:
            yield SpanConfirmation(Answer.UNKNOWN, f"{candidate.partition}: {reading.problem}")
    if before.topic_id != after.topic_id or before.topic_id != candidate.span.topic_id:
        yield SpanConfirmation(Answer.REFUTED, "the topic was deleted or re-created")
    if before.leader_epoch != after.leader_epoch:
        yield SpanConfirmation(Answer.UNKNOWN, f"the leader of {candidate.partition} changed between the two readings")
    first = before.open_transaction(candidate.producer_id)
    second = after.open_transaction(candidate.producer_id)
    if first is None or second is None:
        yield SpanConfirmation(Answer.REFUTED, "the partition's leader has no open transaction of the producer")
    elif first.txn_start_offset != second.txn_start_offset:
        yield SpanConfirmation(Answer.REFUTED, "the span ended and another one began during the read")
    if coordinator.problem is not None:
        yield SpanConfirmation(Answer.UNKNOWN, str(coordinator.problem))
    description = coordinator.description
    if description is not None and covers(description, candidate):
        why = f"{cut(description.transactional_id)} is {description.state} and holds the partition"
        yield SpanConfirmation(Answer.REFUTED, why, description=description)


def _reason(description: DescribedTransaction | None, candidate: SpanCandidate) -> Reason:
    if description is None:
        return Reason.NO_TRANSACTIONAL_ID
    if description.producer_id != candidate.producer_id:
        return Reason.PRODUCER_ID_SUPERSEDED
    if description.is_live:
        return Reason.NOT_A_PARTICIPANT
    view = candidate.view
    if (
        view is None
        or view.superseded_by is not None
        or view.state is TransactionState.DEAD
        or view.is_live  # its coordinator does not have it, so it shows nothing about the data
        or is_begun_anew(view, candidate.span.epoch)
    ):
        return Reason.NOT_STARTED if description.state is TransactionState.EMPTY else Reason.ALREADY_COMPLETED
    is_elsewhere = view.participants and candidate.partition not in view.participants
    return Reason.NOT_A_PARTICIPANT if is_elsewhere else Reason.ALREADY_COMPLETED


@dataclass(frozen=True, slots=True)
class TransactionConfirmation:
    """The fresh read of a candidate of the time-based rules, and its result.

    Attributes:
        description: the fresh description; with CONFIRMED it is always set.
    """

    answer: Answer
    why: str = ""
    description: DescribedTransaction | None = None


def assess_transaction(candidate: TransactionCandidate, described: TransactionDescription) -> TransactionConfirmation:
    """Whether the coordinator still has the same transaction in the state in which it was found.

    The coordinator cannot confirm how long it has been in that state: its answer has no time except the start. The
    candidate's age is a lower bound (state/detection/broker_clocks.py), and it applies only to this state of this
    transaction. So the answer must exclude another transaction that looks the same. The start distinguishes one Ongoing
    from the next. Prepare* must also have the same outcome and epoch, because another Prepare* with the same start may
    follow one whose append has failed. Then the bound was true when the coordinators' log was listed, and the answer is
    later.
    """
    view = candidate.view
    match described:
        case NotDescribed(_, problem):
            return TransactionConfirmation(Answer.UNKNOWN, str(problem))
        case UnknownTransactionalId(name):
            return TransactionConfirmation(Answer.REFUTED, f"{cut(name)} is not known")
    is_same = (described.producer_id, described.start_ms) == (candidate.producer_id, view.start_ms)
    if view.state.is_prepare:
        is_same = is_same and described.producer_epoch == view.producer_epoch
    if not is_same or described.state is not view.state:
        why = f"{cut(view.transactional_id)} is {described.state}, producer id {described.producer_id}"
        return TransactionConfirmation(Answer.REFUTED, why, described)
    return TransactionConfirmation(Answer.CONFIRMED, "", described)
