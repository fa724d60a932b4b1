"""Which hanging transactions may be ended: the policy of an abort.

The settings of every command need it, and not the rules that use it (`rules.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from txnwatch.state.model.incident import ExpectedOutcome
from txnwatch.state.model.values import DurationMs


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
        commit: the marker is a COMMIT: for a proven commit, and for an unknown outcome if `outcomes` has it.
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
