"""The faults: each is a function of the world and a random number, and returns whether it happened.

Shares are of a hundred things that happen. What is no fault of anybody (failover, expiry, timeouts, fencing, markers
late and in any order, lagging replicas) is part of the world itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from simulation.encoding import LoggedValue
from simulation.shared_ids import has_unread_owner
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from simulation.partition import DataPartition, PartitionLog
    from simulation.world import World

Fault = Callable[["World", float], bool]
_SHARE_UNSEEN, _SHARE_RETURNED = 0.5, 0.35


def stray_write(world: World, draw: float) -> bool:
    """A write to a partition that was not added: after commit, abort or timeout, with this identity or a former one."""
    clients = [client for client in world.clients[: world.setting.clients] if client.producer_id >= 0]
    if not clients or not world.data:
        return False
    client = clients[int(draw * len(clients))]
    names = [(client.producer_id, client.producer_epoch), *client.former]
    producer_id, epoch = names[int(draw * 7919) % len(names)]
    return client.write(world, _data(world, draw * 104729 % 1).partition, producer_id, epoch, 1)


def lost_marker(world: World, draw: float) -> bool:
    """A partition without a leader counts as deleted, and its marker as written (KAFKA-20734)."""
    markers = world.coordinators.markers
    if not markers:
        return False
    marker = markers.pop(int(draw * len(markers)))
    world.coordinators.acknowledge(marker)
    world.note(f"the marker {marker} is taken for written")
    return True


def unclean_data(world: World, draw: float) -> bool:
    """A replica that was left behind leads a data partition: the tail is gone, markers too."""
    if not world.data:
        return False
    log = _data(world, draw)
    before = set(log.open_spans())
    is_cut = _unclean(world, log, draw * 7919 % 1)
    world.lost_their_markers(log, {*log.open_spans()} - before)
    return is_cut


def unclean_log(world: World, draw: float) -> bool:
    """`__transaction_state` loses its last records, and its coordinator continues with the rest."""
    log = world.logs[int(draw * len(world.logs))]
    cuts = log.boundaries()[-4:]
    if world.keeps_epochs and cuts and draw * 31337 % 1 < _SHARE_UNSEEN:
        world.restart_unseen(log, cuts[int(draw * 7919 % 1 * len(cuts))])
        return True
    return _unclean(world, log, draw * 7919 % 1)


def _unclean(world: World, log: PartitionLog, draw: float) -> bool:
    cuts = log.boundaries()[-4:]
    may_return = world.returns_replicas and log.former is not None
    if may_return and draw * 27644437 % 1 < _SHARE_RETURNED:
        log.return_with_own_log()
        world.seen["a replica returns with its own log"] += 1
    elif cuts:
        log.fail_over_unclean(cuts[int(draw * len(cuts))])
    else:
        return False
    world.note(f"{log.partition}: UNCLEAN failover, epoch {log.epoch}, end {log.end}")
    world.after_failover(log)
    if log.partition.topic == TRANSACTION_STATE_TOPIC:
        world.coordinators.committed(log.partition.partition)
    return True


def forgotten_id(world: World, draw: float) -> bool:
    """The coordinator forgets an id with a live transaction."""
    known = list(world.coordinators.transactions.values())
    if not known or draw > 0.3:
        return False
    chosen = known[int(draw / 0.3 * len(known)) % len(known)]
    world.coordinators.forget(chosen)
    world.note(f"{chosen.transactional_id} is forgotten")
    return True


def leaderless(world: World, draw: float) -> bool:
    """A partition has no leader for a while; drawn again, it has."""
    everything = [*world.data.values(), *world.logs]
    log = everything[int(draw * len(everything))]
    if log.has_leader and has_unread_owner(world, log):
        return False
    log.has_leader = not log.has_leader
    world.note(f"{log.partition}: {'a leader again' if log.has_leader else 'no leader'}")
    return True


def unreadable(world: World, draw: float) -> bool:
    """A batch can no longer be read from its leader's disk: of data as long as it leads, of the log until it heals."""
    everything = [*world.data.values(), *world.logs]
    log = everything[int(draw * len(everything))]
    only_new_data = world.setting.only_new_data_fails
    if not log.entries or (only_new_data and log.partition.topic == TRANSACTION_STATE_TOPIC):
        return False
    entry = log.entries[-1 if only_new_data else int(draw * 7919 % 1 * len(log.entries))]
    log.unreadable.add(entry.offset)
    world.note(f"{log.partition}@{entry.offset}: cannot be read any more")
    return True


def topic_made_anew(world: World, draw: float) -> bool:
    """A topic is deleted and comes back under the same name with another id."""
    if not world.data or draw > 0.3:
        return False
    name = _data(world, draw / 0.31).partition.topic
    world.create_topic(name)
    world.note(f"topic {name} is deleted and made anew")
    return True


def topic_deleted(world: World, draw: float) -> bool:
    """A topic is deleted for good, if another is left."""
    names = sorted({partition.topic for partition in world.data})
    if len(names) < 2 or draw > 0.2:
        return False
    name = names[int(draw * 5 * len(names)) % len(names)]
    for partition in [partition for partition in world.data if partition.topic == name]:
        del world.data[partition]
    world.note(f"topic {name} is deleted")
    return True


def topic_hidden(world: World, draw: float) -> bool:
    """The reader may no longer see a topic; drawn again, it may."""
    if not world.data:
        return False
    name = _data(world, draw).partition.topic
    world.hidden ^= {name}
    world.note(f"topic {name} is {'hidden' if name in world.hidden else 'shown again'}")
    return True


def log_hidden(world: World, draw: float) -> bool:
    """A proxy answers that there is no `__transaction_state`; drawn again, it shows it."""
    if draw > 0.3:
        return False
    world.is_log_hidden = not world.is_log_hidden
    if not world.is_log_hidden:
        world.forget_log()  # a reader that looked meanwhile reads it from its beginning
    world.note(f"the coordinators' log is {'hidden' if world.is_log_hidden else 'shown again'}")
    return True


def log_made_anew(world: World, draw: float) -> bool:
    """`__transaction_state` is deleted and comes back with another id and nothing in it; so do the coordinators."""
    if draw > 0.15:
        return False
    world.create_log()
    world.note("the coordinators' log is deleted and made anew")
    return True


def retention(world: World, draw: float) -> bool:
    """Retention or DeleteRecords deletes the beginning of a partition, even of open transactions."""
    if not world.data:
        return False
    log = _data(world, draw)
    room = log.high_watermark - log.start
    if room <= 0 or draw * 7919 % 1 < 0.5:
        return False
    wanted = log.start + 1 + int(draw * 104729 % 1 * room)
    log.start = max([log.start, *(entry.next_offset for entry in log.entries if entry.next_offset <= wanted)])
    world.note(f"{log.partition}: starts at {log.start} now")
    return True


def compaction(world: World, draw: float) -> bool:
    """Of every id in the cleaned part of `__transaction_state` only the last record stays."""
    log = world.logs[int(draw * len(world.logs))]
    cleaned = [entry for entry in log.entries[:-1] if entry.next_offset <= log.high_watermark]
    last: dict[str, int] = {}
    for entry in cleaned:
        assert isinstance(entry.body, LoggedValue)
        last[entry.body.transactional_id] = entry.offset
    kept = set(last.values())
    if len(kept) == len(cleaned):
        return False
    log.cleaned_to = cleaned[-1].next_offset
    log.entries = [entry for entry in log.entries if entry.offset in kept or entry not in cleaned]
    world.note(f"{log.partition}: compacted to {[entry.offset for entry in log.entries]}")
    return True


def _data(world: World, draw: float) -> DataPartition:
    partitions = list(world.data.values())
    return partitions[int(draw * len(partitions)) % len(partitions)]


FAULTS: dict[str, tuple[int, Fault]] = {
    "stray write": (3, stray_write),
    "lost marker": (1, lost_marker),
    "unclean failover of data": (1, unclean_data),
    "unclean failover of the log": (1, unclean_log),
    "forgotten id": (1, forgotten_id),
    "no leader": (2, leaderless),
    "unreadable": (1, unreadable),
    "topic made anew": (1, topic_made_anew),
    "topic deleted": (1, topic_deleted),
    "retention": (1, retention),
    "compaction": (1, compaction),
    "topic hidden": (1, topic_hidden),
    "log hidden": (1, log_hidden),
    "log made anew": (1, log_made_anew),
}
