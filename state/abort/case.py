"""The inputs of a decision about ending a hanging transaction: values only, no decisions."""

from __future__ import annotations

from dataclasses import dataclass

from txnwatch.state.evidence.confirmation import SpanConfirmation
from txnwatch.state.evidence.known_outcome import Outcome
from txnwatch.state.evidence.outcome_doubts import Doubt
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.incident import SpanKey
from txnwatch.state.model.incident_payload import ExpectedOutcome
from txnwatch.state.model.ports import ActiveProducer
from txnwatch.state.model.quantities import NO_TIME, DurationMs, Offset, TimestampMs
from txnwatch.state.model.transaction import SpanData, Witness


@dataclass(frozen=True, slots=True)
class AbortPolicy:
    """Which hanging transactions may be ended.

    Attributes:
        after_ms: minimum time since this process proved the hang, so that the alert comes first.
        topics, deny_topics: regular expressions for whole topic names; None denies nothing.
        id_prefixes, deny_id_prefixes: prefixes of transactional ids; an empty allow list allows all. A transaction
            whose id is not known is refused if either list is set.
        budget_per_hour: maximum number of markers in any hour; None for no limit.
        breaker_incidents: maximum number of transactions that this process finds hanging at the same time; more of them
            mean a larger problem, and nothing is ended. None for no limit.
        outcomes: expected outcomes for which a marker may be written.
        commit: the marker is a COMMIT; only allowed if that is the proven outcome.
    """

    after_ms: DurationMs = DurationMs(300_000)
    topics: str = ".*"
    deny_topics: str | None = None
    id_prefixes: tuple[str, ...] = ()
    deny_id_prefixes: tuple[str, ...] = ()
    budget_per_hour: int | None = 10
    breaker_incidents: int | None = 20
    outcomes: frozenset[ExpectedOutcome] = frozenset({ExpectedOutcome.ABORT, ExpectedOutcome.NONE})
    commit: bool = False


def operator_policy(*, commit: bool, may_lose: bool) -> AbortPolicy:
    """The policy of an operator: no waiting time, lists or budgets, and an unknown outcome is allowed.

    `may_lose` also allows an ABORT marker for data whose commit was acknowledged.
    """
    outcomes = set(ExpectedOutcome) if may_lose else set(ExpectedOutcome) - {ExpectedOutcome.COMMIT}
    return AbortPolicy(
        after_ms=NO_TIME,
        budget_per_hour=None,
        breaker_incidents=None,
        outcomes=frozenset(outcomes),
        commit=commit,
    )


@dataclass(frozen=True, slots=True)
class Usage:
    """Counts so far, and the state of the breaker; `tripped` is why the breaker is open, None if it is not."""

    markers_last_hour: int = 0
    open_hanging: int = 0
    tripped: str | None = None


@dataclass(frozen=True, slots=True)
class ProvenHang:
    """What this process itself has found about a hanging transaction. Events and other stores are never a source.

    Attributes:
        candidate: the last candidate from the state.
        row: the producer's row at the partition's leader when the outcome was found.
        outcome: the expected outcome; it applies to the data that `row` describes.
        witness: what the coordinators' log showed when the outcome was derived. The coordinator may have moved on
            since.
        since_ms: when this process confirmed the hang for the first time, by our clock.
        doubt: why the outcome is unknown; None if it is known.
    """

    candidate: SpanCandidate
    row: ActiveProducer
    outcome: ExpectedOutcome
    witness: Witness | None
    since_ms: TimestampMs
    doubt: Doubt | None = None

    @property
    def start_offset(self) -> Offset:
        """The first offset of the open data."""
        return self.row.start_offset

    @property
    def known(self) -> Outcome:
        """The outcome with its doubt."""
        return Outcome(self.outcome, self.doubt)

    @property
    def data(self) -> SpanData:
        """What identifies the data; if it is unchanged, nothing was appended."""
        return self.row.data


@dataclass(frozen=True, slots=True)
class StoredEvidence:
    """What outlives a process about a hanging transaction: its outcome. It counts after a fresh read of the same data.

    Attributes:
        key: the span.
        data, outcome, witness: as in ProvenHang.
    """

    key: SpanKey
    data: SpanData
    outcome: ExpectedOutcome
    witness: Witness | None


@dataclass(frozen=True, slots=True)
class Case:
    """All inputs of a decision.

    Attributes:
        evidence: None until this process has proven the hang itself.
        found: the fresh read, None if there was none yet.
    """

    evidence: ProvenHang | None
    found: SpanConfirmation | None
    policy: AbortPolicy
    usage: Usage
    now_ms: TimestampMs

    @property
    def proven(self) -> ProvenHang:
        """The evidence; only for rules after NOT_PROVEN_HERE, which checks that there is some."""
        assert self.evidence is not None
        return self.evidence

    @property
    def owners(self) -> frozenset[str]:
        """All transactional ids that the state or the coordinator has named as the owner."""
        witness = self.proven.witness
        views = (self.proven.candidate.view, witness.view if witness is not None else None)
        names = {view.transactional_id for view in views if view is not None}
        if self.found is not None and self.found.description is not None:
            names.add(self.found.description.transactional_id)
        return frozenset(names)
