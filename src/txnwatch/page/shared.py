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


def shared(known: Knowledge) -> dict[str, Any]:
    """The roots of several incidents with their incidents, and the hurt groups, with limits."""
    found, hurt = _roots(known), hurt_groups(_urgent(known))
    behind = ({"behind": _behind(one.incidents), "more": _more(one.incidents)} for one in found)
    return {
        "roots": [{**_root(one), **those} for one, those in zip(found[:ROOTS], behind, strict=False)],
        "more_roots": max(0, len(found) - ROOTS),
        "groups": [_group(known, one) for one in hurt[:GROUPS]],
        "more_groups": max(0, len(hurt) - GROUPS),
    }


def first_roots(known: Knowledge) -> dict[str, Any]:
    """The first roots alone, for the picture."""
    found = _roots(known)
    return {"roots": [_root(one) for one in found[:FIRST]], "more": max(0, len(found) - FIRST)}


def _urgent(known: Knowledge) -> list[IncidentEvent]:
    return [event for event in known.open_incidents if event.severity is not Severity.INFO]


def _roots(known: Knowledge) -> list[SharedRoot]:
    return shared_roots(_urgent(known), lambda event: map(str, known.spans.held_by(event)))


def _behind(incidents: Sequence[IncidentEvent]) -> list[dict[str, Any]]:
    return [_incident(event) for event in incidents[:_NAMED]]


def _more(incidents: Sequence[IncidentEvent]) -> int:
    return max(0, len(incidents) - _NAMED)


def _root(one: SharedRoot) -> dict[str, Any]:
    first = one.incidents[0]
    is_id = one.kind is RootKind.TRANSACTIONAL_ID
    return {
        "kind": _KINDS[one.kind],
        "name": str(log_numbered(int(one.name))) if one.kind is RootKind.LOG_PARTITION else name(one.name),
        "transactional_id": id_for_address(one.name) if is_id else None,
        "producer_id": first.producer_id if is_id else None,
        "incidents": len(one.incidents),
        "partitions": len(one.partitions),
        "groups": len(one.groups),
        "since_ms": min(event.open_since_ms for event in one.incidents),
    }


_KINDS: Final = {
    RootKind.TRANSACTIONAL_ID: "transactional id",
    RootKind.LOG_PARTITION: "log partition",
    RootKind.COORDINATOR: "coordinator, broker",
    RootKind.LEADER: "leader, broker",
}


def _group(known: Knowledge, one: HurtGroup) -> dict[str, Any]:
    return {
        "name": name(one.name),
        "state": "stopped" if one.is_stopped else "at risk",
        "owner": owner_of_group(known.store.origin, one.name),
        "behind": _behind(one.incidents),
        "more": _more(one.incidents),
    }


def _incident(event: IncidentEvent) -> dict[str, Any]:
    place = f"{event.topic}-{event.partition}" if event.topic is not None else holder(event)
    return {"id": event.incident_id, "tag": tag(event), "place": name(place)}
