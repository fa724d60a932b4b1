"""What `explain` says about a partition and about a transactional id, as fields and as plain text.

Pure: no I/O, no clock. explain.py reads what these functions get.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from txnwatch.cli.explain_positions import GroupPosition
from txnwatch.cli.output import duration, utc
from txnwatch.state.abort.fencing import identity_of, last_door, log_named
from txnwatch.state.evidence.confirmation import SpanConfirmation
from txnwatch.state.evidence.hurt_groups import GroupsAround
from txnwatch.state.evidence.past_ends import CAUSE_MEANS, PastEnd
from txnwatch.state.evidence.read_committed import hidden_records
from txnwatch.state.evidence.screening import ExpectedEnd, Search, expected_end, held_by, open_data
from txnwatch.state.evidence.written import Written, written
from txnwatch.state.incidents.event_builder import span_event, transaction_event
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.incident import ExpectedOutcome, OutcomeDoubt
from txnwatch.state.model.partition_replicas import NOTHING_AT_RISK, AtRisk
from txnwatch.state.model.ports import PartitionReading
from txnwatch.state.model.transaction import DescribedTransaction, TransactionState, epoch_text
from txnwatch.state.model.values import (
    CONSUMER_OFFSETS_TOPIC,
    FIRST_OFFSET,
    Offset,
    ProducerId,
    TimestampMs,
    TopicPartition,
)
from txnwatch.state.model.verdicts import (
    ENDS_BY_ITSELF,
    RULE_OF,
    TWO_PHASE_TIMEOUT_MS,
    VERDICTS,
    DetectionPolicy,
    EndsByItself,
    Verdict,
    WillEndBy,
    is_two_phase,
)
from txnwatch.state.telling.commands import (
    Origin,
    abort_marker,
    describe_producers,
    explain_id,
    explain_partition,
    fence,
    rehearse_end,
)
from txnwatch.state.telling.hurt import affected_lines, held_text, waiting_lines
from txnwatch.state.telling.published import tell_found
from txnwatch.state.telling.renderings import first_command, lines, once_looked, sentences
from txnwatch.state.telling.replica_words import last_lines
from txnwatch.state.telling.statements import (
    SOONER_OF_HEALTHY,
    SOONER_OF_TWO_PHASE,
    StatementKind,
    Told,
    ended_text,
    markers_again,
    sooner,
    tell,
    tell_end,
)
from txnwatch.state.text import cut, quoted
from txnwatch.streaming.admin.transactions import DescribedWithLog

# What holds a partition.

OPEN, ALL_CLEAR, UNPROVEN, UNREPLICATED = "open", "all_clear", "unproven", "unreplicated"
NO_GROUPS = GroupsAround()


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerByHand:
    """A marker that no coordinator has written, as JSON.

    Attributes:
        by: who has written it, by the events topic; None if only the log shows the marker.
        announced_ms: when, by the events topic.
        incident_id: the incident on the events topic.
    """

    partition: str
    producer_id: ProducerId
    is_commit: bool
    marker_offset: Offset
    written_ms: TimestampMs
    by: str | None = None
    announced_ms: TimestampMs | None = None
    incident_id: str | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer, as fields and as text.

    Attributes:
        state: `all_clear`, `idle`, `contended`, `open`, `unreplicated`, `unproven`, `expired`, `moved`, `superseded`,
            or a verdict; `error_word` and `not_checked` for a target that has no transaction to look at.
        ends_by_itself: `yes`, `no`, `unknown`; None if no transaction is open.
        ends_by_ms: the latest time of its end; None if unknown.
        topic, partition: of the open data that is the answer, wherever it is; else those of the target.
        group_id: of a target that is a consumer group.
        transaction_state: the state of the transactional id at its coordinator; None if it is not known.
        expected_outcome: of a hanging transaction.
        published_outcome, published_by: the same, as a watcher has published it, if this command does not know it.
        partitions: those of the transaction, by its coordinator.
        owner: the team to call, by the table of owners.
        application: what has made the transactional id.
        affected_groups: the groups that stop at the partition's last stable offset if they read with read_committed.
        waiting_groups: the groups whose committed offsets are pending in an open transaction.
        marker_by_hand: a marker of the last day that no coordinator has written.
        positions: of a group, where it is on its partitions.
        told: what is said about an incident; its steps follow the text.
    """

    target: str
    state: str
    transactional_id: str | None = None
    producer_id: ProducerId | None = None
    topic: str | None = None
    partition: int | None = None
    group_id: str | None = None
    since_ms: TimestampMs | None = None
    hidden_records: int | None = None
    ends_by_itself: str | None = None
    ends_by_ms: TimestampMs | None = None
    transaction_state: str | None = None
    expected_outcome: str | None = None
    published_outcome: str | None = None
    published_by: str | None = None
    partitions: tuple[str, ...] = ()
    owner: str | None = None
    contact: str | None = None
    application: str | None = None
    next: str | None = None
    text: tuple[str, ...] = ()
    affected_groups: tuple[str, ...] = ()
    waiting_groups: tuple[str, ...] = ()
    marker_by_hand: MarkerByHand | None = None
    positions: tuple[GroupPosition, ...] = ()
    told: tuple[Told, ...] = ()

    def lines(self) -> Iterable[str]:
        """The answer as lines of text."""
        steps = lines(statement for statement in self.told if statement.kind is StatementKind.NEXT)
        return (*self.text, *(steps or ([f"next: {self.next}"] if self.next is not None else [])))


@dataclass(frozen=True, slots=True)
class Ending:
    """The state of an open transaction, its expected end, and its partitions that are at risk."""

    state: str
    expected: ExpectedEnd
    at_risk: AtRisk

    @property
    def by_itself(self) -> EndsByItself:
        """Whether it ends by itself."""
        return self.expected.ends_by_itself

    @property
    def by_ms(self) -> TimestampMs | None:
        """The latest time of its end; None if it is not known that it ends by itself."""
        return self.expected.last_ms if self.by_itself is EndsByItself.YES else None

    @property
    def is_usual(self) -> bool:
        """Whether it ends by itself, and has no verdict."""
        return self.state == OPEN and self.by_itself is EndsByItself.YES


def end_of(
    described: DescribedTransaction,
    proven: Verdict | None,
    policy: DetectionPolicy,
    now_ms: TimestampMs,
    at_risk: AtRisk = NOTHING_AT_RISK,
) -> Ending:
    """How a live transaction will end; `proven` is the verdict that its coordinator has confirmed."""
    return Ending(proven or OPEN, expected_end(described, proven, policy, now_ms, at_risk.blocked), at_risk)


def of_partition(
    origin: Origin, partition: TopicPartition, search: Search, now_ms: TimestampMs, groups: GroupsAround = NO_GROUPS
) -> Explanation:
    """Explains what holds the last stable offset of a partition."""
    reading = search.readings[partition]
    hidden = max(0, hidden_records(reading) or 0)
    ordered = open_in(search)
    if not ordered:
        return _nothing_open(partition, reading, hidden)
    first, *others = ordered
    held = held_text(partition, reading.last_stable_offset, reading.high_watermark, hidden)
    explained = of_span(origin, first, search, now_ms)
    waiting = [group for span in ordered for group in groups.waiting_for(span.start)]
    affected = groups.affected.get(partition, ())
    hurt = (
        *affected_lines(affected, reading.last_stable_offset or FIRST_OFFSET),
        *waiting_lines(groups.waiting_for(first.start)),
        *(f"Not all groups are known: {problem}." for problem in groups.problems),
    )
    text = (*explained.text[:1], held, *hurt, *explained.text[1:], *_others(origin, partition, others, search, groups))
    return replace(
        explained,
        hidden_records=hidden,
        text=text,
        affected_groups=tuple(group.group_id for group in affected),
        waiting_groups=tuple(dict.fromkeys(group.group_id for group in waiting)),
    )


def open_in(search: Search) -> list[SpanCandidate]:
    """The open spans of a search; of each partition, the one that holds the last stable offset is the first."""
    return blocking_order(span for span, _ in (*search.hanging, *search.covered, *search.unproven))


def blocking_order(spans: Iterable[SpanCandidate]) -> list[SpanCandidate]:
    """The open spans of a partition: the first holds the last stable offset, and each next one after it has ended."""
    return sorted(spans, key=lambda span: span.span.start_offset)


_BADNESS = (
    str(Verdict.HANGING),
    UNPROVEN,
    *(str(rule.verdict) for rule in VERDICTS if rule.verdict is not Verdict.HANGING),
    OPEN,
)


def badness(state: str) -> int:
    """The place of the state of an open span: a lower one is worse."""
    return _BADNESS.index(state)


def worst_first(spans: Iterable[SpanCandidate], search: Search) -> list[tuple[SpanCandidate, str]]:
    """Open spans with their states: what hangs, what is not proven, the verdicts, what is healthy; else as given."""
    verdicts = {transaction.view.transactional_id: str(transaction.verdict) for transaction, _ in search.overdue}
    states = {
        (span.partition, span.producer_id): state
        for span, state in (
            *((span, verdicts.get(described.transactional_id, OPEN)) for span, described in search.covered),
            *((span, UNPROVEN) for span, _ in search.unproven),
            *((span, str(Verdict.HANGING)) for span, _ in search.hanging),
        )
    }
    spans_and_states = [(span, states[span.partition, span.producer_id]) for span in spans]
    return sorted(spans_and_states, key=lambda pair: badness(pair[1]))


def _nothing_open(partition: TopicPartition, reading: PartitionReading, hidden: int) -> Explanation:
    if hidden == 0:
        state = ALL_CLEAR
        end = f"its end, offset {reading.high_watermark}"
        text = [f"{partition}: all clear. No transaction is open; read_committed consumers can read to {end}."]
    else:
        state = UNREPLICATED
        stop = f"stop at offset {reading.last_stable_offset} of {reading.high_watermark}"
        text = [
            f"{partition}: no transaction is open, but read_committed consumers {stop}.",
            "The last marker is written, but not yet on all in-sync replicas: check the replicas of this partition.",
        ]
    ends = None if hidden == 0 else EndsByItself.UNKNOWN
    return Explanation(
        str(partition), state, **partition._asdict(), hidden_records=hidden, ends_by_itself=ends, text=tuple(text)
    )


def of_span(origin: Origin, span: SpanCandidate, search: Search, now_ms: TimestampMs) -> Explanation:
    """Explains one open span: its owner, and whether it ends by itself."""
    for candidate, proof in search.hanging:
        if _is_same(candidate, span):
            return _hanging(origin, candidate, proof, now_ms, search.at_risk.of(*held_by(proof.description, candidate)))
    for candidate, described in search.covered:
        if _is_same(candidate, span):
            return _covered(origin, candidate, described, now_ms, search)
    why = next(why for candidate, why in search.unproven if _is_same(candidate, span))
    at_risk = search.at_risk.of([span.partition], None)
    told = tell_end(ExpectedEnd(WillEndBy.REPAIR if at_risk.blocked else WillEndBy.NO_OWNER), at_risk.blocked)
    text = (
        f"{span.partition}: a transaction is open, and its owner is not known.",
        f"{_what(span)} Missing evidence: {why}.",
        "A hang is not proven; `txnwatch doctor` lists missing rights.",
        *_said(told),
        *last_lines(at_risk.last),
    )
    return Explanation(
        str(span.partition),
        UNPROVEN,
        producer_id=span.producer_id,
        **span.partition._asdict(),
        ends_by_itself=EndsByItself.UNKNOWN,
        text=text,
        told=told,
    )


def _is_same(span: SpanCandidate, other: SpanCandidate) -> bool:
    return (span.partition, span.producer_id) == (other.partition, other.producer_id)


def _what(span: SpanCandidate) -> str:
    epoch, start = span.span.epoch, span.span.start_offset
    return f"Producer id {span.producer_id}, epoch {epoch}, has a transaction open from offset {start}."


_BEHIND_IT = (StatementKind.WHY, StatementKind.OUTCOME, StatementKind.SAFE, StatementKind.ENDS)


def _said(told: Iterable[Told]) -> Iterator[str]:
    """What is said behind what a transaction holds, as lines."""
    return (statement.text for statement in told if statement.kind in _BEHIND_IT)


def _hanging(
    origin: Origin, span: SpanCandidate, proof: SpanConfirmation, now_ms: TimestampMs, at_risk: AtRisk
) -> Explanation:
    event = span_event(origin, span, proof, None, now_ms)
    is_known = event.outcome_doubt is OutcomeDoubt.ONGOING_MOVED
    telling = tell_found(origin, event, at_risk.blocked)
    rehearsed = rehearse_end(origin, event, proof.description, telling.published_outcome)
    step = abort_marker(origin, span.start.place) if is_known else rehearsed
    told = once_looked(telling.told, step)
    (holds,) = sentences(told, StatementKind.HOLDS).values()
    at = written(span, proof)
    is_unknown = event.expected_outcome is ExpectedOutcome.UNKNOWN
    return Explanation(
        target=str(span.partition),
        state=Verdict.HANGING,
        transactional_id=event.transactional_id,
        producer_id=span.producer_id,
        **span.partition._asdict(),
        since_ms=at.at_ms(now_ms),
        ends_by_itself=ENDS_BY_ITSELF[RULE_OF[event.verdict].ends_by],
        transaction_state=str(event.transaction_state) if event.transaction_state is not None else None,
        expected_outcome=str(event.expected_outcome),
        published_outcome=telling.published_outcome,
        published_by=telling.published_by,
        partitions=event.evidence.coordinator_partitions,
        next=first_command(told),
        text=(
            f"{span.partition}: HANGING.",
            f"{holds} {_last_write(span.partition, at)}",
            *_said(told),
            *last_lines(at_risk.last),
            *([f"{incident_of_a_watcher(event.incident_id)}."] if is_unknown else []),
        ),
        told=told,
    )


def incident_of_a_watcher(incident_id: str) -> str:
    """Which incident of a watcher can have an outcome that a command does not know."""
    return f"A watcher reports this hang as incident {incident_id}"


def _last_write(partition: TopicPartition, at: Written) -> str:
    if at.stamp_ms is None:
        return "Its last write has no timestamp."
    clock = "its broker's clock" if partition.topic == CONSUMER_OFFSETS_TOPIC else "its client's clock"
    if not at.is_impossible:
        return f"Its last write was at {utc(at.stamp_ms)} by {clock}."
    after = "was at an unknown time" if at.after_ms is None else f"was after {utc(at.after_ms)} by a broker's clock"
    return (
        f"Its last write {after}: its timestamp, {utc(at.stamp_ms)} by {clock}, cannot be right (or is not in "
        "milliseconds)."
    )


def _covered(
    origin: Origin, span: SpanCandidate, described: DescribedTransaction, now_ms: TimestampMs, search: Search
) -> Explanation:
    end, told = _verdict_on(origin, described, search, now_ms, span)
    name = described.transactional_id
    head = f"{span.partition}: {end.state}. Its open transaction is in state {described.state}."
    began = since(described.start_ms, now_ms)
    owner = f"Its owner is {quoted(name)}, at broker {described.coordinator}: {described.state}{began}."
    explained = _of_live(str(span.partition), described, end, told, (head, _what(span), owner))
    step = explained.next if end.at_risk.blocked else explain_id(origin, name)
    return replace(explained, producer_id=span.producer_id, **span.partition._asdict(), next=step)


def _verdict_on(
    origin: Origin,
    described: DescribedTransaction,
    search: Search,
    now_ms: TimestampMs,
    span: SpanCandidate | None = None,
    is_open: Container[str] | None = None,
) -> tuple[Ending, tuple[Told, ...]]:
    """How a live transaction ends, and what is said about it; `is_open` has the partitions where its data is open."""
    name, at_risk = described.transactional_id, search.at_risk.of(*held_by(described, span))
    pair = next((pair for pair in search.overdue if pair[0].view.transactional_id == name), None)
    end = end_of(described, pair[0].verdict if pair is not None else None, search.policy, now_ms, at_risk)
    if pair is None:
        return end, tell_end(end.expected, at_risk.blocked)
    return end, tell(transaction_event(origin, *pair, now_ms), is_open=is_open, blocked=at_risk.blocked)


def _of_live(
    target: str, described: DescribedTransaction, end: Ending, told: tuple[Told, ...], text: tuple[str, ...]
) -> Explanation:
    """What is known of a live transaction, by its coordinator."""
    return Explanation(
        target=target,
        state=end.state,
        transactional_id=described.transactional_id,
        producer_id=described.producer_id,
        since_ms=described.start_ms,
        ends_by_itself=end.by_itself,
        ends_by_ms=end.by_ms,
        transaction_state=str(described.state),
        partitions=tuple(map(str, sorted(described.partitions))),
        next=first_command(told),
        text=(*text, *_said(told), *last_lines(end.at_risk.last)),
        told=told,
    )


def since(time_ms: TimestampMs | None, now_ms: TimestampMs) -> str:
    """A start and how long ago it was, behind a state; nothing if the start is not known."""
    return f" since {utc(time_ms)} ({duration(now_ms - time_ms)} ago)" if time_ms is not None else ""


_OTHERS = 10


def _others(
    origin: Origin, partition: TopicPartition, others: Sequence[SpanCandidate], search: Search, groups: GroupsAround
) -> list[str]:
    """The open spans after the first, at most _OTHERS, the worst first.

    When the first span has ended, the next one in the log holds the last stable offset.
    """
    ordered = worst_first(others, search)
    lines = [
        line
        for span, state in ordered[:_OTHERS]
        for line in (
            (
                f"Also open, at a higher offset: {'HANGING, ' if state == Verdict.HANGING else ''}"
                f"producer id {span.producer_id} from offset {span.span.start_offset}."
            ),
            *waiting_lines(groups.waiting_for(span.start)),
        )
    ]
    if len(others) > _OTHERS:
        of_them = sum(state == Verdict.HANGING for _, state in ordered)
        hang = f" ({of_them} of all these {'hangs' if of_them == 1 else 'hang'})" if of_them else ""
        lines.append(f"And {len(others) - _OTHERS} more{hang}: `{describe_producers(origin, partition)}` lists them.")
    return lines


# What a transactional id is doing and waits for.


def of_id(
    origin: Origin,
    with_log: DescribedWithLog,
    readings: Iterable[PartitionReading],
    now_ms: TimestampMs,
    search: Search,
    past: Sequence[PastEnd] = (),
    *,
    has_strays: bool = False,
) -> Explanation:
    """Explains what a transactional id is doing.

    `readings` are of its participants, of those of its last transaction, and of all partitions where its producer has
    open data. `search` has what was proven about its live transaction (Searcher.judge). `past` has the ends of its
    transactions that the log still shows. `has_strays` is whether it has open data that no transaction owns.
    """
    described, read = with_log.described, list(readings)
    if described.is_live:
        return _live_id(origin, with_log, read, now_ms, search)
    name, state = described.transactional_id, described.state
    data = open_data(described.producer_id, read)
    ended_ms = with_log.last.timestamp_ms if with_log.last is not None else None
    text = [f"{cut(name)}: {state}. {_did(described, ended_ms, past)}", _producer(with_log)]
    if data.open:
        text.append(f"But its producer has open data on {_names(data.open)}, which no transaction of this id owns.")
    if data.unread:
        text.append(f"It is not known whether it has open data on {_names(data.unread)}: this could not be read.")
    if data.is_nothing_left and not has_strays:
        text.append("It is idle: it waits for nothing.")
    return Explanation(
        target=name,
        state="idle" if data.is_nothing_left else UNPROVEN,
        transactional_id=name,
        producer_id=described.producer_id,
        since_ms=ended_ms,
        transaction_state=str(state),
        next=explain_partition(origin, data.open[0]) if data.open else None,
        text=tuple(text),
    )


def _did(described: DescribedTransaction, updated_ms: TimestampMs | None, past: Sequence[PastEnd]) -> str:
    """What an idle id did last: how its last transaction ended and by whom, and whether it was initialised since."""
    last = past[-1] if past else None
    if described.state is TransactionState.EMPTY:
        at = f" at {utc(updated_ms)}" if updated_ms is not None else ""
        begun = f"It has not begun a transaction since its last InitProducerId{at}."
        return f"{begun} {end_text(last)}" if last is not None else begun
    if last is not None:
        return end_text(last)
    how = {"commit": "committed", "abort": "aborted"}.get(described.state.outcome or "", str(described.state))
    if updated_ms is None or described.start_ms is None:
        return f"Its last transaction was {how}."
    return f"Its last transaction was {how} at {utc(updated_ms)}, after {duration(updated_ms - described.start_ms)}."


def end_text(end: PastEnd) -> str:
    """How the last transaction of an id ended, and by whom; an end that is only decided may still not come."""
    decided, cause = end.decided, CAUSE_MEANS[end.cause]
    ended_ms = end.complete_ms if end.complete_ms is not None else decided.record_timestamp_ms
    after = f", after {duration(ended_ms - decided.start_ms)}" if decided.start_ms is not None else ""
    how, complete = ("committed", "CompleteCommit") if end.is_commit else ("aborted", "CompleteAbort")
    if end.complete_ms is not None:
        return f"Its last transaction was {how} at {utc(ended_ms)}{after}: {cause}."
    return (
        f"Its last transaction is being {how} since {utc(ended_ms)}{after}: {cause}. "
        f"The decision can still be taken back until the log has {complete}."
    )


def _live_id(
    origin: Origin,
    with_log: DescribedWithLog,
    readings: list[PartitionReading],
    now_ms: TimestampMs,
    search: Search,
) -> Explanation:
    described = with_log.described
    data = open_data(described.producer_id, readings, among=described.partitions)
    is_open = data.places(described.partitions)
    end, told = _verdict_on(origin, described, search, now_ms, is_open=is_open)
    if not end.at_risk.blocked:
        told = (
            *(statement for statement in told if statement.kind is not StatementKind.NEXT),
            *_sooner(origin, with_log, end),
        )
    if end.state == OPEN and described.state.is_prepare and data.closed:
        told = (Told(StatementKind.WHY, ended_text(len(described.partitions), len(data.closed))), *told)
    since_ms = described.start_ms
    if described.state.is_prepare and with_log.last is not None:
        since_ms = with_log.last.timestamp_ms
    holds = open_data(described.producer_id, readings).open
    unread = [f"{partition} ({problem})" for partition, problem in data.unread.items()]
    text = (
        f"{cut(described.transactional_id)}: {described.state}{since(since_ms, now_ms)}.",
        _producer(with_log),
        f"It holds {_names(sorted(described.partitions)) or 'nothing'}; open data is on {_names(holds) or 'none'}.",
        *([f"Not reachable: {', '.join(unread)}."] if unread else []),
    )
    return replace(_of_live(described.transactional_id, described, end, told, text), since_ms=since_ms)


def _sooner(origin: Origin, with_log: DescribedWithLog, end: Ending) -> Iterator[Told]:
    """What ends a transaction before it ends by itself, and what that costs; a command unless its client prepared it.

    A fence would abort a prepared two-phase transaction, which its client may want to commit.
    """
    described = with_log.described
    door, identity = last_door(with_log.log, described.coordinator), identity_of(described)
    if is_two_phase(described):
        yield Told(StatementKind.NEXT, SOONER_OF_TWO_PHASE)
    elif described.state.is_prepare:
        yield Told(StatementKind.NEXT, markers_again(door))
    elif identity is not None:
        is_late = any(rule.verdict == end.state and rule.is_past_timeout for rule in VERDICTS)
        text = SOONER_OF_HEALTHY if end.is_usual else sooner(str(described.state), door, is_past_timeout=is_late)
        yield Told(StatementKind.NEXT, text, fence(origin, described.transactional_id, identity))


def _producer(with_log: DescribedWithLog) -> str:
    described = with_log.described
    timeout = "none" if described.timeout_ms == TWO_PHASE_TIMEOUT_MS else duration(described.timeout_ms)
    producer = f"Producer id {described.producer_id}, {epoch_text(described.producer_epoch)}"
    coordinator = f"Its coordinator is broker {described.coordinator}, the leader of {log_named(with_log.log)}."
    return f"{producer}, timeout {timeout}. {coordinator}"


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(str(partition) for partition in partitions)
