"""What the events and the suggested commands of a command share; and an event with a command that works from here."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import lru_cache, partial

from txnwatch.config import events_flags
from txnwatch.state.incidents.event_builder import named
from txnwatch.state.model.errors import BadEventError, TxnwatchError
from txnwatch.state.model.incident import EventsFlags, IncidentEvent, LatestEvents, PublishedEvents
from txnwatch.state.model.ownership import NO_OWNERS
from txnwatch.state.telling.commands import Origin, as_read
from txnwatch.streaming.client.cluster import Cluster


def origin_of(cluster: Cluster, parsed: argparse.Namespace) -> Origin:
    """The values that events and suggested commands of this run share."""
    owners = getattr(parsed, "owners", NO_OWNERS)
    events = _events_flags(parsed) if hasattr(parsed, "events_topic") else EventsFlags()
    origin = Origin(cluster.known.cluster_id, parsed.bootstrap_server, _properties_path(parsed), events, owners=owners)
    if not hasattr(parsed, "events_topic"):
        return origin
    return replace(origin, published=lru_cache(partial(read_published, cluster, parsed)))


def read_published(cluster: Cluster, parsed: argparse.Namespace) -> PublishedEvents:
    """The last event of each incident on the events topic of the flags; none if no broker shows such a topic."""
    topic = cluster.known.topics.get(parsed.events_topic)
    if topic is None or topic.is_hidden:
        return PublishedEvents()
    from txnwatch.cli.events_access import read_events_topic  # noqa: PLC0415 - only this needs librdkafka

    latest, bad = LatestEvents(), 0
    try:
        for event in read_events_topic(parsed):
            if isinstance(event, IncidentEvent):
                latest.take(event)
            bad += isinstance(event, BadEventError)
    except TxnwatchError as exc:
        return PublishedEvents(tuple(latest.known.values()), str(exc))
    problem = f"{bad} of its records could not be read" if bad else None
    return PublishedEvents(tuple(latest.known.values()), problem)


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
