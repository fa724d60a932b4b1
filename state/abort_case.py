"""What a decision about ending a hanging transaction rests on: values, no decisions."""

from __future__ import annotations

from dataclasses import dataclass

from txnwatch.state.confirmation import SpanConfirmation
from txnwatch.state.incident import IncidentEvent
from txnwatch.state.outcome import ABORT, NONE


@dataclass(frozen=True, slots=True)
class AbortPolicy:
    """What may be ended.

    Attributes:
        after_ms: since the incident was opened; the alert comes first.
        topics, deny_topics: regular expressions for whole names; None denies nothing.
        id_prefixes, deny_id_prefixes: of transactional ids; an empty allow list allows all. An incident without an
            id is on no allow list, and any deny list may be about it.
        budget_per_hour: markers in any hour; None for no limit.
        breaker_incidents: hanging incidents open at once, above which something larger is wrong.
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
class Case:
    """Everything a decision rests on; `found` is the fresh read, None as long as there was none."""

    incident: IncidentEvent
    found: SpanConfirmation | None
    policy: AbortPolicy
    usage: Usage
    now_ms: int
