"""What several open incidents share: one transactional id, one log partition, one broker; and who waits for several.

A root is what leads to several incidents. A coarser root counts only if it is behind more than each finer one: a log
partition if several ids are on it, a broker if it is behind more than half of all incidents. It is where to look first,
and no proof of a cause. Pure: no I/O, no clock.

Apart: the page alone shows it, and what is said about incidents belongs here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from txnwatch.state.model.incident import GroupState, IncidentEvent

LEAST: Final = 2


class RootKind(IntEnum):
    """What a root is, the finest first."""

    TRANSACTIONAL_ID = 0
    LOG_PARTITION = 1
    COORDINATOR = 2
    LEADER = 3


class SharedRoot(NamedTuple):
    """A root, with what it holds.

    Attributes:
        name: the id, or the number of the log partition or of the broker.
        partitions: that its incidents hold back.
        groups: that stand, wait or are at risk.
    """

    kind: RootKind
    name: str
    incidents: Sequence[IncidentEvent]
    partitions: frozenset[str]
    groups: frozenset[str]


class HurtGroup(NamedTuple):
    """A consumer group, with all incidents that hurt it; `is_stopped`: by one of them it gets no further."""

    name: str
    is_stopped: bool
    incidents: Sequence[IncidentEvent]


Held = Callable[[IncidentEvent], Iterable[str]]


def shared_roots(incidents: Sequence[IncidentEvent], held: Held) -> list[SharedRoot]:
    """The roots of several incidents, the one that holds most first; `held` gives the partitions of an incident."""
    by_root: dict[tuple[RootKind, str], list[IncidentEvent]] = {}
    for event in incidents:
        for root in _roots_of(event):
            by_root.setdefault(root, []).append(event)
    seen: set[frozenset[str]] = set()
    by_incident: dict[str, tuple[Iterable[str], Iterable[str]]] = {}
    roots = []
    for (kind, name), members in sorted(by_root.items(), key=lambda item: item[0]):
        ids = frozenset(event.incident_id for event in members)
        is_broker = kind in {RootKind.COORDINATOR, RootKind.LEADER}
        is_most = not is_broker or 2 * len(members) > len(incidents)
        if len(members) >= LEAST and is_most and ids not in seen:
            seen.add(ids)
            whole = [by_incident.get(event.incident_id) or _whole(by_incident, event, held) for event in members]
            partitions = frozenset[str]().union(*(places for places, _ in whole))
            groups = frozenset[str]().union(*(names for _, names in whole))
            roots.append(SharedRoot(kind, name, members, partitions, groups))
    return sorted(roots, key=lambda root: (-len(root.partitions), -len(root.groups), root.kind, root.name))


def _whole(
    by_incident: dict[str, tuple[Iterable[str], Iterable[str]]], event: IncidentEvent, held: Held
) -> tuple[Iterable[str], Iterable[str]]:
    """The partitions and the groups of an incident, made once for all its roots."""
    by_incident[event.incident_id] = parts = tuple(held(event)), tuple(_groups_of(event))
    return parts


def _roots_of(event: IncidentEvent) -> Iterator[tuple[RootKind, str]]:
    if event.transactional_id is not None:
        yield RootKind.TRANSACTIONAL_ID, event.transactional_id
    if event.evidence.coordinator_log is not None:
        yield RootKind.LOG_PARTITION, event.evidence.coordinator_log.partition("@")[0]
    if event.coordinator_id is not None:
        yield RootKind.COORDINATOR, str(event.coordinator_id)
    if event.evidence.leader is not None:
        yield RootKind.LEADER, str(event.evidence.leader)


def hurt_groups(incidents: Iterable[IncidentEvent]) -> list[HurtGroup]:
    """Each group once, with all incidents that hurt it: those that stand first, then those behind most incidents."""
    by_name: dict[str, list[IncidentEvent]] = {}
    stopped: set[str] = set()
    for event in incidents:
        groups = _groups_of(event)
        stopped.update(name for name, is_stopped in groups.items() if is_stopped)
        for name in groups:
            by_name.setdefault(name, []).append(event)
    rows = [HurtGroup(name, name in stopped, members) for name, members in by_name.items()]
    return sorted(rows, key=lambda group: (not group.is_stopped, -len(group.incidents), group.name))


def _groups_of(event: IncidentEvent) -> Mapping[str, bool]:
    """The groups of an incident, and whether each of them gets no further."""
    affected = {group.group_id: group.state is GroupState.STOPPED for group in event.consumer_groups}
    return {**affected, **dict.fromkeys((group.group_id for group in event.waiting_groups), True)}
