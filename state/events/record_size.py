"""Cuts an event so that it fits into a record of the events topic. Pure: no I/O, no clock.

Clients choose the names of groups and topics: as long as Kafka allows, and as many as they like. A record that is too
large is never delivered, and every later event would wait behind it. So each list of an event is cut to its first
entries; the first consumer groups are the most affected ones.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final

import msgspec

from txnwatch.state.model.incident import IncidentEvent

# Brokers accept 1 MiB by default, librdkafka 1,000,000 bytes. A transactional id can take 200 kB of JSON, and it can
# also be in the command and in two texts.
LIST_BYTES: Final = 60_000


def fitting(event: IncidentEvent) -> IncidentEvent:
    """The event, with its lists cut if they are too long; the same object if they are not."""
    partitions = event.evidence.coordinator_partitions
    lists = (event.pending_partitions, event.consumer_groups, partitions)
    pending, groups, participants = (_first(one) for one in lists)
    if (pending, groups, participants) == tuple(map(len, lists)):
        return event
    return replace(
        event,
        pending_partitions=event.pending_partitions[:pending],
        consumer_groups=event.consumer_groups[:groups],
        evidence=replace(event.evidence, coordinator_partitions=partitions[:participants]),
    )


def _first(values: Sequence[object]) -> int:
    """How many values fit."""
    sizes = (len(json.dumps(msgspec.to_builtins(value))) + 1 for value in values)
    return sum(total <= LIST_BYTES for total in accumulate(sizes))
