"""What this process has found itself: the evidence of each hanging span, and the candidate of each transaction. Pure.

Law: findings come only from the state and from fresh reads, and the abort acts only on findings. The events topic is
never a source. An outcome stays true as long as nothing is appended to the data, even if the coordinator has moved on
and no longer shows it. So it is kept, also in a file of this process for the next start. What the file has counts only
after a fresh read has confirmed the same hanging span on the same data. The time that an abort waits then begins again.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field

from txnwatch.state.evidence.confirmation import (
    SpanConfirmation,
)
from txnwatch.state.evidence.proven_hang import Marked, ProvenHang, StoredEvidence, StoredFindings, proven, seen_again
from txnwatch.state.incidents.abort_protocol import HOUR_MS
from txnwatch.state.incidents.confirm import GONE_MS
from txnwatch.state.incidents.wanted import (
    Keep,
    Plan,
)
from txnwatch.state.model.findings import SpanCandidate, TransactionCandidate
from txnwatch.state.model.incident import SpanKey
from txnwatch.state.model.transaction import Marker
from txnwatch.state.model.values import LONG_AGO, BarrierNumber, TimestampMs


def key_of(candidate: SpanCandidate) -> SpanKey:
    """The key of a candidate's span."""
    return candidate.span.topic_id, candidate.partition, candidate.producer_id


@dataclass(slots=True)
class OwnFindings:
    """The evidence of one process: of the findings of the state (state/model/findings.py), those that it has confirmed.

    Attributes:
        before: what an earlier process of this watch has found.
        transactions: the candidates behind the incidents about transactions, by incident id.
        spans: the confirmed hangs, by their span.
        stray_writes: the incidents about stray writes that the log has shown to this process.
        marked: the markers of the last hour that this process has written, or was about to write.
    """

    before: InitVar[StoredFindings | None] = None
    transactions: dict[str, TransactionCandidate] = field(default_factory=dict)
    marked: set[Marked] = field(default_factory=set)
    spans: dict[SpanKey, ProvenHang] = field(default_factory=dict)
    stray_writes: set[str] = field(default_factory=set)
    _incidents: dict[SpanKey, str] = field(default_factory=dict)
    _kept: dict[SpanKey, StoredEvidence] = field(default_factory=dict)
    _markers: dict[SpanKey, Marker] = field(default_factory=dict)
    _is_changed: bool = False
    _from_ms: TimestampMs = LONG_AGO

    def __post_init__(self, before: StoredFindings | None) -> None:
        before = before or StoredFindings()
        self._kept = {evidence.key: evidence for evidence in before.evidence}
        self.marked.update(before.markers)

    def __len__(self) -> int:
        return len(self.spans)

    def get(self, key: SpanKey) -> ProvenHang | None:
        """The evidence of a span."""
        return self.spans.get(key)

    def published_as(self, key: SpanKey, incident_id: str) -> None:
        """Records that this process built the content of the incident about the span."""
        self._incidents[key] = incident_id

    def incident_of(self, key: SpanKey) -> str | None:
        """The incident whose content this process has built; any other incident about the span is a claim."""
        return self._incidents.get(key)

    def has_known(self, key: SpanKey) -> bool:
        """Whether this process has found the span, now or before its last restart."""
        return key in self.spans or key in self._kept

    def repeated(self, candidate: SpanCandidate) -> None:
        """Stores a repeated candidate, perhaps with a newer view of its coordinator."""
        evidence = self.spans.get(key_of(candidate))
        if evidence is not None:
            again = self.spans[key_of(candidate)] = seen_again(evidence, candidate)
            self._is_changed |= again.known != evidence.known

    def confirmed(
        self, candidate: SpanCandidate, confirmation: SpanConfirmation, now_ms: TimestampMs, batch: BarrierNumber
    ) -> ProvenHang:
        """Stores the evidence of a hanging span that was confirmed in a batch; `confirmation.history` must be set."""
        key = key_of(candidate)
        new = proven(candidate, confirmation, self.spans.get(key), self._kept.pop(key, None), now_ms, batch)
        self.spans[key], self._is_changed = new, True
        return new

    def marking(self, incident_id: str, now_ms: TimestampMs) -> Plan[None]:
        """Records a marker before it is written, so that it counts even if the process dies."""
        self.marked = {marked for marked in self.marked if marked[1] > now_ms - HOUR_MS}
        self.marked.add((incident_id, now_ms))
        self._is_changed = True
        yield from self.keep(now_ms)

    def wrote(self, key: SpanKey, marker: Marker) -> None:
        """Records that the marker that closed the span is proven to be ours."""
        self._markers[key] = marker

    def marker(self, key: SpanKey) -> Marker | None:
        """Our own marker that closed the span; None if there is none, or if that is not proven."""
        return self._markers.get(key)

    def over(self, key: SpanKey) -> None:
        """Drops the findings about a span that has ended."""
        self._markers.pop(key, None)
        self.drop_refuted(key)

    def drop_refuted(self, key: SpanKey) -> None:
        """Drops the findings about a span that a fresh read refutes. Its marker stays until the log shows the end."""
        self._incidents.pop(key, None)
        self._is_changed |= self.spans.pop(key, None) is not None or self._kept.pop(key, None) is not None

    def keep(self, now_ms: TimestampMs) -> Plan[None]:
        """Stores changes for the next start. Drops earlier evidence not confirmed within 2 h after the start."""
        self._from_ms = self._from_ms or now_ms
        if self._kept and now_ms - self._from_ms >= GONE_MS:
            self._kept, self._is_changed = {}, True
        if self._is_changed:
            stored = (_stored(key, evidence) for key, evidence in self.spans.items())
            yield Keep(StoredFindings((*stored, *self._kept.values()), tuple(sorted(self.marked))))
        self._is_changed = False


def _stored(key: SpanKey, evidence: ProvenHang) -> StoredEvidence:
    return StoredEvidence(key, evidence.data, evidence.outcome, evidence.witness, evidence.for_good)
