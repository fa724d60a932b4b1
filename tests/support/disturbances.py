"""What disturbs a watch and its cluster without being a fault of a transaction: disks, processes, network, clocks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from support.disturbed_world import NODES, DisturbedWorld
from support.quotas import CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, quota
from support.small_disks import full

_SLOW_MS = 100
_TEN_MINUTES_MS, _HOUR_MS = 600_000, 3_600_000
_FEW_BYTES, _LITTLE_TIME = 2_000, 0.1


@dataclass(frozen=True)
class Disturbance:
    """One row of the table.

    Attributes:
        fault: what is done, for the page.
        shown: what an operator sees meanwhile, for the page.
        make: in effect while the block runs.
        says: a part of a line of the log that must come; None if none has to.
        lasts_s: how long it is in effect.
        node: who leads the partition of the hang.
        is_cut_off: the partition of the hang cannot be written to meanwhile, so the hang is made just before.
        is_found_meanwhile: the hang must be found while the disturbance is in effect.
        sees: what the metrics must show: down (`txnwatch_up` is 0), unproven partitions, throttled seconds, or nothing.
    """

    name: str
    fault: str
    shown: str
    make: Callable[[DisturbedWorld], AbstractContextManager[None]]
    says: str | None = None
    lasts_s: float = 20.0
    node: int = 2
    is_cut_off: bool = False
    is_found_meanwhile: bool = False
    sees: str | None = None


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


DISTURBANCES: tuple[Disturbance, ...] = (
    Disturbance(
        "full_checkpoint",
        "the disk of the checkpoint is full",
        "log: `the query ended: IOException: No space left on device; restarting it`; `txnwatch_up` is 0, and "
        "`txnwatch_query_starts_total` rises",
        full_checkpoint,
        says="No space left on device; restarting it in",
        sees="down",
    ),
    Disturbance(
        "full_scratch",
        "the disk of Spark's local directories is full",
        "as above; the line can also name the file in the local directory",
        full_scratch,
        says="No space left on device; restarting it in",
        sees="down",
    ),
    Disturbance(
        "slow_disks",
        "each change of a file of txnwatch takes 100 ms",
        "`txnwatch_batch_duration_seconds` rises, and so does the time to a verdict",
        slow_disks,
        lasts_s=40.0,
        is_found_meanwhile=True,
    ),
    Disturbance(
        "paused_leader",
        "the leader of the partition is suspended (SIGSTOP)",
        "log: `gap ...: no leader`; `txnwatch_unproven_partitions` has its partitions",
        partial(paused, node=2),
        is_cut_off=True,
        sees="unproven",
    ),
    Disturbance(
        "paused_coordinator",
        "the broker with all coordinators and the events topic is suspended (SIGSTOP)",
        "log: `... can be neither confirmed nor refuted now: coordinator ...: no answer in time`; "
        "`txnwatch_unproven_partitions` is above 0",
        partial(paused, node=1),
        says="can be neither confirmed nor refuted now",
        sees="unproven",
    ),
    Disturbance(
        "cut_from_leader",
        "the network to the leader of the partition is cut; nothing is refused, no answer comes",
        "`txnwatch_unproven_partitions` has its partitions",
        lambda world: cut(world, 2),
        sees="unproven",
    ),
    Disturbance(
        "cut_from_another",
        "the network to another broker is cut, which leads only other data partitions",
        "as above; log: `... can be neither confirmed nor refuted now: coordinator ...: no answer in time`",
        lambda world: cut(world, 2),
        node=1,
        says="can be neither confirmed nor refuted now",
        sees="unproven",
    ),
    Disturbance(
        "cut_from_all",
        "the network to all brokers is cut",
        "log: `no broker of ... has answered for 15 s`, or, if the cut comes during a micro-batch, `the current "
        "micro-batch has not completed for 15 s`; `txnwatch_up` is 0",
        lambda world: cut(world, *NODES),
        says=" for 15 s",
        sees="down",
    ),
    Disturbance(
        "our_clock_ahead",
        "the clock of txnwatch is set forward by an hour, and back after 20 s",
        "log: `the query ended: the clock of this machine was set forward by 3600 s; restarting it`",
        partial(our_clock, offset_ms=_HOUR_MS),
        says="the clock of this machine was set forward by 3600 s",
    ),
    Disturbance(
        "our_clock_back",
        "the clock of txnwatch is set back by an hour, and forward after 20 s",
        "log: `the query ended: the clock of this machine was set back by 3600 s; restarting it`",
        partial(our_clock, offset_ms=-_HOUR_MS),
        says="the clock of this machine was set back by 3600 s",
    ),
    Disturbance(
        "their_clocks_ahead",
        "the clocks of all brokers are set forward by 10 minutes, and back after 20 s",
        "`txnwatch_broker_clock_offset_seconds` shows the difference",
        partial(their_clocks, offset_ms=_TEN_MINUTES_MS),
        is_found_meanwhile=True,
    ),
    Disturbance(
        "their_clocks_back",
        "the clocks of all brokers are set back by 10 minutes, and forward after 20 s",
        "as above",
        partial(their_clocks, offset_ms=-_TEN_MINUTES_MS),
        is_found_meanwhile=True,
    ),
    Disturbance(
        "few_bytes",
        f"a quota of {_FEW_BYTES:,} bytes per second (`consumer_byte_rate`), far below the write rate",
        "log: `brokers throttle txnwatch by a quota`, then `the current micro-batch has not completed for 15 s`; "
        "`txnwatch_throttled_seconds_total` rises",
        few_bytes,
        lasts_s=40.0,
        says="brokers throttle txnwatch by a quota",
    ),
    Disturbance(
        "little_time",
        f"a quota of {_LITTLE_TIME:g} % of the brokers' request threads (`request_percentage`)",
        "log: `... can be neither confirmed nor refuted now: ... throttles txnwatch`; "
        "`txnwatch_throttled_seconds_total` rises",
        little_time,
        sees="throttled",
    ),
)
