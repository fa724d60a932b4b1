"""The fault that a crash ends the whole driver: what its lister has remembered is forgotten.

The offsets, the state and what the job has requested are on disk, so they stay. A topic that is not scanned and is
hidden at that moment is not known to the next driver: a transaction that already held it is not reported as hidden
(docs/decisions/0014).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from txnwatch.streaming.source.census_schedule import SnapshotSchedule

if TYPE_CHECKING:
    from simulation.reader import WorldReader

STARTS_AGAIN: Final = "driver starts again"
SHARE_FORGETFUL: Final = 0.5  # of the worlds with crashes


def start_again(reader: WorldReader) -> bool:
    """Forgets which topics there were, and the census of the batch: the batch is repeated without one."""
    lister, cluster, before = reader.lister, reader.view, reader.lister.schedule
    reader.world.forgotten |= reader.world.hidden
    lister.schedule = SnapshotSchedule(before.options, before.heal_due_s, behind_due_s=before.behind_due_s)
    lister.absences.clear()
    lister.censuses.clear()
    lister.looked_s = -math.inf
    named = {partition.topic for partition in (*reader.done.positions, *reader.done.looked)}
    if cluster.metadata is not None:  # a hidden topic is asked for by its name only while it is known
        topics = cluster.metadata.topics.items()
        known = {name: topic for name, topic in topics if not topic.is_hidden or name in named}
        cluster.metadata = replace(cluster.metadata, topics=known)
    return True
