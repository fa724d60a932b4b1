"""Which incidents are of one cause, and which of them is the worst: a storm is told as one. Pure: no I/O, no clock.

Incidents of one cause have the same cluster, verdict, reason and owner, and the same topic; one about a whole
transaction has the beginning of its transactional id instead. Applications number their ids at the end, so what is left
without numbers and uuids there names the application. It depends on the id alone, so it never changes for an incident.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
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


# The folds of a list of incidents, as the page shows them.
#
# Law: each incident is in exactly one fold. Incidents of one verdict, reason and owner have one cause if they share the
# topic or the name of the application. Of these two, an incident takes the one that it shares with more others: a topic
# whose writers all hang, or an application that hangs on many topics. An id chosen by a client decides what is shown
# together, never what is done.


class FoldCause(NamedTuple):
    """What the incidents of a fold share; of the topic and the prefix, one is None, or both."""

    verdict: Verdict
    reason: Reason | None
    owner: str
    topic: str | None = None
    prefix: str | None = None


class FoldedIncidents(NamedTuple):
    """Incidents of one cause, in the order in which they were given: the worst is the first."""

    cause: FoldCause
    incidents: Sequence[IncidentEvent]


def owner_label(event: IncidentEvent) -> str:
    """The team of an incident, as its label has it."""
    return event.owner.team if event.owner is not None else WITHOUT_OWNER


def prefix_of(event: IncidentEvent) -> str | None:
    """The name of the application in a transactional id; None without an id, empty if nothing of it is a name."""
    if event.transactional_id is None:
        return None
    found = id_prefix(event.application.name if event.application is not None else event.transactional_id)
    return "" if _INSTANCE.match(found) else found


def fold(incidents: Iterable[IncidentEvent]) -> list[FoldedIncidents]:
    """The incidents by their causes; the fold of the first incident is the first."""
    both = [(event, _by_topic(event), _by_prefix(event)) for event in incidents]
    sizes = Counter(cause for _, *causes in both for cause in causes if cause is not None)
    found: dict[FoldCause, list[IncidentEvent]] = {}
    for event, by_topic, by_prefix in both:
        causes = [cause for cause in (by_topic, by_prefix) if cause is not None]
        cause = max(causes, key=lambda one: sizes[one], default=_common(event))
        found.setdefault(cause, []).append(event)
    return [FoldedIncidents(cause, events) for cause, events in found.items()]


def _common(event: IncidentEvent) -> FoldCause:
    return FoldCause(event.verdict, event.reason, owner_label(event))


def _by_topic(event: IncidentEvent) -> FoldCause | None:
    return _common(event)._replace(topic=event.topic) if event.topic is not None else None


def _by_prefix(event: IncidentEvent) -> FoldCause | None:
    prefix = prefix_of(event)
    return _common(event)._replace(prefix=prefix) if prefix else None
