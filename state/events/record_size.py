"""An event as it fits into a record of the events topic. Pure.

Clients name groups and topics, as long as Kafka allows and as many as they like. A record that is too large is never
delivered, and every later event would wait behind it. So each list of an event is cut to its first entries: of the
groups those are the ones hurt most.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, Final

from txnwatch.state.model.incident import IncidentEvent

# Brokers take 1 MiB by default, librdkafka 1,000,000 bytes. A transactional id can take 200 kB of JSON, and it can
# stand in the command and in two texts as well.
LIST_BYTES: Final = 60_000
_PLACES: Final = "coordinator_partitions"


def fitting(event: IncidentEvent) -> IncidentEvent:
    """The event, its lists cut where they are too long; the event itself where they are not."""
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
    """How many fit."""
    return sum(total <= LIST_BYTES for total in accumulate(len(json.dumps(value)) + 1 for value in values))
