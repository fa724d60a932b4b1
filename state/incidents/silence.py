"""When this process leaves an update to another instance: that one has published the outcome, and this one has none.

Law: an `updated` event does not replace a published outcome by `unknown` while the instance that knows it is there.
Both instances see the same changes. So the one that knows less waits for a minute: if the other instance publishes the
change, nothing is left to publish. An end is published at once: it says how the transaction ended, whoever publishes
it. A decision of the automatic abort is published at once, too.

The other instance's record may be forged. So it counts only as far as it has what this process has found: then the
topic is right, whoever wrote it. Anything else buys a minute at most.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from txnwatch.state.evidence.ending import needs_update
from txnwatch.state.incidents.incident_store import IncidentStore
from txnwatch.state.model.incident import ExpectedOutcome, IncidentEvent, Initiator
from txnwatch.state.model.values import DurationMs, TimestampMs
from txnwatch.state.model.verdicts import Verdict

PATIENCE_MS: Final = DurationMs(60_000)


@dataclass(slots=True)
class Silence:
    """The incidents about which another instance knows more: its last record, and since when this process waits."""

    store: IncidentStore
    _told: dict[str, IncidentEvent] = field(default_factory=dict)
    _waits_since_ms: dict[str, TimestampMs] = field(default_factory=dict)

    def heard(self, record: IncidentEvent, *, agrees: bool) -> None:
        """Takes a new record of another writer. The command of an operator is no instance."""
        is_by_operator = record.action is not None and record.action.initiator is Initiator.OPERATOR
        self._waits_since_ms.pop(record.incident_id, None)
        if agrees and record.is_open and not is_by_operator and record.expected_outcome != ExpectedOutcome.UNKNOWN:
            self._told[record.incident_id] = record
        else:
            self._told.pop(record.incident_id, None)

    def is_kept(self, event: IncidentEvent, now_ms: TimestampMs) -> bool:
        """Whether this process does not publish an update now; the next check of open incidents finds it again."""
        told = self._told.get(event.incident_id)
        if told is None or event.verdict != Verdict.HANGING or event.expected_outcome != ExpectedOutcome.UNKNOWN:
            return False
        if not event.is_open:
            return False
        if _has(told, event):
            return True
        since_ms = self._waits_since_ms.setdefault(event.incident_id, now_ms)
        return now_ms - since_ms < PATIENCE_MS

    def forget_ended(self) -> None:
        """Drops what is known of incidents that have ended."""
        known = self.store.known
        self._told = {one: told for one, told in self._told.items() if one in known and known[one].is_open}
        self._waits_since_ms = {one: at_ms for one, at_ms in self._waits_since_ms.items() if one in self._told}


def _has(told: IncidentEvent, event: IncidentEvent) -> bool:
    """Whether a record has the facts of an update, and no others. The outcome, and what follows from it, is not one."""
    facts = replace(
        told,
        expected_outcome=event.expected_outcome,
        suggested_command=event.suggested_command,
        action=event.action,
    )
    if needs_update(facts, event):
        return False
    return not needs_update(replace(event, transactional_id=told.transactional_id), facts)
