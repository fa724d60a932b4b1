"""The brokers' clocks, the true time, and since when what is true: what the verdicts of time are judged by.

Law: a record of the coordinators' log is stamped by the clock of the broker that leads its partition. With every
failover another broker leads, whose clock is another. Draws are made on a fork of the world's numbers, and made alike
whether or not clocks differ: what else happens in a world does not depend on them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from simulation.partition import PartitionLog
from txnwatch.state.model.transaction import CoordinatorView, TransactionState
from txnwatch.streaming.wire.internal_topics import TransactionLogValue

START_MS = 1_700_000_000_000
BROKERS = 3
_APART_MS = (0, 0, 2_000, 62_000, 3_600_000)
_OLD_MS = (0, 0, 45_000, 7 * 86_400_000)


class State(NamedTuple):
    """One state of one transaction: Ongoing is identified by its start, Prepare* by its epoch as well."""

    transactional_id: str
    producer_id: int
    state: TransactionState
    start_ms: int | None
    producer_epoch: int | None

    @classmethod
    def of(cls, transactional_id: str, producer_id: int, logged: CoordinatorView | TransactionLogValue) -> State:
        """The state in a record, or in a view of the detector."""
        epoch = logged.producer_epoch if logged.state.is_prepare else None
        return cls(transactional_id, producer_id, logged.state, logged.start_ms, epoch)


def fork(rng: random.Random) -> random.Random:
    """A copy of the generator; the original does not advance."""
    again = random.Random()
    again.setstate(rng.getstate())
    return again


@dataclass
class WorldClocks:
    """The clocks of a world.

    Attributes:
        now_ms: the true time, and ours.
        ahead_ms: of each broker's clock.
        old_ms: how long the world has stood still before anybody watches.
        since_ms: when each state of a transaction was first appended to the log.
        led_ms: since when each partition of the coordinators' log has been led under an epoch.
    """

    now_ms: int = START_MS
    ahead_ms: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(1, BROKERS + 1), 0))
    old_ms: int = 0
    since_ms: dict[State, int] = field(default_factory=dict)
    led_ms: dict[tuple[int, int], int] = field(default_factory=dict)

    @classmethod
    def drawn(cls, rng: random.Random, *, differ: bool) -> WorldClocks:
        """The clocks of a seed."""
        again = fork(rng)
        old_ms, apart_ms = again.choice(_OLD_MS), again.choice(_APART_MS)
        ahead_ms = {broker: again.randint(-apart_ms, apart_ms) for broker in range(1, BROKERS + 1)}
        return cls(START_MS, ahead_ms, old_ms) if differ else cls()

    def leader(self, log: PartitionLog) -> int:
        """The broker that leads a partition now."""
        return 1 + (log.partition.partition + log.epoch) % BROKERS

    def stamp_ms(self, log: PartitionLog) -> int:
        """The time of the leader's clock now."""
        return self.now_ms + self.ahead_ms[self.leader(log)]

    def logged(self, transactional_id: str, value: TransactionLogValue) -> None:
        """Records that a record is appended now."""
        self.since_ms.setdefault(State.of(transactional_id, value.producer_id, value), self.now_ms)

    def look(self, logs: Iterable[PartitionLog]) -> None:
        """Records which brokers have become leaders."""
        for log in logs:
            self.led_ms.setdefault((log.partition.partition, log.epoch), self.now_ms)
