"""The explanation of what holds a partition, as plain text. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from txnwatch.cli.event_lines import duration, utc
from txnwatch.sinks.incidents.commands import Origin, end_hanging, explain_id, rehearse_abort
from txnwatch.sinks.incidents.search import Search
from txnwatch.state.evidence.blocked_reads import blocking_order, hidden_records
from txnwatch.state.evidence.confirmation import SpanConfirmation
from txnwatch.state.evidence.expected_end import EndsBy, ExpectedEnd, expected_end
from txnwatch.state.evidence.known_outcome import known_outcome
from txnwatch.state.evidence.outcome_doubts import Doubt
from txnwatch.state.model.description import DescribedTransaction
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.ids import ProducerId, TopicPartition
from txnwatch.state.model.incident import span_incident_id
from txnwatch.state.model.incident_payload import ExpectedOutcome
from txnwatch.state.model.policy import DetectionPolicy
from txnwatch.state.model.ports import PartitionReading
from txnwatch.state.model.quantities import LONG_AGO, TimestampMs, elapsed
from txnwatch.state.model.verdicts import REASON_MEANS, Verdict

_YES, _NO, _NOT_KNOWN = "yes", "no", "unknown"
_OPEN = "open"
_NEVER_SURE = {
    "abort": "Its outcome was an abort: an ABORT marker is right.",
    "commit": "Its commit was acknowledged to the client: an ABORT marker would destroy acknowledged data.",
    "none": "No transaction ever owned the data: an ABORT marker is right.",
    "unknown": "Its outcome (commit or abort) is not known: ask the owner of the application before you end it.",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer, as fields and as text.

    Attributes:
        state: `all_clear`, `idle`, `open`, `unreplicated`, `unproven`, or a verdict.
        ends_by_itself: `yes`, `no`, `unknown`; None if no transaction is open.
        ends_by_ms: the latest time of its end; None if unknown.
    """

    target: str
    state: str
    transactional_id: str | None
    producer_id: ProducerId | None
    since_ms: TimestampMs | None
    hidden_records: int | None
    ends_by_itself: str | None
    ends_by_ms: TimestampMs | None
    next: str | None
    text: tuple[str, ...]

    def lines(self) -> Iterable[str]:
        """The answer as lines of text."""
        return (*self.text, *((f"next: {self.next}",) if self.next is not None else ()))


@dataclass(frozen=True, slots=True)
class Ending:
    """Whether, when and why an open transaction ends by itself."""

    state: str
    by_itself: str
    by_ms: TimestampMs | None
    text: str


def end_of(
    described: DescribedTransaction, proven: Verdict | None, policy: DetectionPolicy, now_ms: TimestampMs
) -> Ending:
    """How a live transaction will end, as text; `proven` is the verdict that its coordinator has confirmed."""
    end = expected_end(described, proven, policy, now_ms)
    by_itself = _NOT_KNOWN if end.ends_by_itself is None else _YES if end.ends_by_itself else _NO
    by_ms = end.last_ms if end.ends_by_itself else None
    return Ending(proven or _OPEN, by_itself, by_ms, _how_it_ends(described, end, now_ms))


def _how_it_ends(described: DescribedTransaction, end: ExpectedEnd, now_ms: TimestampMs) -> str:
    due_ms, last_ms = end.due_ms or LONG_AGO, end.last_ms or LONG_AGO
    match end.by:
        case EndsBy.MARKERS:
            return f"Its outcome is decided ({described.state.outcome}); it ends once the marker is written here."
        case EndsBy.CLIENT:
            return "It is a two-phase transaction: it has no timeout; only its client ends it."
        case EndsBy.NO_START:
            return "When its timeout passes is not known: its coordinator returned no start."
        case EndsBy.LATE_COORDINATOR:
            passed = duration(elapsed(due_ms, now_ms))
            return f"Its timeout passed {passed} ago, and its coordinator has not aborted it."
        case EndsBy.TIMEOUT_IN_DOUBT:
            return (
                f"By this machine's clock its timeout passed {duration(now_ms - due_ms)} ago. By its coordinator's "
                "clock it has not passed, or this is not known: `txnwatch doctor` compares the clocks."
            )
        case EndsBy.TIMEOUT:
            return (
                f"It ends by itself: if its client does not end it, its coordinator aborts it between {utc(due_ms)} "
                f"and {utc(last_ms)} (timeout {duration(described.timeout_ms)}, then the next scan)."
            )


def of_partition(origin: Origin, partition: TopicPartition, found: Search, now_ms: TimestampMs) -> Explanation:
    """Explains what holds the last stable offset of a partition."""
    reading = found.readings[partition]
    hidden = max(0, hidden_records(reading) or 0)
    spans = [span for span, _ in (*found.hanging, *found.covered, *found.unproven)]
    if not spans:
        return _nothing_open(partition, reading, hidden)
    first, *others = blocking_order(spans)
    held = (
        f"read_committed consumers of {partition} stop at offset {reading.last_stable_offset}: "
        f"{hidden} record{'s' if hidden != 1 else ''} up to {reading.high_watermark} are hidden from them, "
        "and the log cleaner stops there too."
    )
    explained = _of_span(origin, first, found, now_ms)
    text = (*explained.text[:1], held, *explained.text[1:], *_others(others, found))
    return replace(explained, hidden_records=hidden, text=text)


def _nothing_open(partition: TopicPartition, reading: PartitionReading, hidden: int) -> Explanation:
    if hidden == 0:
        state = "all_clear"
        end = f"its end, offset {reading.high_watermark}"
        text = [f"{partition}: all clear. No transaction is open; read_committed consumers can read to {end}."]
    else:
        state = "unreplicated"
        stop = f"stop at offset {reading.last_stable_offset} of {reading.high_watermark}"
        text = [
            f"{partition}: no transaction is open, but read_committed consumers {stop}.",
            "The last marker is written, but not yet on all in-sync replicas: check the replicas of this partition.",
        ]
    ends = None if hidden == 0 else _NOT_KNOWN
    return Explanation(str(partition), state, None, None, None, hidden, ends, None, None, tuple(text))


def _of_span(origin: Origin, span: SpanCandidate, found: Search, now_ms: TimestampMs) -> Explanation:
    for candidate, proof in found.hanging:
        if _is_same(candidate, span):
            return _hanging(origin, candidate, proof, now_ms)
    for candidate, described in found.covered:
        if _is_same(candidate, span):
            return _covered(origin, candidate, described, now_ms, found)
    why = next(why for candidate, why in found.unproven if _is_same(candidate, span))
    text = (
        f"{span.partition}: a transaction is open, and its owner is not known.",
        f"{_what(span)} Missing evidence: {why}.",
        "A hang is not proven; `txnwatch doctor` lists missing rights.",
    )
    state = "unproven"
    name = str(span.partition)
    return Explanation(name, state, None, span.producer_id, None, None, _NOT_KNOWN, None, None, text)


def _is_same(one: SpanCandidate, other: SpanCandidate) -> bool:
    return (one.partition, one.producer_id) == (other.partition, other.producer_id)


def _what(span: SpanCandidate) -> str:
    epoch, start = span.span.epoch, span.span.start_offset
    return f"Producer id {span.producer_id}, epoch {epoch}, has a transaction open from offset {start}."


def _hanging(origin: Origin, span: SpanCandidate, proof: SpanConfirmation, now_ms: TimestampMs) -> Explanation:
    assert proof.reason is not None
    described, start = proof.description, span.span.start_offset
    view_id = span.view.transactional_id if span.view is not None else None
    owner = described.transactional_id if described is not None else view_id
    outcome, doubt, _ = known_outcome(span, proof)
    written_ms = span.span.last_timestamp_ms
    owned = f"Its owner is {owner!r}" if owner is not None else "It has no owner"
    state = f", now {described.state} at broker {described.coordinator}" if described is not None else ""
    text = (
        f"{span.partition}: HANGING.",
        f"{_what(span)} {_last_write(written_ms)}",
        f"{owned}{state}. No marker will come: {REASON_MEANS[proof.reason]} ({proof.reason}).",
        "No coordinator will end it: it stays open until txnwatch or an administrator writes a marker.",
        _NEVER_SURE[outcome],
        *(_doubt(origin, span, doubt) if doubt is not None else ()),
    )
    is_known = outcome != ExpectedOutcome.UNKNOWN
    command = end_hanging(origin, span.partition, start, outcome) if is_known else None
    return Explanation(
        target=str(span.partition),
        state=Verdict.HANGING,
        transactional_id=owner,
        producer_id=span.producer_id,
        since_ms=min(written_ms, now_ms) if written_ms is not None else None,
        hidden_records=None,
        ends_by_itself=_NO,
        ends_by_ms=None,
        next=command or rehearse_abort(origin, span.partition, start),
        text=text,
    )


def _doubt(origin: Origin, span: SpanCandidate, doubt: Doubt) -> tuple[str, ...]:
    partition, start = span.partition.partition, span.span.start_offset
    incident_id = span_incident_id(origin.cluster_id, span.span.topic_id, partition, span.producer_id, start)
    return (f"The reason: {doubt.text} ({incident_of_a_watcher(incident_id)}).",)


def incident_of_a_watcher(incident_id: str) -> str:
    """Which incident of a watcher can have an outcome that a command does not know."""
    return f"a watcher reports this hang as incident {incident_id}"


def _last_write(written_ms: TimestampMs | None) -> str:
    if written_ms is None:
        return "Its last write has no timestamp."
    return f"Its last write was at {utc(written_ms)} by its client's clock."


def _covered(
    origin: Origin, span: SpanCandidate, described: DescribedTransaction, now_ms: TimestampMs, found: Search
) -> Explanation:
    end = end_of(described, verdict_of(described, found), found.policy, now_ms)
    name = described.transactional_id
    head = f"{span.partition}: {end.state}. Its open transaction is in state {described.state}."
    began = since(described.start_ms, now_ms)
    owner = f"Its owner is {name!r}, at broker {described.coordinator}: {described.state}{began}."
    return Explanation(
        target=str(span.partition),
        state=end.state,
        transactional_id=name,
        producer_id=span.producer_id,
        since_ms=described.start_ms,
        hidden_records=None,
        ends_by_itself=end.by_itself,
        ends_by_ms=end.by_ms,
        next=explain_id(origin, name),
        text=(head, _what(span), owner, end.text),
    )


def since(time_ms: TimestampMs | None, now_ms: TimestampMs) -> str:
    """A start and how long ago it was, behind a state; nothing if the start is not known."""
    return f" since {utc(time_ms)} ({duration(now_ms - time_ms)} ago)" if time_ms is not None else ""


def verdict_of(described: DescribedTransaction, found: Search) -> Verdict | None:
    """The proven verdict about a live transaction as a whole; None without one."""
    name = described.transactional_id
    return next((one.verdict for one, _ in found.overdue if one.view.transactional_id == name), None)


def _others(others: Sequence[SpanCandidate], found: Search) -> list[str]:
    """The open spans after the first: when the first has ended, the next one holds the last stable offset."""
    hanging = {(span.partition, span.producer_id) for span, _ in found.hanging}
    return [
        f"Also open, at a higher offset: {'HANGING, ' if (span.partition, span.producer_id) in hanging else ''}"
        f"producer id {span.producer_id} from offset {span.span.start_offset}."
        for span in others
    ]
