"""What the next batch gets: the next offset, and which requests of the job are due. Pure: the simulation runs it too.

The next offset follows from the last one and a new listing.

Law: a limit may shorten reading, never listing. A partition without an answer keeps its position and is marked stale.
An answer below the position is used as it is: the log was truncated, and the reader detects and reports that. A
partition with another topic id is another partition. No limit applies to `__transaction_state` here: only reading shows
how many records lie between two offsets, because compaction can leave a few records in billions of offsets.

A limit goes to the small backlogs first. So a partition that is far behind takes nothing from the others, and they are
read to their ends in every batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from msgspec.structs import replace

from txnwatch.state.detection.open_transactions import UNOWNED
from txnwatch.state.model.clocks import ClockBase, set_by_ms
from txnwatch.state.model.facts import StandsAt
from txnwatch.state.model.findings import (
    CensusReason,
    CensusRequest,
    Finding,
    OpenTransactions,
    OutstandingGap,
    ReadLimitReached,
)
from txnwatch.state.model.pauses import doubled
from txnwatch.state.model.ports import ListedOffset
from txnwatch.state.model.values import (
    FIRST_OFFSET,
    BarrierNumber,
    CoordinatorAccess,
    DurationMs,
    ModelValue,
    Offset,
    Remedy,
    TimestampMs,
    TopicPartition,
    is_data,
)
from txnwatch.streaming.source.offsets import LookedAt, NotBegun, Position, SourceOffset, is_begun

_JUST_MADE = 10_000  # most offsets of a new coordinator partition at the first barrier that can list it


class ListedPartition(ModelValue, frozen=True):
    """One partition's answer to a listing.

    Attributes:
        end: always with its leader epoch; None if the partition did not answer.
        start: the start offset of a partition that is not read yet; it is requested, and needed, only for those.
    """

    topic_id: str
    end: ListedOffset | None
    start: Offset | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """One complete pair (D, T) of listings.

    Attributes:
        answers: one for each watched partition, of data and of `__transaction_state`; a partition without an entry is
            no longer part of the cluster.
        data_listed_ms: local clock when all answers of D had arrived, before T was requested.
        coordinator_listed_ms: local clock when all answers of T had arrived.
        scan_interval_ms: the coordinators' setting; None until a broker answers.
        coordinator_access: how the coordinators' view is known.
        clock_base: it shows whether our clock was set since another listing; None if it is not known.
        standing: see Barrier.
        looked: the partitions that are beyond the budget; they are not among the answers.
    """

    cluster_id: str
    answers: Mapping[TopicPartition, ListedPartition]
    data_listed_ms: TimestampMs
    coordinator_listed_ms: TimestampMs
    scan_interval_ms: DurationMs | None = None
    coordinator_access: CoordinatorAccess = CoordinatorAccess.LOG
    clock_base: ClockBase | None = None
    standing: Mapping[TopicPartition, StandsAt] = field(default_factory=dict)
    looked: Mapping[TopicPartition, LookedAt] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one batch may read: offsets of all data partitions together."""

    data_offsets: int | None = None


def plan(
    previous: SourceOffset, listing: Listing, limits: Limits, reread: Mapping[TopicPartition, Offset]
) -> SourceOffset:
    """The next offset: one barrier later, as far as the limits allow; `reread` has offsets to go back to."""
    positions = {
        partition: position
        for partition, position in previous.positions.items()
        if partition in listing.answers and listing.answers[partition].topic_id == position.topic_id
    }
    begun = {
        partition: min(answer.start, answer.end.offset)
        for partition, answer in listing.answers.items()
        if answer.end is not None and answer.start is not None and not is_begun(positions.get(partition))
    }
    stood = {partition: position.offset for partition, position in positions.items() if isinstance(position, Position)}
    back = {
        partition: min(start, stood[partition])
        for partition, start in reread.items()
        if partition in positions and _may_go_back(positions[partition], listing.answers[partition])
    }
    starts = {**stood, **begun, **back}
    set_ms = set_by_ms(previous.clock_base, listing.clock_base)
    ends = _ends(starts, {partition: stood[partition] for partition in back}, listing, limits)
    return SourceOffset(
        cluster_id=listing.cluster_id,
        barrier=BarrierNumber(previous.barrier + 1),
        data_listed_ms=listing.data_listed_ms,
        coordinator_listed_ms=listing.coordinator_listed_ms,
        positions={
            partition: _position(positions.get(partition), answer, ends.get(partition))
            for partition, answer in listing.answers.items()
        },
        begun=begun,
        reread=back,
        gone=_gone(previous, positions, listing),
        backlog_end=_backlog_end(previous, listing, begun, back),
        scan_interval_ms=listing.scan_interval_ms,
        coordinator_access=listing.coordinator_access,
        clock_base=listing.clock_base if set_ms or previous.clock_base is None else previous.clock_base,
        clock_set_by_ms=set_ms,
        standing=dict(listing.standing),
        looked=dict(listing.looked),
    )


def _gone(previous: SourceOffset, answered: Collection[TopicPartition], listing: Listing) -> dict[TopicPartition, str]:
    """Partitions that are in the cluster no longer; a change between scan and look is no end."""
    now = {at: look.topic_id for at, look in listing.looked.items()}
    scanned_again = {at: listing.answers[at].topic_id for at in previous.looked.keys() & listing.answers.keys()}
    before = {at: entry.topic_id for at, entry in (*previous.positions.items(), *previous.looked.items())}
    return {
        partition: topic_id
        for partition, topic_id in before.items()
        if partition not in answered
        and topic_id not in {now.get(partition), scanned_again.get(partition)}
        and (topic_id or is_begun(previous.positions.get(partition)))  # else only the name was known
    }


def _backlog_end(
    previous: SourceOffset,
    listing: Listing,
    begun: Mapping[TopicPartition, Offset],
    back: Mapping[TopicPartition, Offset],
) -> dict[TopicPartition, Offset]:
    """The offset from which the records of each coordinator partition are new: its end when reading began or restarted.

    A partition that is found later and has a short log was created later, so all its records are new. A long log
    existed before, but was not visible. A partition found later keeps the entry 0 until its reading begins, because its
    first answer may come some barriers after its name.
    """
    backlog_ends: dict[TopicPartition, Offset] = {}
    for partition, answer in listing.answers.items():
        if is_data(partition):
            continue
        was_found_later = partition not in previous.positions or previous.backlog_end.get(partition) == 0
        is_short = answer.end is None or answer.end.offset <= _JUST_MADE
        was_made_later = previous.barrier > 0 and was_found_later and is_short
        kept = FIRST_OFFSET if partition in begun else previous.backlog_end.get(partition, FIRST_OFFSET)
        if answer.end is not None and ((partition in begun and not was_made_later) or back.get(partition, 1) <= 0):
            kept = answer.end.offset
        kept = kept if answer.end is None else min(kept, answer.end.offset)
        if kept > 0 or (was_made_later and partition not in begun):
            backlog_ends[partition] = kept
    return backlog_ends


def _may_go_back(position: Position | NotBegun, answer: ListedPartition) -> bool:
    """Whether a re-read is safe now. A truncation must be ruled out first.

    Only a read that continues at the last position, with its leader epoch, detects a truncation. A read that starts
    further back would read the new log and leave data of the old log in the state.
    """
    if not isinstance(position, Position) or answer.end is None:
        return False
    return answer.end.leader_epoch == position.epoch and answer.end.offset >= position.offset


def _ends(
    starts: Mapping[TopicPartition, Offset], stood: Mapping[TopicPartition, Offset], listing: Listing, limits: Limits
) -> dict[TopicPartition, Offset]:
    """How far each answered partition is read: to its end, or for data to its share of the limit.

    A re-read goes at least to the old position (`stood`). From a lower position, a truncation between the two would not
    be detected.
    """
    ends: dict[TopicPartition, Offset] = {}
    backlog: dict[TopicPartition, int] = {}
    for partition, answer in listing.answers.items():
        if answer.end is None or partition not in starts:
            continue
        end = answer.end.offset
        ends[partition] = end
        if end > starts[partition] and is_data(partition):
            backlog[partition] = end - starts[partition]
    if limits.data_offsets is not None:
        for partition, allowed in _fill(backlog, limits.data_offsets).items():
            ends[partition] = starts[partition] + allowed
    return {partition: max(end, stood.get(partition, end)) for partition, end in ends.items()}


def _fill(backlog: Mapping[TopicPartition, int], limit: int) -> dict[TopicPartition, int]:
    """How many offsets each partition may read.

    The smallest backlogs are read completely, as many as fit. The others share the rest, with at least one offset each.
    """
    allowed: dict[TopicPartition, int] = {}
    smallest_first = sorted(backlog, key=lambda partition: (backlog[partition], partition))
    for done, partition in enumerate(smallest_first):
        if backlog[partition] > limit:
            share = max(1, limit // (len(smallest_first) - done))
            return allowed | dict.fromkeys(smallest_first[done:], share)
        allowed[partition] = backlog[partition]
        limit -= allowed[partition]
    return allowed


def _position(position: Position | NotBegun | None, answer: ListedPartition, end: Offset | None) -> Position | NotBegun:
    if end is not None and answer.end is not None:
        epoch = answer.end.leader_epoch
        assert epoch is not None  # see ListedPartition
        listed = answer.end
        now = Position(answer.topic_id, end, epoch, listed.offset, listed.leader, connection=listed.connection)
        if end >= listed.offset or not isinstance(position, Position) or position.read_under == epoch:
            return now
        return replace(now, whole_epoch=position.read_under)
    return replace(position, is_stale=True) if isinstance(position, Position) else NotBegun(answer.topic_id)


# What the job asks its source for after a batch: ranges to read again, partitions to describe.
#
# A request is repeated in every batch until its gap is closed. It is granted at once, then after twice as many barriers
# each time. A request for a partition that did not answer was not executed, so it stays due. A pause is forgotten when
# no request names the partition. That of a last stable offset is kept until it has not been used for a while: the
# offset stops again and again, and moves in between. So a census for another holder comes at most LONGEST_PAUSE
# barriers later.


class RereadRequest(NamedTuple):
    """One request to the source. A batch may both read a partition again and describe it.

    Attributes:
        start: the offset to read again from. None: describe a data partition, or read a whole coordinator partition
            again.
        why: the reason for a census. Each reason has its own backoff.
    """

    partition: TopicPartition
    start: Offset | None
    why: CensusReason | None = None


def census_of(partition: TopicPartition, why: CensusReason) -> RereadRequest:
    """A request for a census of a partition."""
    return RereadRequest(partition, None, why)


def requests_after(
    emitted: Collection[Finding], wanted: Mapping[CensusReason, Iterable[TopicPartition]]
) -> set[RereadRequest]:
    """The requests after a batch: gaps to read again, and partitions to describe.

    `emitted` has the open transactions of every bucket, including those emitted in earlier batches. `wanted` are
    partitions that the driver wants to be described: a leader has contradicted a candidate, or a census has failed.
    """
    requests = {census_of(partition, why) for why, partitions in wanted.items() for partition in partitions}
    requests.update(census_of(partition, CensusReason.STANDING) for partition in _held_by_nobody_known(emitted))
    unread: dict[TopicPartition, Offset] = {}
    for finding in emitted:
        if isinstance(finding, CensusRequest):
            requests.add(census_of(finding.partition, finding.why))
        elif isinstance(finding, OutstandingGap | ReadLimitReached):
            start = finding.gap if isinstance(finding, OutstandingGap) else finding.from_offset
            if isinstance(start, Remedy):
                why = CensusReason.GAP if is_data(finding.partition) else None
                requests.add(RereadRequest(finding.partition, None, why))
            else:
                unread[finding.partition] = min(start, unread.get(finding.partition, start))
    return requests | {RereadRequest(partition, start) for partition, start in unread.items()}


def _held_by_nobody_known(emitted: Collection[Finding]) -> Iterator[TopicPartition]:
    """Partitions whose last stable offset does not move, and where no known transaction with an owner begins.

    If a known transaction with an owner begins there, it holds the offset: no two transactions begin at one offset. A
    census would only show it again, and transactions above it that hold nothing yet.
    """
    open_lists = [finding for finding in emitted if isinstance(finding, OpenTransactions)]
    blocked = {offset for open_list in open_lists for offset in open_list.blocked}
    if not blocked:
        return
    owned = {
        span.place
        for open_list in open_lists
        for transaction in open_list.transactions
        if transaction.state != UNOWNED
        for span in transaction.spans
    }
    for offset in sorted(blocked - owned):
        yield offset.partition


LONGEST_PAUSE: Final = 64


class GrantedRequests:
    """The requests that were granted before, with the barrier at which each is due again."""

    def __init__(self) -> None:
        self._granted: dict[RereadRequest, tuple[BarrierNumber, int]] = {}

    def __len__(self) -> int:
        return len(self._granted)

    def due(self, previous: SourceOffset, requests: Collection[RereadRequest]) -> set[RereadRequest]:
        """The requests whose pause has passed."""
        return {request for request in requests if previous.barrier >= self._granted.get(request, (0, 0))[0]}

    def count(self, following: SourceOffset, granted: set[RereadRequest], requests: Collection[RereadRequest]) -> None:
        """Doubles the pauses of the granted requests; forgets those that are no longer needed."""
        number = following.barrier - 1
        for request in granted:
            at = following.positions.get(request.partition)
            if at is None or not at.is_stale:
                times = self._granted[request][1] + 1 if request in self._granted else 0
                due = BarrierNumber(number + doubled(1, LONGEST_PAUSE, times))
                self._granted[request] = (due, times)
        partitions = {request.partition for request in requests}
        self._granted = {
            request: (due, times)
            for request, (due, times) in self._granted.items()
            if (request.partition in partitions or request.why is CensusReason.STANDING)
            and number < due + LONGEST_PAUSE
        }


def is_of_census(request: RereadRequest) -> bool:
    """Whether the request asks for a census, and not for a range of a log."""
    return request.start is None and is_data(request.partition)


def to_describe(requests: Iterable[RereadRequest], previous: SourceOffset) -> set[TopicPartition]:
    """Partitions to describe that are not listed. They are participants of a transaction, and may be hidden."""
    return {request.partition for request in requests if is_of_census(request)} - previous.positions.keys()


def to_read_again(requests: Iterable[RereadRequest]) -> dict[TopicPartition, Offset]:
    """Where to read again from: a whole coordinator partition from its beginning, a data partition from a gap."""
    starts: dict[TopicPartition, Offset] = {}
    for request in requests:
        if not is_of_census(request):
            start = request.start or FIRST_OFFSET
            starts[request.partition] = min(start, starts.get(request.partition, start))
    return starts
