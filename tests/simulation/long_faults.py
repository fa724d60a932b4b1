"""Faults that begin once in a world and last: none of them is drawn again, as those of faults.py are.

Their chances come from a source of their own, so a world without them stays the same. A setting names those that it
wants; the usual one has none.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from simulation.coordinator import TWO_PHASE_MS
from simulation.encoding import LoggedValue
from simulation.partition import PartitionLog
from simulation.shared_ids import has_unread_owner
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition

if TYPE_CHECKING:
    from simulation.world import World

LOG_AWAY = "a part of the log has no leader for long"
MORE_LOGS = "partitions added to the log"
NOBODY_ENDS = "a two-phase transaction that nobody ends"
LONG_FAULTS = (LOG_AWAY, MORE_LOGS, NOBODY_ENDS)
_LATEST = {LOG_AWAY: 1_000, MORE_LOGS: 100, NOBODY_ENDS: 400}  # the last step before which a fault begins
_SHARE_SOON, _SOON = 0.3, 60
_SHARE_OF_TOMBSTONES = 0.02


def begin_long_faults(world: World) -> None:
    """Lets the faults of the setting begin, each at a step of its own."""
    chance = random.Random(f"long {world.rng.getstate()[1][:8]}")
    kinds: dict[str, Callable[[World, random.Random], Callable[[], None]]] = {
        LOG_AWAY: _log_away,
        MORE_LOGS: _more_logs,
        NOBODY_ENDS: _nobody_ends,
    }
    wanted = [(name, kinds[name](world, random.Random(chance.random()))) for name in LONG_FAULTS]
    at = {name: chance.randrange(_SOON if chance.random() < _SHARE_SOON else _LATEST[name]) for name in LONG_FAULTS}
    chosen = [(at[name], act) for name, act in wanted if name in world.setting.faults]
    if not chosen:
        return
    step = world.step

    def step_with_faults() -> None:
        step()
        for begins, act in chosen:
            if world.tick >= begins:
                act()

    world.step = step_with_faults  # type: ignore[method-assign]


def _log_away(world: World, chance: random.Random) -> Callable[[], None]:
    """One partition loses its leader, and gets none until the cluster heals; the others keep theirs."""
    number = chance.randrange(2)
    away = False

    def happen() -> None:
        nonlocal away
        logs = world.logs
        for log in logs:
            log.has_leader = log.has_leader or away
        log = logs[number % len(logs)]
        if len(logs) > 1 and (away or not has_unread_owner(world, log)):
            if not away:
                world.seen[LOG_AWAY] += 1
                world.note(f"{log.partition}: no leader for long")
            away, log.has_leader = True, False

    return happen


def _more_logs(world: World, chance: random.Random) -> Callable[[], None]:
    """The log gets as many partitions again, and the brokers restart: coordinators hash by the new number (KAFKA-7771).

    The records of an id stay where they are, and its coordinator reads another partition: it does not know the id. Its
    client gets another producer id there. Nobody ends a transaction that was Ongoing. What is idle on the old partition
    expires there, as it would have before.
    """
    is_done = False
    left: list[tuple[str, PartitionLog]] = []

    def happen() -> None:
        nonlocal is_done
        if not is_done:
            is_done = _restart_with_more(world, chance, left)
        elif left and chance.random() < _SHARE_OF_TOMBSTONES:
            name, log = left.pop()
            if log in world.logs and log.has_leader:
                log.append(LoggedValue(name, None, world.clocks.stamp_ms(log)))
                world.note(f"{name} expires on {log.partition}")

    return happen


def _restart_with_more(world: World, chance: random.Random, left: list[tuple[str, PartitionLog]]) -> bool:
    known = world.coordinators.transactions
    is_busy = any(
        not one.is_free or (one.value is not None and one.value.state.is_prepare) for one in known.values()
    ) or not all(log.has_leader for log in world.logs)
    if is_busy:
        return False
    count = len(world.logs)
    topic_id = world.logs[0].topic_id
    world.setting = replace(world.setting, logs=2 * count)
    world.logs += [PartitionLog(TopicPartition(TRANSACTION_STATE_TOPIC, count + at), topic_id) for at in range(count)]
    world.clocks.look(world.logs)
    for client in world.clients:
        if chance.random() < 0.5:
            continue
        before = known.pop(client.transactional_id, None)
        if before is not None and before.value is not None and before.value.state is not S.ONGOING:
            left.append((client.transactional_id, world.logs[before.log]))
        client.log += count
        world.coordinators.moved[client.transactional_id] = client.log
        world.note(f"{client.transactional_id} is on partition {client.log} of the log from now on")
    world.seen[MORE_LOGS] += 1
    world.note(f"the log has {len(world.logs)} partitions from now on, and the brokers have restarted")
    world.look()
    return True


def _nobody_ends(world: World, _: random.Random) -> Callable[[], None]:
    """The client of an open two-phase transaction is gone for ever, and no other instance of it begins."""
    client = world.clients[0]
    if NOBODY_ENDS in world.setting.faults:
        client.timeout_ms = TWO_PHASE_MS

    def happen() -> None:
        known = world.coordinators.transactions.get(client.transactional_id)
        is_open = known is not None and known.is_free and known.value is not None and known.value.state is S.ONGOING
        if is_open and not (client.is_gone or client.is_initialising):
            client.is_gone = True
            world.coordinators.abandoned.add(client.transactional_id)
            world.seen[NOBODY_ENDS] += 1
            world.note(f"{client.transactional_id}: nobody ends its transaction")

    return happen
