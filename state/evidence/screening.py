"""What a command that looks once proves without a log: which open data hangs, and which transactions are late or stuck.

Pure: no I/O, no clock.

find-hanging evaluates one round of answers about everything that is open. Its proof is that of detection/proof.py, with
answers of brokers instead of a log. Each step begins after the one before has been answered in full:

    P1  the leader of every partition: what is open, and from which offset (DescribeProducers)
    C1  the coordinators: who owns those producer ids, and which partitions their transactions hold
    P2  the same partitions once more
    C2  the same coordinators once more
    P3  the same partitions again, under the leader epoch of P2

Take a span that is open at P1 and, from the same offset, at P2 and P3. If it is healthy, its transaction was added at
its coordinator before its first batch was appended (a), so before P1 was answered. So at C1 the transaction was live
and held the partition, or it was complete. If it was complete, its marker had been committed before that (b), so before
P2 was asked, and P2 would not show the span. Conclusion: a span that is not held at C1, and is open from the same
offset at P2, will get no marker, whatever ran in between and however young it is. The proof has no age threshold and no
timestamp: it finds a hang of a second ago, and a client clock that is a year ahead hides nothing. C2 is for the one
exception in detection/proof.py (the producer's next transaction has added the partition again, and its marker will also
close the old data). P3 is for a span that ended after P2. Steps P2, C2, P3 are `assess_span`, the function that
confirms the candidates of the stream.

What the proof requires of the answers. P1 need not be exact: any replica may have answered, because what it shows had
been appended before. C1 and C2 must be exact, and one function reads both (`coordinator_reading`). The description of
an id counts only from the broker that leads its part of the coordinators' log, and only if no other broker may answer
for it as well. "No id has this producer id" counts only if every coordinator answered for all it coordinates and hides
nothing from us (docs/decisions/0009). The id that the log names for a producer id is also asked for by its name, so
that an id hidden by a missing permission is a refusal and not an absence. Anything less leaves the span unproven, with
the reason, and never hanging.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from txnwatch.state.evidence.confirmation import (
    Answer,
    SpanConfirmation,
    TransactionConfirmation,
    coordinator_reading,
    covers,
)
from txnwatch.state.model.findings import SpanCandidate, TransactionCandidate
from txnwatch.state.model.partition_replicas import NONE_AT_RISK, PartitionReplicas, PlacesAtRisk
from txnwatch.state.model.ports import ActiveProducer, LeaderStamp, PartitionReading, TransactionListing
from txnwatch.state.model.transaction import (
    CoordinatorView,
    DescribedTransaction,
    LossProof,
    Span,
    TransactionDescription,
    TransactionView,
)
from txnwatch.state.model.values import (
    NO_TIME,
    BarrierNumber,
    CoordinatorEpoch,
    DurationMs,
    Problem,
    ProducerId,
    TimestampMs,
    TopicPartition,
    is_foreign,
)
from txnwatch.state.model.verdicts import (
    ENDS_BY_ITSELF,
    RULE_OF,
    DetectionPolicy,
    EndsByItself,
    Threshold,
    Verdict,
    WillEndBy,
    late_after_ms,
    thresholds,
)


class OwnerViews(NamedTuple):
    """What `__transaction_state` shows: the views by producer id, what could not be read, who leads a partition.

    Attributes:
        led: the leaders that have left a stamp, by log partition.
        epochs: the leader epochs under which the ends of the log were listed, by log partition.
        unwatched: log partitions whose leader may have restarted with the same leader epoch.
    """

    views: Mapping[ProducerId, CoordinatorView] = {}
    problems: Mapping[str, str] = {}
    led: Mapping[TopicPartition, LeaderStamp] = {}
    epochs: Mapping[TopicPartition, CoordinatorEpoch] = {}
    unwatched: AbstractSet[TopicPartition] = frozenset()

    def epoch_of(self, view: CoordinatorView | None) -> CoordinatorEpoch | None:
        """The leader epoch that the log partition of a view had when its end was listed; None if it is not known."""
        return self.epochs.get(view.log) if view is not None else None

    def name(self, candidate: SpanCandidate) -> SpanCandidate:
        """A candidate with what the log shows about its owner; one read does not show since when the log is so."""
        view = self.views.get(candidate.producer_id)
        proof = LossProof.NOTHING if view is not None and view.log in self.unwatched else LossProof.EPOCH
        return replace(candidate, view=view, log_epoch=self.epoch_of(view), proof=proof)


@dataclass(slots=True)
class Search:
    """What was found, and what could not be checked.

    Attributes:
        readings: the first read (P1) of every partition.
        hanging: proven, with the confirmation.
        overdue: late, long running and stuck transactions, confirmed.
        covered: open, and held by a live transaction.
        unproven: open, and not known whether a live transaction holds it, with the reason.
        not_checked: what was not checked, with the reason; includes the unproven.
        policy: the thresholds that were used.
        has_ids: whether a transactional id can exist at all; if not, no transaction was ever begun on this cluster.
        at_risk: the replicas of the partitions of what was found.
    """

    readings: dict[TopicPartition, PartitionReading] = field(default_factory=dict)
    hanging: list[tuple[SpanCandidate, SpanConfirmation]] = field(default_factory=list)
    overdue: list[tuple[TransactionCandidate, TransactionConfirmation]] = field(default_factory=list)
    covered: list[tuple[SpanCandidate, DescribedTransaction]] = field(default_factory=list)
    unproven: list[tuple[SpanCandidate, str]] = field(default_factory=list)
    not_checked: dict[str, str] = field(default_factory=dict)
    policy: DetectionPolicy = field(default_factory=DetectionPolicy)
    has_ids: bool = True
    at_risk: PlacesAtRisk = NONE_AT_RISK

    @property
    def found(self) -> Iterator[tuple[Collection[TopicPartition], str | None]]:
        """The partitions and the transactional id of each transaction that was found."""
        for span, proof in self.hanging:
            yield held_by(proof.description, span)
        for span, described in self.covered:
            yield held_by(described, span)
        for span, _ in self.unproven:
            yield held_by(None, span)
        for _, confirmed in self.overdue:
            yield held_by(confirmed.description)


def held_by(
    described: DescribedTransaction | None, span: SpanCandidate | None = None
) -> tuple[Collection[TopicPartition], str | None]:
    """The partitions of a transaction, with that of its open data, and its transactional id."""
    places = {span.partition} if span is not None else set()
    return (places, None) if described is None else (places | described.partitions, described.transactional_id)


FOREIGN = (
    "its topic matches foreign_topics: another cluster's data is copied into it byte for byte, so its producer ids are "
    "not those of the coordinators here"
)
BOTH_LOOKS = (BarrierNumber(1), BarrierNumber(2))


@dataclass(frozen=True, slots=True)
class Screened:
    """All open spans after P1 and C1.

    Attributes:
        candidates: spans held by no live transaction.
        covered: spans held by one; its marker will come.
        unproven: spans with missing information, and what is missing; and those that are foreign, unless covered.
    """

    candidates: tuple[SpanCandidate, ...] = ()
    covered: tuple[tuple[SpanCandidate, DescribedTransaction], ...] = ()
    unproven: tuple[tuple[SpanCandidate, str], ...] = ()


def open_spans(readings: Iterable[PartitionReading], read_ms: TimestampMs) -> list[SpanCandidate]:
    """P1: all open spans, as candidates about which nothing else is known yet; `read_ms` is our clock."""
    return [
        _candidate(reading, row, read_ms)
        for reading in readings
        if reading.problem is None
        for row in reading.producers
        if row.txn_start_offset is not None
    ]


def _candidate(reading: PartitionReading, row: ActiveProducer, read_ms: TimestampMs) -> SpanCandidate:
    span = Span(
        topic_id=reading.topic_id,
        start_offset=row.start_offset,
        start_epoch=None,
        epoch=row.producer_epoch,
        last_offset=row.start_offset,
        last_timestamp_ms=row.last_timestamp_ms,
        first_seen_ms=read_ms,
        eligible_from=BOTH_LOOKS[0],
    )
    return SpanCandidate(
        verdict=Verdict.HANGING,
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
    listed_ms: TimestampMs,
    foreign_topics: str | None = None,
) -> Screened:
    """C1: sorts the open spans by the coordinators' answers; `listed_ms` is our clock when they were asked."""
    candidates: list[SpanCandidate] = []
    covered: list[tuple[SpanCandidate, DescribedTransaction]] = []
    unproven: list[tuple[SpanCandidate, str]] = []
    for span in spans:
        reading = coordinator_reading(span, descriptions, listing)
        if reading.problem is not None:
            unproven.append((span, str(reading.problem)))
        elif reading.description is not None and covers(reading.description, span):
            covered.append((span, reading.description))
        elif is_foreign(span.partition.topic, foreign_topics):
            unproven.append((span, FOREIGN))
        else:
            candidates.append(replace(span, coordinator_listed_ms=listed_ms))
    return Screened(tuple(candidates), tuple(covered), tuple(unproven))


def settled(candidate: SpanCandidate, confirmation: SpanConfirmation) -> SpanConfirmation:
    """P2 to P3 against P1: confirmed only for the span of P1; a later span has had no C1 of its own."""
    if confirmation.answer is not Answer.CONFIRMED:
        return confirmation
    assert confirmation.producer is not None
    if confirmation.producer.txn_start_offset == candidate.span.start_offset:
        return confirmation
    return SpanConfirmation(Answer.UNKNOWN, "the span ended and another one began during the read")


def overdue_transaction(
    producer_id: ProducerId, view: TransactionView, claim: Claim, now_ms: TimestampMs
) -> TransactionCandidate:
    """A candidate that the coordinator has confirmed; `now_ms` is our clock when it was asked."""
    return TransactionCandidate(
        verdict=claim.verdict,
        producer_id=producer_id,
        view=view,
        overdue_ms=claim.overdue_ms,
        barrier=BOTH_LOOKS[0],
        coordinator_listed_ms=now_ms,
        age_ms=claim.age_ms,
    )


# Where a producer has open data, by readings of partitions. Pure: no I/O, no clock.


class OpenData(NamedTuple):
    """The partitions of some readings, by what their leaders show about one producer.

    Attributes:
        open: its transaction is open.
        closed: it has no open transaction. If its coordinator still waits for the marker there, a marker of another
            writer has closed the transaction, and the leader may refuse the coordinator's own marker for ever.
        unread: the leader did not answer, with the reason.
    """

    open: tuple[TopicPartition, ...]
    closed: tuple[TopicPartition, ...]
    unread: dict[TopicPartition, Problem]

    def places(self, partitions: Collection[TopicPartition]) -> frozenset[str] | None:
        """Those of some partitions on which it is open; None if one of them was not read."""
        read = {*self.open, *self.closed}
        return frozenset(str(at) for at in self.open if at in partitions) if read.issuperset(partitions) else None

    @property
    def is_nothing_left(self) -> bool:
        """Whether it is proven that the producer has no open data on these partitions."""
        return not self.open and not self.unread


def open_data(
    producer_id: ProducerId, readings: Iterable[PartitionReading], among: Collection[TopicPartition] | None = None
) -> OpenData:
    """What the readings show about a producer; `among` limits them to some partitions."""
    wanted = [reading for reading in readings if among is None or reading.partition in among]
    read = [reading for reading in wanted if reading.problem is None]
    is_open = {reading.partition: reading.open_transaction(producer_id) is not None for reading in read}
    return OpenData(
        open=tuple(partition for partition, has_some in is_open.items() if has_some),
        closed=tuple(partition for partition, has_some in is_open.items() if not has_some),
        unread={reading.partition: reading.problem for reading in wanted if reading.problem is not None},
    )


# Time-based verdicts: what proves one, and which broker to ask.
#
# A command that looks once has not observed the state over time. It has stamps of the coordinator and its own clock,
# and the difference of two clocks is not an age: if the coordinator's clock is 62 s behind, a Prepare* of a moment
# ago looks 62 s old. So our clock only selects what to ask. The coordinator itself proves it. ListTransactions takes
# a duration (KIP-994, Kafka 3.8), which the coordinator compares with its own clock minus the start of the
# transaction. A yes (the transaction is listed) for the duration D means
#
#     the coordinator's clock now - start > D
#
# and no other clock is involved. The value of D for each verdict:
#
#   long_running  D = the age. The coordinator aborts by this same clock and this same start, so this is the age that
#                 counts, whoever stamped the start.
#   stuck_prepare D = stamp - start + the age. Then the start cancels out: the clock now - stamp > age. The stamp must
#                 be from the same clock. If the leader epoch of the record is the current one, it is the record's own
#                 stamp. Otherwise it is the oldest stamp that the current leader has written in that partition of the
#                 log, because the record was there before it.
#   late          D = the age, and at least the oldest stamp of the current leader - start + the scan interval + the
#                 buffer. A coordinator that has just taken over has had no time to act, however late it is by its
#                 clock.
#
# A no means that by the coordinator's clock there is no verdict. No answer (an older broker), or no stamp of the
# current leader, means that the verdict is not proven, and this is reported. A broker that cannot be asked has
# stamped records, in any partition of its log: its clock has reached the newest of these stamps. This can be a yes,
# never a no.
#
# The claimed age is the age in the question: first as much as our clock shows, less a second, then the threshold. If
# the coordinator's clock is ahead of ours, it is asked later by the difference: the verdict is late, not false. As in
# model/clocks.py, nothing detects that a clock was set forward since the stamp.

_CLOSE_MS = DurationMs(1_000)


class Claim(NamedTuple):
    """A verdict, and the duration that its coordinator has to confirm.

    Attributes:
        age_ms: the minimum age of the transaction, if the coordinator confirms it.
        overdue_ms: the part of the age above the threshold.
        open_for_ms: the duration to confirm: the transaction has been open for longer by the coordinator's clock; None
            if no duration would prove the verdict.
    """

    verdict: Verdict
    age_ms: DurationMs
    overdue_ms: DurationMs
    open_for_ms: DurationMs | None


def claims(
    view: TransactionView,
    led: LeaderStamp | None,
    log_epoch: CoordinatorEpoch | None,
    policy: DetectionPolicy,
    now_ms: TimestampMs,
) -> Iterator[Claim]:
    """Possible verdicts of a live transaction by our clock `now_ms`: the most severe and the greatest age first.

    There are none if nothing shows when its state began. `log_epoch` is the leader epoch of the view's log partition.
    """
    stamp_ms = _stamp_ms(view, led, log_epoch)
    since_ms = view.record_timestamp_ms if stamp_ms is None and isinstance(view, CoordinatorView) else stamp_ms
    if since_ms is None:
        return
    presumed_ms = now_ms - since_ms
    for threshold in reversed(thresholds(view, policy, policy.scan_interval_ms(None))):
        if presumed_ms > threshold.age_ms:
            for age_ms in dict.fromkeys((max(threshold.age_ms, presumed_ms - _CLOSE_MS), threshold.age_ms)):
                open_for_ms = _open_for_ms(view, led, stamp_ms, threshold, age_ms)
                yield Claim(threshold.verdict, age_ms, age_ms - threshold.age_ms, open_for_ms)


def _stamp_ms(view: TransactionView, led: LeaderStamp | None, log_epoch: CoordinatorEpoch | None) -> TimestampMs | None:
    """When the state began; for Prepare* only by the current coordinator's clock, None if that has no stamp."""
    if not view.state.is_prepare:
        return view.start_ms
    if not isinstance(view, CoordinatorView):
        return None  # only the log has the time when an outcome was decided
    if view.coordinator_epoch is not None and view.coordinator_epoch == log_epoch:
        return view.record_timestamp_ms
    return led.stamp_ms if led is not None else None


def _open_for_ms(
    view: TransactionView,
    led: LeaderStamp | None,
    stamp_ms: TimestampMs | None,
    threshold: Threshold,
    age_ms: DurationMs,
) -> DurationMs | None:
    if stamp_ms is None or view.start_ms is None:
        return None
    open_for_ms = stamp_ms - view.start_ms + age_ms
    if RULE_OF[threshold.verdict].is_past_timeout:
        if led is None:
            return None
        led_for_ms = threshold.age_ms - view.timeout_ms
        open_for_ms = max(open_for_ms, led.stamp_ms - view.start_ms + led_for_ms)
    return max(NO_TIME, open_for_ms)  # a negative duration does not filter


# How a live transaction will end, by its own timeout. Pure: no I/O, no clock.
#
# The coordinator compares the start of a transaction with its own clock. So our clock proves nothing: it only shows
# whether the timeout has passed by our time. Only a verdict that a coordinator has confirmed counts as proven.


class ExpectedEnd(NamedTuple):
    """The expected end of a live transaction.

    Attributes:
        due_ms: when its timeout is reached; None without a timeout, or if the outcome is decided.
        last_ms: the latest time of an abort by its coordinator: the timeout and one scan interval.
    """

    by: WillEndBy
    due_ms: TimestampMs | None = None
    last_ms: TimestampMs | None = None

    @property
    def ends_by_itself(self) -> EndsByItself:
        """Whether it ends by itself."""
        return ENDS_BY_ITSELF[self.by]


def expected_end(
    described: TransactionView,
    proven: Verdict | None,
    policy: DetectionPolicy,
    now_ms: TimestampMs,
    blocked: Sequence[PartitionReplicas] = (),
) -> ExpectedEnd:
    """The expected end of a live transaction; `proven` is the verdict that its coordinator has confirmed.

    `blocked` has those of its partitions on which no marker can be written.
    """
    if blocked:
        return ExpectedEnd(WillEndBy.REPAIR)
    if described.state.is_prepare:
        return ExpectedEnd(WillEndBy.MARKERS)
    scan_interval_ms = policy.scan_interval_ms(None)
    late_ms = late_after_ms(described, policy, scan_interval_ms)
    if late_ms is None:
        return ExpectedEnd(WillEndBy.CLIENT)
    if described.start_ms is None:
        return ExpectedEnd(WillEndBy.NO_START)
    due_ms = described.start_ms + described.timeout_ms
    last_ms = due_ms + scan_interval_ms
    if proven is not None:
        return ExpectedEnd(RULE_OF[proven].ends_by, due_ms, last_ms)
    is_past = now_ms - described.start_ms > late_ms
    return ExpectedEnd(WillEndBy.TIMEOUT_IN_DOUBT if is_past else WillEndBy.TIMEOUT, due_ms, last_ms)
