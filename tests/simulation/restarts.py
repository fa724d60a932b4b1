"""The fault that a crash ends the whole driver: what its lister has remembered is forgotten.

The offsets, the state and what the job has requested are on disk, so they stay. A topic that is not scanned and is
hidden at that moment is not known to the next driver: a transaction that already held it is not reported as hidden
(docs/decisions/0014).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from simulation.view import View
from simulation.world import World
from txnwatch.streaming.source.census_schedule import SnapshotSchedule
from txnwatch.streaming.source.lister import Lister

SHARE_FORGETFUL: Final = 0.5  # of the worlds with crashes


def start_again(lister: Lister, cluster: View, world: World) -> bool:
    """Forgets which topics there were, and the census of the batch: the batch is repeated without one."""
    world.forgotten |= world.hidden
    before = lister.schedule
    lister.schedule = SnapshotSchedule(before.options, before.heal_due_s, behind_due_s=before.behind_due_s)
    lister.absences.clear()
    if cluster.metadata is not None:  # a hidden topic is asked for by its name only while it is known
        shown = {name: topic for name, topic in cluster.metadata.topics.items() if not topic.is_hidden}
        cluster.metadata = replace(cluster.metadata, topics=shown)
    lister.censuses.clear()
    return True
