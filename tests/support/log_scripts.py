"""Random logs for a partition leader to accept or refuse: what real producers, zombies and coordinators could send.

Law: a script is a list of steps that mean something by themselves (a producer, an epoch relative to the newest one,
...), so that it can be made shorter step by step and still be a script. `commands` writes it down in bytes; whether
the leader takes a batch is the leader's business, and mostly it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import NamedTuple

from support import producer_state_oracle as oracle
from support.batches import a_batch, a_control_batch, a_marker, an_old_entry

PRODUCERS = (3, 4, 5)
_LONGEST = 30
_KINDS = {
    "data": 44,
    "marker": 26,
    "plain": 6,
    "nobody": 3,
    "old": 1,
    "emptied data": 4,
    "emptied marker": 3,
    "truncate": 3,
    "snapshot": 4,
    "restart": 3,
    "expire": 2,
    "lose": 2,
}
_EPOCHS = (0, 0, 0, 0, 0, 0, 0, 1, 1, 2, -1)
_COORDINATOR_EPOCHS = (0, 0, 0, 0, 0, 0, 0, 0, 1, -1)
_ORIGINS = (oracle.CLIENT, oracle.CLIENT, oracle.COORDINATOR)
_FORGOTTEN = {"snapshot": oracle.SNAPSHOT, "restart": oracle.RESTART, "expire": oracle.EXPIRE, "lose": oracle.LOSE}


class ScriptStep(NamedTuple):
    """One thing that happens to the log; what a kind does not need is idle."""

    kind: str
    producer_id: int
    count: int
    epoch_step: int
    coordinator_step: int
    origin: int
    transaction_version: int
    gap: int
    flag: bool  # commit; compressed; a wrong sequence where `gap` is odd


class Command(NamedTuple):
    """A step in bytes: the batch to append if the leader takes it, or how many batches are cut off."""

    sent: bytes
    batch: bytes | None = None
    cut: int = 0


def a_script(random: Random) -> list[ScriptStep]:
    """Some steps, mostly of what is accepted."""
    kinds = random.choices(list(_KINDS), list(_KINDS.values()), k=random.randint(1, _LONGEST))
    return [
        ScriptStep(
            kind,
            random.choice(PRODUCERS),
            random.randint(1, 4),
            random.choice(_EPOCHS),
            random.choice(_COORDINATOR_EPOCHS),
            random.choice(_ORIGINS),
            random.choice((0, 0, 2)),
            random.choice((0, 0, 0, 0, 0, 0, 1, 4)),
            random.random() < 0.5,
        )
        for kind in kinds
    ]


class Writer:
    """Steps to commands: knows what each producer sent last, not what was taken."""

    def __init__(self) -> None:
        self._epochs: dict[int, int] = {}
        self._sequences: dict[int, int] = {}
        self._coordinator_epoch = 0

    def command(self, step: ScriptStep) -> Command:
        """One step in bytes."""
        if step.kind == "truncate":
            return Command(oracle.truncate(step.count), cut=step.count)
        if step.kind in ("expire", "lose"):  # then those who had been fenced can come back
            self._epochs = {producer_id: max(0, epoch - 1) for producer_id, epoch in self._epochs.items()}
        if step.kind in _FORGOTTEN:
            return Command(_FORGOTTEN[step.kind])
        batch = self._batch(step)
        is_data = "marker" not in step.kind
        return Command(
            oracle.append(
                batch,
                origin=step.origin if is_data else oracle.COORDINATOR,
                transaction_version=step.transaction_version,
                gap=step.gap,
            ),
            batch,
        )

    def _batch(self, step: ScriptStep) -> bytes:
        producer_id = step.producer_id
        if step.kind == "old":
            return an_old_entry()
        if step.kind == "nobody":
            return a_batch(producer_id=-1, producer_epoch=-1, base_sequence=-1, transactional=step.flag)
        epoch = max(0, self._epochs.get(producer_id, 0) + step.epoch_step)
        if "marker" in step.kind:
            self._coordinator_epoch = max(0, self._coordinator_epoch + step.coordinator_step)
            if step.kind == "emptied marker":
                return a_control_batch([], producer_id=producer_id, producer_epoch=epoch)
            self._rise(producer_id, epoch)
            return a_marker(
                commit=step.flag,
                producer_id=producer_id,
                producer_epoch=epoch,
                coordinator_epoch=self._coordinator_epoch,
            )
        self._rise(producer_id, epoch)
        sequence = self._sequences.get(producer_id, 0) + (7 if step.flag and step.gap % 2 else 0)
        self._sequences[producer_id] = sequence + step.count
        is_emptied = step.kind == "emptied data"
        return a_batch(
            count=step.count,
            records=[] if is_emptied else None,
            last_offset_delta=step.count - 1,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=step.kind != "plain",
            codec=3 if step.flag and not is_emptied else 0,
        )

    def _rise(self, producer_id: int, epoch: int) -> None:
        if epoch > self._epochs.get(producer_id, -1):
            self._epochs[producer_id] = epoch
            self._sequences[producer_id] = 0


def shortened(steps: Sequence[ScriptStep], fails: Callable[[list[ScriptStep]], bool]) -> list[ScriptStep]:
    """The steps without all that the failure does not need: halves first, then smaller pieces, then single steps."""
    kept = list(steps)
    size = len(kept) // 2
    while size >= 1:
        for begin in _downwards(len(kept), size):
            fewer = kept[:begin] + kept[begin + size :]
            if fails(fewer):
                kept = fewer
        size //= 2
    return kept


def _downwards(length: int, size: int) -> Iterator[int]:
    return iter(range(length - size, -1, -size))
