"""The fault of a coordinator whose append fails, and whose record stays in the log (REQUEST_TIMED_OUT and others).

The record is replicated later, so everybody reads it. Only the coordinator's memory goes back, and its client gets an
error. A coordinator that takes the log over afterwards finds the record like any other.

Its chances come from a source of their own, so a world without it stays the same.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from txnwatch.state.model.transaction import TransactionState

if TYPE_CHECKING:
    from simulation.world import World

FAILED_APPEND = "an append that failed stays"
_SHARES = (0.05, 0.3)
_COMPLETE = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})


def fail_appends(world: World) -> None:
    """Perhaps: of the records that the followers have copied, the coordinators take some for failed."""
    chance = random.Random(f"{FAILED_APPEND} {world.rng.getstate()[1][:8]}")
    if chance.random() >= world.setting.failing or FAILED_APPEND not in world.setting.faults:
        return
    coordinators, share = world.coordinators, chance.choice(_SHARES)
    committed = coordinators.committed

    def committed_but_failed(log: int) -> None:
        watermark = world.logs[log].high_watermark
        for known in coordinators.transactions.values():
            pending = known.pending
            if known.log != log or pending is None or pending.offset >= watermark or world.is_healing:
                continue
            if pending.value is None and not known.is_idle:
                continue  # a coordinator appends tombstones for idle ids only; an id that is forgotten is another fault
            if chance.random() < share:
                known.pending = None
                known.is_complete_in_log = pending.value is not None and pending.value.state in _COMPLETE
                world.seen[FAILED_APPEND] += 1
                state = pending.value.state if pending.value is not None else "a tombstone"
                world.note(f"{known.transactional_id}: the append of {state}@{pending.offset} has failed, and it stays")
        committed(log)

    coordinators.committed = committed_but_failed  # type: ignore[method-assign]
