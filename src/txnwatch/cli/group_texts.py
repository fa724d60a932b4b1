"""What `explain` says about consumer groups: which a partition stops, and which wait for their committed offsets.

Pure: no I/O, no clock. Names of groups come from clients, so every text is escaped where it is printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from txnwatch.state.model.incident import AffectedGroup, WaitingGroup
from txnwatch.state.model.ports import SpanStart
from txnwatch.state.model.values import CONSUMER_OFFSETS_TOPIC, Offset, TopicPartition
from txnwatch.state.text import some

_NAMED = 5  # groups, and partitions of a group, in the text; the JSON has all
UNSTABLE = "UNSTABLE_OFFSET_COMMIT"


@dataclass(frozen=True, slots=True)
class GroupsAround:
    """The groups that open transactions hurt.

    Attributes:
        affected: by partition, the groups that read it, by one look at their committed offsets.
        waiting: on `__consumer_offsets`, the groups that wait for pending offsets, by span.
        problems: why groups may be missing.
    """

    affected: Mapping[TopicPartition, tuple[AffectedGroup, ...]] = field(default_factory=dict)
    waiting: Mapping[SpanStart, tuple[WaitingGroup, ...]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def waiting_for(self, span: SpanStart) -> tuple[WaitingGroup, ...]:
        """The groups whose offsets are pending in one open transaction."""
        return self.waiting.get(span, ())


def held_text(partition: TopicPartition, stable: Offset | None, end: Offset | None, hidden: int) -> str:
    """What the last stable offset of a partition holds up."""
    if partition.topic == CONSUMER_OFFSETS_TOPIC:
        return (
            f"No application reads {partition}: it has the committed offsets of consumer groups. The offsets that are "
            f"pending in this transaction stop their groups. The log cleaner stops at offset {stable}."
        )
    records = f"{hidden} record{'s' if hidden != 1 else ''}"
    return (
        f"read_committed consumers of {partition} stop at offset {stable}: {records} up to {end} are hidden from them, "
        "and the log cleaner stops there too."
    )


def waiting_lines(groups: Sequence[WaitingGroup]) -> Iterable[str]:
    """What a transaction with pending offsets means for the groups."""
    for group in groups[:_NAMED]:
        yield (
            f"Consumer group {group.group_id!r} waits: its committed offsets of {some(group.partitions, _NAMED)} are "
            "pending in this transaction."
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
    at_it = [one for one in groups if one.committed_offset == stable]
    below = [one for one in groups if one.committed_offset != stable]
    for found, place in ((at_it, "have reached this offset"), (below, "have not reached it yet")):
        if found:
            named = [f"{one.group_id!r} (at {one.committed_offset}, lag {one.hidden_lag})" for one in found]
            names = some(named, _NAMED)
            yield f"If they read with read_committed, these groups stop here; they {place}: {names}."
