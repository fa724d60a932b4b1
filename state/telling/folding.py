"""Which incidents are of one cause, and which of them is the worst: a storm is told as one. Pure: no I/O, no clock.

Incidents of one cause have the same cluster, verdict, reason and owner, and the same topic; one about a whole
transaction has the beginning of its transactional id instead. Applications number their ids at the end, so what is left
without numbers and uuids there names the application. It depends on the id alone, so it never changes for an incident.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from txnwatch.state.model.incident import GroupState, IncidentEvent
from txnwatch.state.model.ownership import WITHOUT_OWNER
from txnwatch.state.model.verdicts import Reason, Verdict, rank

_HEX: Final = "[0-9a-fA-F]"
_INSTANCE: Final = re.compile(
    rf"[-_.:]?(?:{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}|{_HEX}{{32}}|[0-9]{{1,19}})\Z"
)
_LONGEST: Final = 1_000
_PARTS: Final = 4


class Cause(NamedTuple):
    """What incidents of one cause have in common.

    Attributes:
        topic: None for incidents about whole transactions.
        id_prefix: the beginning of their transactional ids; empty for incidents about a partition, and without an id.
        team: the owner; `none` if it is not known.
    """

    cluster: str
    verdict: Verdict
    reason: Reason | None
    topic: str | None
    id_prefix: str
    team: str


def cause_of(event: IncidentEvent) -> Cause:
    """What the incident has in common with others."""
    prefix = id_prefix(event.transactional_id or "") if event.topic is None else ""
    team = event.owner.team if event.owner is not None else WITHOUT_OWNER
    return Cause(event.cluster, event.verdict, event.reason, event.topic, prefix, team)


def id_prefix(transactional_id: str) -> str:
    """The id without the numbers and uuids at its end; the whole id if nothing else is left."""
    if len(transactional_id) > _LONGEST:  # no framework makes such an id
        return transactional_id
    found = transactional_id
    for _ in range(_PARTS):
        found = _INSTANCE.sub("", found)
    return found.rstrip("-_.:") or transactional_id


def by_cause(events: Iterable[IncidentEvent]) -> dict[Cause, list[IncidentEvent]]:
    """The incidents of each cause, the worst first; the cause of the worst one is the first."""
    found: dict[Cause, list[IncidentEvent]] = {}
    for event in sorted(events, key=harm):
        found.setdefault(cause_of(event), []).append(event)
    return found


def harm(event: IncidentEvent) -> tuple[bool, int, int, int, int, int, str]:
    """The order by who is hurt, the worst first.

    Open ones first; then by the groups that do not get on, the verdict, the groups at risk, what is hidden, the age.
    """
    stopped = sum(group.state is GroupState.STOPPED for group in event.consumer_groups)
    at_risk = len(event.consumer_groups) - stopped
    hurt = stopped + len(event.waiting_groups)
    hidden = event.hidden_records or 0
    return (
        not event.is_open,
        -hurt,
        rank(event.verdict),
        -at_risk,
        -hidden,
        event.open_since_ms,
        event.incident_id,
    )
