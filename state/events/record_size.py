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
from typing import Any, Final

from txnwatch.state.model.incident import IncidentEvent

# Brokers accept 1 MiB by default, librdkafka 1,000,000 bytes. A transactional id can take 200 kB of JSON, and it can
# also be in the command and in two texts.
LIST_BYTES: Final = 60_000
_PLACES: Final = "coordinator_partitions"


def fitting(event: IncidentEvent) -> IncidentEvent:
    """The event, with its lists cut if they are too long; the same object if they are not."""
    places = event.evidence.get(_PLACES) or ()
    pending, groups, known = (_first(one) for one in (event.pending_partitions, event.consumer_groups, places))
    if (pending, groups, known) == (len(event.pending_partitions), len(event.consumer_groups), len(places)):
        return event
    return replace(
        event,
        pending_partitions=event.pending_partitions[:pending],
        consumer_groups=event.consumer_groups[:groups],
        evidence={**event.evidence, _PLACES: places[:known]} if len(places) > known else event.evidence,
    )


def _first(values: Sequence[Any]) -> int:
    """How many values fit."""
    return sum(total <= LIST_BYTES for total in accumulate(len(json.dumps(value)) + 1 for value in values))
