"""Across the open incidents, on the page: their roots, and each hurt group once. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from txnwatch.page.knowledge import Knowledge
from txnwatch.page.words import holder, id_for_address, name, owner_of_group, tag
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import log_numbered
from txnwatch.state.model.verdicts import Severity
from txnwatch.state.telling.roots import HurtGroup, RootKind, SharedRoot, hurt_groups, shared_roots

FIRST: Final = 3
ROOTS: Final = 50
GROUPS: Final = 200
_NAMED: Final = 8


def shared(knowledge: Knowledge) -> dict[str, Any]:
    """The roots of several incidents with their incidents, and the hurt groups, with limits."""
    roots, hurt = _roots(knowledge), hurt_groups(_urgent(knowledge))
    behind = ({"behind": _behind(root.incidents), "more": _more(root.incidents)} for root in roots)
    return {
        "roots": [{**_root(root), **those} for root, those in zip(roots[:ROOTS], behind, strict=False)],
        "more_roots": max(0, len(roots) - ROOTS),
        "groups": [_group(knowledge, group) for group in hurt[:GROUPS]],
        "more_groups": max(0, len(hurt) - GROUPS),
    }


def first_roots(knowledge: Knowledge) -> dict[str, Any]:
    """The first roots alone, for the picture."""
    roots = _roots(knowledge)
    return {"roots": [_root(root) for root in roots[:FIRST]], "more": max(0, len(roots) - FIRST)}


def _urgent(knowledge: Knowledge) -> list[IncidentEvent]:
    return [event for event in knowledge.open_incidents if event.severity is not Severity.INFO]


def _roots(knowledge: Knowledge) -> list[SharedRoot]:
    return shared_roots(_urgent(knowledge), lambda event: map(str, knowledge.spans.held_by(event)))


def _behind(incidents: Sequence[IncidentEvent]) -> list[dict[str, Any]]:
    return [_incident(event) for event in incidents[:_NAMED]]


def _more(incidents: Sequence[IncidentEvent]) -> int:
    return max(0, len(incidents) - _NAMED)


def _root(root: SharedRoot) -> dict[str, Any]:
    first = root.incidents[0]
    is_id = root.kind is RootKind.TRANSACTIONAL_ID
    return {
        "kind": _KINDS[root.kind],
        "name": str(log_numbered(int(root.name))) if root.kind is RootKind.LOG_PARTITION else name(root.name),
        "transactional_id": id_for_address(root.name) if is_id else None,
        "producer_id": first.producer_id if is_id else None,
        "incidents": len(root.incidents),
        "partitions": len(root.partitions),
        "groups": len(root.groups),
        "since_ms": min(event.open_since_ms for event in root.incidents),
    }


_KINDS: Final = {
    RootKind.TRANSACTIONAL_ID: "transactional id",
    RootKind.LOG_PARTITION: "log partition",
    RootKind.COORDINATOR: "coordinator, broker",
    RootKind.LEADER: "leader, broker",
}


def _group(knowledge: Knowledge, group: HurtGroup) -> dict[str, Any]:
    return {
        "name": name(group.name),
        "state": "stopped" if group.is_stopped else "at risk",
        "owner": owner_of_group(knowledge.store.origin, group.name),
        "behind": _behind(group.incidents),
        "more": _more(group.incidents),
    }


def _incident(event: IncidentEvent) -> dict[str, Any]:
    place = f"{event.topic}-{event.partition}" if event.topic is not None else holder(event)
    return {"id": event.incident_id, "tag": tag(event), "place": name(place)}
