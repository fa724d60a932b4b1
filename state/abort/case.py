"""What a decision about ending a hanging transaction rests on: values, no decisions."""

from __future__ import annotations

from dataclasses import dataclass

from txnwatch.state.evidence.confirmation import SpanConfirmation
from txnwatch.state.evidence.outcome import ABORT, NONE
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.ports import ActiveProducer


@dataclass(frozen=True, slots=True)
class AbortPolicy:
    """What may be ended.

    Attributes:
        after_ms: since this process proved the hang; the alert comes first.
        topics, deny_topics: regular expressions for whole names; None denies nothing.
        id_prefixes, deny_id_prefixes: of transactional ids; an empty allow list allows all. A transaction without an
            id is on no allow list, and any deny list may be about it.
        budget_per_hour: markers in any hour; None for no limit.
        breaker_incidents: transactions that this process finds to hang at once, above which something larger is wrong.
        outcomes: expected outcomes that a marker may decide.
        commit: the marker is a COMMIT; only where that is the proven outcome.
    """

    after_ms: int = 300_000
    topics: str = ".*"
    deny_topics: str | None = None
    id_prefixes: tuple[str, ...] = ()
    deny_id_prefixes: tuple[str, ...] = ()
    budget_per_hour: int | None = 10
    breaker_incidents: int | None = 20
    outcomes: frozenset[str] = frozenset({ABORT, NONE})
    commit: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """What has been done so far, and how things are; `tripped` is why the breaker is open, None if it is not."""

    markers_last_hour: int = 0
    open_hanging: int = 0
    tripped: str | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What this process has found itself about a hanging transaction. No event and no other store is a source of it.

    Attributes:
        candidate: what the state said last.
        row: the producer at the partition's leader when the outcome was found.
        outcome: how the transaction would have ended; it is true of the data that `row` describes.
        witness: the candidate that the outcome rests on. The coordinator may have moved on since.
        since_ms: when this process confirmed the hang for the first time, by our clock.
    """

    candidate: SpanCandidate
    row: ActiveProducer
    outcome: str
    witness: SpanCandidate
    since_ms: int

    @property
    def start_offset(self) -> int:
        """The first offset of the open data."""
        return self.row.txn_start_offset

    @property
    def data(self) -> tuple[int, int, int]:
        """Start, epoch and last sequence: as long as they stay the same, nothing was appended."""
        return data_of(self.row)


def data_of(row: ActiveProducer) -> tuple[int, int, int]:
    """What says of which data a leader's row is."""
    return row.txn_start_offset, row.producer_epoch, row.last_sequence


@dataclass(frozen=True, slots=True)
class Case:
    """Everything a decision rests on.

    Attributes:
        evidence: None as long as this process has not proven the hang itself.
        found: the fresh read, None as long as there was none.
    """

    evidence: Evidence | None
    found: SpanConfirmation | None
    policy: AbortPolicy
    usage: Usage
    now_ms: int

    @property
    def proven(self) -> Evidence:
        """The evidence, for every rule behind the one that asks for it."""
        assert self.evidence is not None
        return self.evidence

    @property
    def owners(self) -> frozenset[str]:
        """Every transactional id that the state or the coordinator has named as the owner."""
        views = (self.proven.candidate.view, self.proven.witness.view)
        names = {view.transactional_id for view in views if view is not None}
        if self.found is not None and self.found.description is not None:
            names.add(self.found.description.transactional_id)
        return frozenset(names)
