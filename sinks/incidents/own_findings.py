"""What this process has found itself: of each hanging span the evidence, of each transaction what the state said.

Law: only the state and fresh reads put something in here, and only what is in here is acted upon. The events topic
tells what was told; it is never a source. An outcome stays true for as long as nothing is appended to the data, also
when the coordinator has moved on and no longer shows it; so it is kept, and kept in a file of this process's own for
the next start. What the file holds counts only once a fresh read has confirmed the same hang on the same data, and
the time an abort waits begins anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from txnwatch.sinks.incidents.confirm import with_past
from txnwatch.sinks.incidents.confirmation_queue import GONE_MS
from txnwatch.sinks.incidents.event_builder import outcome_of
from txnwatch.state.abort.case import Evidence
from txnwatch.state.abort.decision import HOUR_MS
from txnwatch.state.evidence.confirmation import Answer, SpanConfirmation
from txnwatch.state.evidence.outcome import UNKNOWN, expected_outcome
from txnwatch.state.model.findings import SpanCandidate, TransactionCandidate
from txnwatch.state.model.incident import SpanKey
from txnwatch.state.model.ports import TransactionAdmin
from txnwatch.state.model.transaction import Marker

Marked = tuple[str, int]  # incident, and when its marker was announced


def key_of(candidate: SpanCandidate) -> SpanKey:
    """What a span is known by."""
    return candidate.span.topic_id, candidate.partition, candidate.producer_id


class Kept(NamedTuple):
    """What outlives the process: evidence, and the markers of the last hour."""

    evidence: tuple[Evidence, ...] = ()
    markers: tuple[Marked, ...] = ()


class EvidenceStore(Protocol):
    """Where it does: a place that only this process writes."""

    def load(self) -> Kept:
        """What was kept; nothing where that cannot be read."""

    def keep(self, kept: Kept) -> None:
        """Replaces what is kept."""


@dataclass(slots=True)
class Findings:
    """The evidence of one process.

    Attributes:
        store: None where nothing is to outlive the process.
        transactions: the candidates behind the incidents about transactions, by incident id.
        marked: the markers that this process has written, or has been about to; the latest hour of them.
    """

    store: EvidenceStore | None = None
    transactions: dict[str, TransactionCandidate] = field(default_factory=dict)
    marked: set[Marked] = field(default_factory=set)
    _spans: dict[SpanKey, Evidence] = field(default_factory=dict)
    _incidents: dict[SpanKey, str] = field(default_factory=dict)
    _kept: dict[SpanKey, Evidence] = field(default_factory=dict)
    _markers: dict[SpanKey, Marker] = field(default_factory=dict)
    _is_changed: bool = False
    _from_ms: int = 0

    def __post_init__(self) -> None:
        kept = self.store.load() if self.store is not None else Kept()
        self._kept = {key_of(evidence.candidate): evidence for evidence in kept.evidence}
        self.marked.update(kept.markers)

    def __len__(self) -> int:
        return len(self._spans)

    def get(self, key: SpanKey) -> Evidence | None:
        """What was found of a span."""
        return self._spans.get(key)

    def told_as(self, key: SpanKey, incident_id: str) -> None:
        """This process has itself made what the incident says of the span."""
        self._incidents[key] = incident_id

    def incident_of(self, key: SpanKey) -> str | None:
        """The incident whose content this process has made; whatever else is told of the span is a claim."""
        return self._incidents.get(key)

    def has_known(self, key: SpanKey) -> bool:
        """Whether this process has found it, now or before it was started anew."""
        return key in self._spans or key in self._kept

    def said(self, candidate: SpanCandidate) -> None:
        """The state says it again, perhaps with a later view of its coordinator."""
        found = self._spans.get(key_of(candidate))
        if found is not None:
            self._spans[key_of(candidate)] = replace(found, candidate=candidate)

    def confirmed(self, candidate: SpanCandidate, found: SpanConfirmation, now_ms: int) -> Evidence:
        """A fresh read has confirmed the hang; `found` has the span's past."""
        assert found.producer is not None
        key, outcome = key_of(candidate), outcome_of(candidate, found)
        new = Evidence(candidate, found.producer, outcome, candidate, now_ms)
        before = self._spans.get(key)
        if before is not None and before.start_offset == new.start_offset:
            new = replace(new, since_ms=before.since_ms)
        for earlier in (before, self._kept.pop(key, None)):
            new = _together(new, earlier)
        self._spans[key], self._is_changed = new, True
        return new

    def marking(self, incident_id: str, now_ms: int) -> None:
        """A marker is about to be written; it counts from now on, whatever becomes of us."""
        self.marked = {marked for marked in self.marked if marked[1] > now_ms - HOUR_MS}
        self.marked.add((incident_id, now_ms))
        self._is_changed = True
        self.keep(now_ms)

    def wrote(self, key: SpanKey, marker: Marker) -> None:
        """The marker that closed the span is proven to be ours."""
        self._markers[key] = marker

    def marker(self, key: SpanKey) -> Marker | None:
        """Our own marker that closed the span, None if there is none or that is not proven."""
        return self._markers.get(key)

    def over(self, key: SpanKey) -> None:
        """The span has ended."""
        self._markers.pop(key, None)
        self._incidents.pop(key, None)
        self._is_changed |= self._spans.pop(key, None) is not None or self._kept.pop(key, None) is not None

    def keep(self, now_ms: int) -> None:
        """What has changed, for the next start; what was not confirmed again since this start is let go."""
        self._from_ms = self._from_ms or now_ms
        if self._kept and now_ms - self._from_ms >= GONE_MS:
            self._kept, self._is_changed = {}, True
        if self._is_changed and self.store is not None:
            self.store.keep(Kept((*self._spans.values(), *self._kept.values()), tuple(sorted(self.marked))))
        self._is_changed = False


def _together(new: Evidence, earlier: Evidence | None) -> Evidence:
    """Evidence of the same data: a known outcome stays known, and two that differ are none."""
    if earlier is None or earlier.data != new.data or earlier.outcome == UNKNOWN:
        return new
    if new.outcome == UNKNOWN:
        return replace(new, outcome=earlier.outcome, witness=earlier.witness)
    return new if new.outcome == earlier.outcome else replace(new, outcome=UNKNOWN)


def read_anew(
    admin: TransactionAdmin, evidence: Evidence, found: SpanConfirmation
) -> tuple[Evidence, SpanConfirmation]:
    """The evidence after one more look at the span's past in its partition's log, right before an action.

    The outcome stays only if the log leads to it again, and if what the state says of the coordinator by now does not
    lead to another one. Without an answer the confirmation is none.
    """
    row, candidate = found.producer, evidence.candidate
    if row is None or evidence.outcome == UNKNOWN:
        return evidence, found
    past = with_past(admin, candidate, found).past
    if past.problem is not None:
        return evidence, replace(found, answer=Answer.UNKNOWN, why=past.problem)
    place, epochs = candidate.partition, (row.producer_epoch, row.coordinator_epoch)
    again = expected_outcome(place, epochs[0], evidence.witness.view, past, epochs[1])
    now = expected_outcome(place, epochs[0], candidate.view, past, epochs[1])
    is_same = again == evidence.outcome and now in {UNKNOWN, again}
    return (evidence if is_same else replace(evidence, outcome=UNKNOWN)), found
