"""What the events and the suggested commands of a command share; and an event with a command that works from here."""

from __future__ import annotations

import argparse

from txnwatch.config import events_flags
from txnwatch.state.incidents.event_builder import named
from txnwatch.state.model.incident import EventsFlags, IncidentEvent
from txnwatch.state.model.ownership import NO_OWNERS
from txnwatch.state.telling.commands import Origin, as_read
from txnwatch.streaming.client.cluster import Cluster


def origin_of(cluster: Cluster, parsed: argparse.Namespace) -> Origin:
    """The values that events and suggested commands of this run share."""
    owners = getattr(parsed, "owners", NO_OWNERS)
    events = _events_flags(parsed) if hasattr(parsed, "events_topic") else EventsFlags()
    return Origin(cluster.known.cluster_id, parsed.bootstrap_server, _properties_path(parsed), events, owners=owners)


def as_seen_from_here(event: IncidentEvent, parsed: argparse.Namespace) -> IncidentEvent:
    """The event with the owner by the table of this command, and a suggested command that is built here.

    What is stored is not shown: anybody who may write to the events topic or to Redis can store any command and any
    owner. If the cluster's address is unknown, the command is not whole.
    """
    origin = Origin(event.cluster_id, parsed.bootstrap_server or "", _properties_path(parsed))
    return as_read(origin, named(event, parsed.owners))


def _events_flags(parsed: argparse.Namespace) -> EventsFlags:
    """The flags that a suggested command needs to publish its events where this command reads them."""
    return events_flags(parsed.events_topic, parsed.schema_registry_url)


def _properties_path(parsed: argparse.Namespace) -> str | None:
    return str(parsed.command_config) if parsed.command_config is not None else None
