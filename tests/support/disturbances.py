"""What disturbs a watch and its cluster without being a fault of a transaction: disks, processes, network, clocks.

What the page says about a row is made from the lines and signs that its test checks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from support.disturbance_signs import (
    BACK,
    DOWN,
    FORWARD,
    RESTARTED,
    SLOW,
    THROTTLED,
    UNPROVEN,
    WAITING,
    Sign,
)
from support.disturbed_world import NODES, DisturbedWorld
from support.quotas import CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, quota
from support.small_disks import full

_SLOW_MS = 100
_TEN_MINUTES_MS, _HOUR_MS = 600_000, 3_600_000
_FEW_BYTES, _LITTLE_TIME = 2_000, 0.1
LONG_S = 45.0  # longer than the 30 s after which a state that persists is reported


@dataclass(frozen=True)
class Disturbance:
    """One row of the table.

    Attributes:
        fault: what is done, for the page.
        make: in effect while the block runs.
        says: lines of the log, of which one must come; `...` stands for any text. Empty if no line has to come.
        then_says: further lines that must come, all of them.
        sees: what the metrics must show meanwhile.
        lasts_s: how long it is in effect.
        node: who leads the partition of the hang.
        is_cut_off: the partition of the hang cannot be written to meanwhile, so the hang is made just before.
        is_found_meanwhile: the hang must be found while the disturbance is in effect.
        says_at_the_end: the line that comes once the watch notices the end; before it, healthy metrics are old ones.
    """

    name: str
    fault: str
    make: Callable[[DisturbedWorld], AbstractContextManager[None]]
    says: tuple[str, ...] = ()
    then_says: tuple[str, ...] = ()
    sees: tuple[Sign, ...] = ()
    lasts_s: float = 20.0
    node: int = 2
    is_cut_off: bool = False
    is_found_meanwhile: bool = False
    says_at_the_end: str | None = None

    @property
    def shown(self) -> str:
        """What an operator sees meanwhile, for the page."""
        lines = ", ".join(filter(None, [" or ".join(map(_quoted, self.says)), *map(_quoted, self.then_says)]))
        return "; ".join([*([f"log: {lines}"] if lines else []), *(sign.words for sign in self.sees)]) or "nothing"


def _quoted(line: str) -> str:
    return f"`{line}`"


def full_checkpoint(world: DisturbedWorld) -> AbstractContextManager[None]:
    return full(world.watch.pid, world.checkpoint_disk)


def full_scratch(world: DisturbedWorld) -> AbstractContextManager[None]:
    return full(world.watch.pid, world.scratch_disk)


@contextlib.contextmanager
def slow_disks(world: DisturbedWorld) -> Iterator[None]:
    world.ours.set(delay_ms=_SLOW_MS)
    try:
        yield
    finally:
        world.ours.set()


@contextlib.contextmanager
def paused(world: DisturbedWorld, node: int) -> Iterator[None]:
    world.kafka.broker(node).pause()
    try:
        yield
    finally:
        world.kafka.broker(node).resume()


def cut(world: DisturbedWorld, *nodes: int) -> AbstractContextManager[None]:
    return world.kafka.cut(nodes)


def cut_from_redis(world: DisturbedWorld) -> AbstractContextManager[None]:
    return world.to_redis.cut()


@contextlib.contextmanager
def our_clock(world: DisturbedWorld, offset_ms: int) -> Iterator[None]:
    world.ours.set(offset_ms=offset_ms)
    try:
        yield
    finally:
        world.ours.set()


@contextlib.contextmanager
def their_clocks(world: DisturbedWorld, offset_ms: int) -> Iterator[None]:
    for node in NODES:
        world.clocks[node].set(offset_ms=offset_ms)
    try:
        yield
    finally:
        for node in NODES:
            world.clocks[node].set()


def few_bytes(world: DisturbedWorld) -> AbstractContextManager[None]:
    return quota(world.cluster, CONSUMER_BYTE_RATE, _FEW_BYTES)


def little_time(world: DisturbedWorld) -> AbstractContextManager[None]:
    return quota(world.cluster, REQUEST_PERCENTAGE, _LITTLE_TIME)


_NO_SPACE = "the query ended: ...No space left on device...; restarting it"
_UNDECIDED = "... can be neither confirmed nor refuted now: coordinator ...: no answer in time"
_SET_FORWARD = "the query ended: the clock of this machine was set forward by 3600 s; restarting it"
_SET_BACK = "the query ended: the clock of this machine was set back by 3600 s; restarting it"
_NOT_PROVEN = "partitions not listed, or not read to their ends, so nothing is proven there: ..."
_SLOW_BATCHES = "micro-batches are slow: for 30 s, each has taken 2 s or more, the last one ..."
_KEPT = "...; ... events are kept and delivered later"
_AHEAD = "the clock of broker ... is at least ... s ahead of the clock of this machine; ..."
_BEHIND = "the clock of broker ... is at least ... s behind the clock of this machine; ..."
_THROTTLED = "brokers throttle txnwatch by a quota (...): ..."
_NOT_COMPLETED = "the current micro-batch has not completed for 15 s"

DISTURBANCES: tuple[Disturbance, ...] = (
    Disturbance(
        "full_checkpoint",
        "the disk of the checkpoint is full",
        full_checkpoint,
        says=(_NO_SPACE,),
        sees=(DOWN, RESTARTED),
    ),
    Disturbance(
        "full_scratch",
        "the disk of Spark's local directories is full",
        full_scratch,
        says=(_NO_SPACE,),
        sees=(DOWN, RESTARTED),
    ),
    Disturbance(
        "slow_disks",
        "each change of a file of txnwatch takes 100 ms",
        slow_disks,
        says=(_SLOW_BATCHES,),
        sees=(SLOW,),
        lasts_s=LONG_S,
        is_found_meanwhile=True,
    ),
    Disturbance(
        "paused_leader",
        "the leader of the partition is suspended (SIGSTOP)",
        partial(paused, node=2),
        is_cut_off=True,
        says=(_NOT_PROVEN,),
        sees=(UNPROVEN,),
        lasts_s=LONG_S,
    ),
    Disturbance(
        "paused_coordinator",
        "the broker with all coordinators and the events topic is suspended (SIGSTOP)",
        partial(paused, node=1),
        says=(_UNDECIDED,),
        sees=(UNPROVEN,),
    ),
    Disturbance(
        "cut_from_leader",
        "the network to the leader of the partition is cut; nothing is refused, no answer comes",
        lambda world: cut(world, 2),
        says=(_NOT_PROVEN,),
        sees=(UNPROVEN,),
        lasts_s=LONG_S,
    ),
    Disturbance(
        "cut_from_another",
        "another broker, which leads only other data partitions, is cut off from the network",
        lambda world: cut(world, 2),
        node=1,
        says=(_UNDECIDED,),
        sees=(UNPROVEN,),
    ),
    Disturbance(
        "cut_from_all",
        "the network to all brokers is cut",
        lambda world: cut(world, *NODES),
        says=("no broker of ... has answered for 15 s", _NOT_COMPLETED),
        sees=(DOWN,),
    ),
    Disturbance(
        "cut_from_redis",
        "the network to Redis is cut; nothing is refused, no answer comes",
        cut_from_redis,
        says=(_KEPT,),
        sees=(WAITING,),
        is_found_meanwhile=True,
    ),
    Disturbance(
        "little_time",
        f"a quota of {_LITTLE_TIME:g} % of the brokers' request threads (`request_percentage`)",
        little_time,
        says=(_THROTTLED,),
        sees=(THROTTLED,),
    ),
    Disturbance(
        "our_clock_ahead",
        "the clock of txnwatch is set forward by an hour, and back after 20 s",
        partial(our_clock, offset_ms=_HOUR_MS),
        says=(_SET_FORWARD,),
        says_at_the_end=_SET_BACK,
    ),
    Disturbance(
        "our_clock_back",
        "the clock of txnwatch is set back by an hour, and forward after 20 s",
        partial(our_clock, offset_ms=-_HOUR_MS),
        says=(_SET_BACK,),
        says_at_the_end=_SET_FORWARD,
    ),
    Disturbance(
        "their_clocks_ahead",
        "the clocks of all brokers are set forward by 10 minutes, and back after 20 s",
        partial(their_clocks, offset_ms=_TEN_MINUTES_MS),
        says=(_AHEAD,),
        sees=(FORWARD,),
        is_found_meanwhile=True,
    ),
    Disturbance(
        "their_clocks_back",
        "the clocks of all brokers are set back by 10 minutes, and forward after 20 s",
        partial(their_clocks, offset_ms=-_TEN_MINUTES_MS),
        says=(_BEHIND,),
        sees=(BACK,),
        is_found_meanwhile=True,
    ),
    Disturbance(
        "few_bytes",
        f"a quota of {_FEW_BYTES:,} bytes per second (`consumer_byte_rate`), far below the write rate",
        few_bytes,
        lasts_s=LONG_S,
        says=(_THROTTLED,),
        then_says=(_NOT_COMPLETED,),
        sees=(THROTTLED,),
    ),
)
