"""Which incidents are of one cause, and which of them is the worst: a storm is told as one. Pure: no I/O, no clock.

Law: each incident is in exactly one fold. Incidents of one cluster, verdict, reason and owner have one cause if they
share the topic or the name of the application. Of these two, an incident takes the one that it shares with more others:
a topic whose writers all hang, or an application that hangs on many topics. An id chosen by a client decides what is
told together, never what is done.

Applications number their ids at the end, so what is left without numbers and uuids there names the application.
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
    """What the incidents of a fold share; of the topic and the prefix, one is None, or both."""

    cluster: str
    verdict: Verdict
    reason: Reason | None
    owner: str
    topic: str | None = None
    prefix: str | None = None


class FoldedIncidents(NamedTuple):
    """Incidents of one cause, in the order in which they were given: the worst is the first."""

    cause: Cause
    incidents: Sequence[IncidentEvent]


def fold(incidents: Iterable[IncidentEvent]) -> list[FoldedIncidents]:
    """The incidents by their causes; the fold of the first incident is the first."""
    candidates = [(event, _causes(event)) for event in incidents]
    sizes = Counter(cause for _, causes in candidates for cause in causes)
    folds: dict[Cause, list[IncidentEvent]] = {}
    for event, causes in candidates:
        folds.setdefault(max(causes, key=sizes.__getitem__), []).append(event)
    return [FoldedIncidents(cause, events) for cause, events in folds.items()]


def _causes(event: IncidentEvent) -> list[Cause]:
    """By the topic and by the application; what is left without either."""
    common = Cause(event.cluster, event.verdict, event.reason, owner_label(event))
    by_topic = [common._replace(topic=event.topic)] if event.topic is not None else []
    prefix = prefix_of(event)
    return by_topic + ([common._replace(prefix=prefix)] if prefix else []) or [common]


def owner_label(event: IncidentEvent) -> str:
    """The team of an incident, as its label has it."""
    return event.owner.team if event.owner is not None else WITHOUT_OWNER


def prefix_of(event: IncidentEvent) -> str | None:
    """The name of the application in a transactional id; None without an id, empty if nothing of it is a name."""
    if event.transactional_id is None:
        return None
    prefix = id_prefix(event.application.name if event.application is not None else event.transactional_id)
    return "" if _INSTANCE.match(prefix) else prefix


def id_prefix(transactional_id: str) -> str:
    """The id without the numbers and uuids at its end; the whole id if nothing else is left."""
    if len(transactional_id) > _LONGEST:  # no framework makes such an id
        return transactional_id
    prefix = transactional_id
    for _ in range(_PARTS):
        prefix = _INSTANCE.sub("", prefix)
    return prefix.rstrip("-_.:") or transactional_id


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
