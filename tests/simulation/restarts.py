"""The fault that a crash ends the whole driver: what its lister has remembered is forgotten.

The offsets, the state and what the job has requested are on disk, so they stay.
"""

from __future__ import annotations

from typing import Final

from txnwatch.streaming.source.census_schedule import SnapshotSchedule
from txnwatch.streaming.source.lister import Lister

SHARE_FORGETFUL: Final = 0.5  # of the worlds with crashes


def start_again(lister: Lister) -> bool:
    """Forgets which topics there were, and the census of the batch: the batch is repeated without one."""
    before = lister.schedule
    lister.schedule = SnapshotSchedule(before.options, before.heal_due_s, behind_due_s=before.behind_due_s)
    lister.absences.clear()
    lister._censuses.clear()
    return True
