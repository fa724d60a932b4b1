"""Incidents of one cause as one: a storm is one row on the page, and one message. Pure: no I/O, no clock.

Law: each incident is in exactly one fold. Incidents of one verdict, reason and owner have one cause if they share the
topic or the name of the application. Of these two, an incident takes the one that it shares with more others: a topic
whose writers all hang, or an application that hangs on many topics. An id chosen by a client decides what is shown
together, never what is done.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.ownership import WITHOUT_OWNER
from txnwatch.state.model.verdicts import Reason, Verdict

_UUID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_INSTANCE: Final = re.compile(rf"(?:[-_.:]?(?:{_UUID}|\d+))+$", re.IGNORECASE)
_LONGEST: Final = 256


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
    """The name of the application in a transactional id, without what tells its instances apart; None without an id."""
    if event.transactional_id is None:
        return None
    name = event.application.name if event.application is not None else event.transactional_id
    return _INSTANCE.sub("", name[:_LONGEST]).rstrip("-_.:")


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
