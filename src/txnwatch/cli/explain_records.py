"""`explain` for one record: whether read_committed consumers get it, and what has become of its transaction.

The batch header, the markers and the leader show it; the record itself is never read. What the coordinators' log adds
is the owner, and who ended the transaction: it may no longer be there, and then the answer says so.
"""

from __future__ import annotations

from dataclasses import replace

from txnwatch.cli.compose import Question
from txnwatch.cli.explain_aborts import AbortsOf, with_past_abort
from txnwatch.cli.explanation import Explanation, of_span, open_in
from txnwatch.cli.output import duration, utc
from txnwatch.cli.past_ids import OwnerEnds, nobody_has, owner_of
from txnwatch.state.evidence.past_ends import CAUSE_MEANS, PastEnd, ended_with, ends_on
from txnwatch.state.evidence.read_committed import VISIBILITY_MEANS, BatchPlace, RecordPlace, Visibility, visibility
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.incident import partition_of
from txnwatch.state.model.values import PartitionOffset, ProducerId, TopicPartition
from txnwatch.state.telling.commands import explain_id, explain_partition
from txnwatch.state.text import quoted
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.log.lookups import look_up


def of_record(question: Question, record: PartitionOffset) -> Explanation:
    """Explains one offset, and who has ended the transaction of its record.

    Raises:
        BrokerError: the partition or the batch cannot be read.
    """
    explained = _what_became_of(question, record)
    about = AbortsOf(
        lambda event: (event.producer_id, partition_of(event)) == (explained.producer_id, record.partition)
    )
    return with_past_abort(question, explained, about)


def _what_became_of(question: Question, target: PartitionOffset) -> Explanation:
    """Explains one offset.

    Raises:
        BrokerError: the partition or the batch cannot be read.
    """
    partition = target.partition
    search = question.searcher.search([partition])
    reading = search.readings[partition]
    if reading.problem is not None and reading.last_stable_offset is None:
        raise BrokerError(f"{target}: {reading.problem}")
    place, problem = look_up(question.cluster, target, reading)
    seen = visibility(place)
    if seen is Visibility.UNKNOWN and problem is not None:
        question.missing[f"the marker behind {target}"] = problem
    head = f"{target}: {VISIBILITY_MEANS[seen]}."
    batch = place.batch
    base = _explanation(target, seen, place, (head, *_where(place, seen)))
    if seen is Visibility.OPEN and batch is not None:
        spans = [span for span in open_in(search) if span.producer_id == batch.producer_id]
        for span in spans[:1]:
            why = of_span(question.origin, span, search, wall_clock_ms())
            return replace(why, target=str(target), text=(*base.text, *why.text))
    if seen is Visibility.HELD:
        return replace(base, next=explain_partition(question.origin, partition))
    if batch is None or batch.producer_id is None or seen not in _OF_A_TRANSACTION:
        return base
    owner = owner_of(question.cluster, batch.producer_id)
    lines = (_of_owner(owner.transactional_id, batch.producer_id), *_end_lines(place, partition, owner))
    step = explain_id(question.origin, owner.transactional_id) if owner.transactional_id is not None else None
    return replace(base, transactional_id=owner.transactional_id, next=step, text=(*base.text, *lines))


_OF_A_TRANSACTION = frozenset(
    {Visibility.VISIBLE, Visibility.ABORTED, Visibility.UNKNOWN, Visibility.OPEN, Visibility.CONTROL}
)


def _explanation(target: PartitionOffset, seen: Visibility, place: RecordPlace, text: tuple[str, ...]) -> Explanation:
    batch = place.batch
    return Explanation(
        target=str(target),
        state=str(seen),
        **target.partition._asdict(),
        producer_id=batch.producer_id if batch is not None and seen in _OF_A_TRANSACTION else None,
        text=text,
    )


def _where(place: RecordPlace, seen: Visibility) -> tuple[str, ...]:
    """The place of the offset in the log."""
    batch = place.batch
    match seen:
        case Visibility.BELOW_LOG_START | Visibility.BEYOND_END:
            return (f"The partition has the offsets from {place.log_start} up to {place.end}, without the last one.",)
        case Visibility.COMPACTED if batch is None or batch.base_offset > place.offset:
            return ("No batch has this offset.",)
        case Visibility.COMPACTED:
            return ("Its batch is still there, without records.",)
    if batch is None:
        return ()
    lines = [_batch_text(batch)]
    if batch.is_thinned:
        lines.append(
            f"Compaction has removed some records of this batch ({batch.record_count} are left), perhaps also this one."
        )
    if not batch.is_control and (not batch.is_transactional or batch.producer_id is None):
        lines.append("It belongs to no transaction.")
    if seen is Visibility.HELD:
        lines.append(f"The last stable offset is {place.last_stable_offset}.")
    return tuple(lines)


def _batch_text(batch: BatchPlace) -> str:
    is_one = batch.base_offset == batch.last_offset
    where = f"offset {batch.base_offset}" if is_one else f"offsets {batch.base_offset} to {batch.last_offset}"
    if batch.is_control:
        kind = {True: "a COMMIT marker", False: "an ABORT marker", None: "a control record that ends no transaction"}
        ends = "" if batch.commit is None else ": it ended the transaction of its producer on this partition"
        return f"It is {kind[batch.commit]} of {_producer(batch)}, written at {utc(batch.timestamp_ms)}{ends}."
    return f"Its batch has {where}, written by {_producer(batch)} at {utc(batch.timestamp_ms)} by its client's clock."


def _producer(batch: BatchPlace) -> str:
    if batch.producer_id is None:
        return "a producer without an id"
    return f"producer id {batch.producer_id}, epoch {batch.producer_epoch}"


def _of_owner(name: str | None, producer_id: ProducerId) -> str:
    if name is None:
        return nobody_has(producer_id)
    return f"The producer id belongs to transactional id {quoted(name)}."


def _end_lines(place: RecordPlace, partition: TopicPartition, owner: OwnerEnds) -> tuple[str, ...]:
    """How and when the transaction ended on the partition, and who ended it."""
    marker, batch = place.marker, place.batch
    if marker is None:
        return ()
    who = _who(ended_with(ends_on(owner.ends, partition), marker, place.earlier))
    if batch is not None and batch.is_control:
        return (who,)
    how = "committed" if marker.commit else "aborted"
    begun = "It was "
    if place.first_offset is not None:
        or_below = "" if place.is_first_certain else " or below"
        begun = f"It began at offset {place.first_offset}{or_below} of this partition and was "
    lines = [f"{begun}{how} by the marker at offset {marker.offset}, written at {utc(marker.timestamp_ms)}."]
    if len(place.epochs) > 1:
        lines.append(
            "Its data has more than one producer epoch: data of an earlier transaction, which had lost its marker, was "
            f"{how} together with this one."
        )
    return (*lines, who)


def _who(end: PastEnd | None) -> str:
    if end is None:
        return (
            "The coordinators' log no longer shows who ended it, a coordinator has sent the marker a second time, "
            "or an administrator has written the marker."
        )
    after = f", {duration(end.open_for_ms)} after its start" if end.open_for_ms is not None else ""
    decided = utc(end.decided.record_timestamp_ms)
    return f"The coordinators' log has this decision at {decided}{after}: {CAUSE_MEANS[end.cause]}."
