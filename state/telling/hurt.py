"""Whom an open transaction hurts, in words: readers of its partition, consumer groups, Connect, and the log cleaner.

A worker of Kafka Connect that starts reads the three internal topics to their ends, which it lists with
read_uncommitted, before it loads a connector. With exactly.once.source.support it reads the first two with
read_committed, so behind an open transaction it never comes to that end. No group shows it: these consumers have none.

Names of groups come from clients, so every text is escaped where it is printed. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from txnwatch.state.model.incident import AffectedGroup, ConnectSetting, ConnectUse, WaitingGroup
from txnwatch.state.model.values import CONSUMER_OFFSETS_TOPIC, Offset, TopicPartition
from txnwatch.state.text import counted, cut, quoted, some

_NAMED = 5  # groups, and partitions of a group, in the text; the JSON has all
UNSTABLE = "UNSTABLE_OFFSET_COMMIT"
NO_GROUP_STANDS = "no group was found that stands"
NO_GROUPS_READ = "groups are not looked for"
CONNECT_STOPS = "Kafka Connect's workers that start now load no connectors"


def held_text(partition: TopicPartition, stable: Offset | None, end: Offset | None, hidden: int) -> str:
    """What the last stable offset of a partition holds up."""
    if partition.topic == CONSUMER_OFFSETS_TOPIC:
        return (
            f"No application reads {partition}: it has the committed offsets of consumer groups. The offsets that are "
            f"pending in this transaction stop their groups. The log cleaner stops at offset {stable}."
        )
    records = counted(hidden, "record")
    return (
        f"read_committed consumers of {partition} stop at offset {stable}: {records} up to {end} are hidden from them, "
        "and the log cleaner stops there too."
    )


def waiting_lines(groups: Sequence[WaitingGroup]) -> Iterable[str]:
    """What a transaction with pending offsets means for the groups."""
    for group in groups[:_NAMED]:
        yield (
            f"Consumer group {quoted(group.group_id)} waits: its committed offsets of "
            f"{some(group.partitions, _NAMED)} are pending in this transaction."
        )
    if len(groups) > _NAMED:
        yield f"{len(groups) - _NAMED} more groups wait (`--format json` names them)."
    if groups:
        yield waiting_means("Such a group")


def waiting_means(who: str) -> str:
    """What the application notices."""
    return (
        f"{who} reads on until its next start or rebalance. Then each request for its offsets is answered with "
        f"{UNSTABLE} and sent again: it gets no record, and at most a timeout in its log, until the transaction ends."
    )


def affected_lines(groups: Sequence[AffectedGroup], stable: Offset) -> Iterable[str]:
    """The groups that read a held partition; one look cannot show that a group has stopped."""
    new = [group for group in groups if group.committed_offset is None]
    at_it = [group for group in groups if group.committed_offset == stable]
    below = [group for group in groups if group.committed_offset not in (stable, None)]
    if new:
        names = some([quoted(group.group_id) for group in new], _NAMED)
        yield (
            "If they read with read_committed, these groups stop here; their members are assigned this partition and "
            f"have committed nothing of it: {names}."
        )
    for held, place in ((at_it, "have reached this offset"), (below, "have not reached it yet")):
        if held:
            named = [
                f"{quoted(group.group_id)} (at {group.committed_offset}, lag {group.hidden_lag})" for group in held
            ]
            names = some(named, _NAMED)
            yield f"If they read with read_committed, these groups stop here; they {place}: {names}."


def connect_text(use: ConnectUse, shown: Callable[[str], str] = cut) -> str:
    """What an open transaction on an internal topic of Connect stops; `shown` makes names of others safe."""
    workers = f"the workers of group {shown(use.group_id)}" if use.group_id is not None else "its workers"
    reads = "isolation.level=read_committed" if use.setting is ConnectSetting.STATUS else "exactly.once.source.support"
    return (
        f"By its name, {shown(use.topic)} is an internal topic of Kafka Connect ({use.setting} of {workers}). Workers "
        f"with {reads} that start now load no connectors: they read it to its end with read_committed first, and wait "
        "there until this transaction has ended. Do not restart workers that run: they go on."
    )
