"""`txnwatch explain` for consumer groups: which groups a partition hurts, and what one group waits for.

A group whose committed offsets are pending in a hanging transaction shows nothing unusual anywhere else: its input
partitions are all clear, and the hang is on `__consumer_offsets`. So a partition without an open transaction is
explained only once no group waits for its offsets of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from txnwatch.cli.compose import Question
from txnwatch.cli.explanation import ALL_CLEAR, OPEN, YES, Explanation, of_partition, of_span, open_in, start_of
from txnwatch.cli.hurt_groups import (
    UNSTABLE,
    GroupsAround,
    Hold,
    Hurt,
    affected_lines,
    groups_of,
    held_text,
    holds_of,
    hurt_by,
    waiting_lines,
    waiting_means,
)
from txnwatch.state.evidence.ending import hidden_records
from txnwatch.state.evidence.screening import Search
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.ports import PartitionReading
from txnwatch.state.model.values import CONSUMER_OFFSETS_TOPIC, Offset, ProducerId, TopicPartition
from txnwatch.state.text import some
from txnwatch.streaming.admin.groups import ClusterGroups, KnownGroup
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.wire.internal_topics import coordinator_partition

_NAMED = 5


def groups_around(question: Question, partition: TopicPartition, found: Search) -> GroupsAround:
    """The groups that the open transactions of a partition hurt; nothing is read if none is open."""
    holds = [Hold(start_of(span), found.readings[partition]) for span in open_in(found)]
    return groups_of(ClusterGroups(question.cluster), holds, wall_clock_ms())


def with_groups_behind(
    question: Question, explained: Explanation, producer_id: ProducerId, readings: Iterable[PartitionReading]
) -> Explanation:
    """The explanation of an id, with the groups that its open data stops; none for a transaction that ends in time."""
    if explained.state == OPEN and explained.ends_by_itself == YES:
        return explained
    holds = holds_of(producer_id, readings)
    groups = groups_of(ClusterGroups(question.cluster), holds, wall_clock_ms())
    hurt = hurt_by(holds, groups)
    return replace(
        explained,
        text=(*explained.text, *(behind_lines(hurt, holds, groups.problems) if holds else ())),
        affected_groups=hurt.affected_names,
        waiting_groups=hurt.waiting_names,
    )


def behind_lines(hurt: Hurt, holds: Sequence[Hold], problems: Iterable[str]) -> Iterable[str]:
    """Who stands still because of the open data of an id, partition by partition."""
    held = [hold.reading for hold in holds if hold.reading.partition in hurt.affected]
    for reading in held[:_NAMED]:
        stable, hidden = reading.last_stable_offset, hidden_records(reading) or 0
        assert stable is not None
        yield held_text(reading.partition, stable, reading.high_watermark, hidden)
        yield from affected_lines(hurt.affected[reading.partition], stable)
    if len(held) > _NAMED:
        names = some([str(reading.partition) for reading in held[_NAMED:]], _NAMED)
        yield f"Groups also stop on {names}: explain one of them."
    yield from waiting_lines(hurt.waiting)
    yield from (f"Not all groups are known: {problem}." for problem in problems)
    if not (hurt.affected or hurt.waiting or problems):
        yield "No consumer group with a committed offset stands still because of it."


def with_waiting_groups(question: Question, partition: TopicPartition, explained: Explanation) -> Explanation:
    """The explanation of an input partition, with the groups that wait for their committed offset of it."""
    if partition.topic == CONSUMER_OFFSETS_TOPIC:
        return explained
    unstable = ClusterGroups(question.cluster).unstable(partition)
    if unstable.problems:
        problems = "; ".join(unstable.problems)
        note = f"It is not known whether more groups wait for their committed offsets of it: {problems}."
        explained = replace(explained, text=(*explained.text, note))
    waits = _waits(question, unstable.groups)
    for name, (span, why) in waits.items():
        lines = (
            (
                f"But consumer group {name!r} waits: its committed offset of {partition} is pending in a transaction "
                f"on {span.partition} ({UNSTABLE})."
            ),
            waiting_means("It"),
            *why.text,
        )
        explained = _with_cause(explained, why, lines)
    return replace(explained, waiting_groups=tuple(waits))


def _with_cause(explained: Explanation, why: Explanation, lines: Iterable[str]) -> Explanation:
    """The explanation with a transaction elsewhere; this is its subject if nothing else was found."""
    text = (*explained.text, *lines)
    if explained.state != ALL_CLEAR:
        return replace(explained, text=text)
    return replace(why, target=explained.target, hidden_records=explained.hidden_records, text=text)


def _waits(question: Question, names: Iterable[str]) -> dict[str, tuple[SpanCandidate, Explanation]]:
    """By group, the transaction with its pending offsets; one that is open and ends by itself in time is left out."""
    wanted = set(names)
    places = sorted({place for name in wanted if (place := offsets_partition(question, name)) is not None})
    if not places:
        return {}
    found = question.searcher.search(places)
    question.note_unread(found.readings.values())
    spans = open_in(found)
    answer = ClusterGroups(question.cluster).waiting(start_of(span) for span in spans)
    question.missing.update(dict.fromkeys(answer.problems, "the groups of an open transaction are not known"))
    waiting = answer.groups
    waits: dict[str, tuple[SpanCandidate, Explanation]] = {}
    for span in spans:
        why = of_span(question.origin, span, found, wall_clock_ms())
        for group in waiting.get(start_of(span), ()):
            if group.group_id in wanted and why.state != OPEN:
                waits.setdefault(group.group_id, (span, why))
    return waits


def offsets_partition(question: Question, group_id: str) -> TopicPartition | None:
    """The partition of `__consumer_offsets` that has the group's offsets; None if the topic is not shown.

    A group is placed as a transactional id is (Kafka's `GroupMetadataManager.partitionFor`).
    """
    topic = question.cluster.known.topics.get(CONSUMER_OFFSETS_TOPIC)
    if topic is None or not topic.partitions:
        return None
    return TopicPartition(CONSUMER_OFFSETS_TOPIC, coordinator_partition(group_id, len(topic.partitions)))


# A group itself.


def of_group(question: Question, group: KnownGroup) -> Explanation:
    """Explains a group: whether it waits for its offsets, and behind which open transactions it stands."""
    positions = ClusterGroups(question.cluster).offsets_of(group)
    if positions.problems:
        question.missing[f"offsets of group {group.group_id!r}"] = "; ".join(positions.problems)
    explained = Explanation(
        target=group.group_id,
        state=ALL_CLEAR,
        text=(_head(group, positions.offsets),),
    )
    waits = _waits(question, [group.group_id])
    for span, why in waits.values():
        where = f"It waits: its committed offsets are pending in a transaction on {span.partition}."
        explained = _with_cause(explained, why, (where, waiting_means("It"), *why.text))
        explained = replace(explained, waiting_groups=(group.group_id,))
    return _behind(question, explained, positions.offsets)


def _head(group: KnownGroup, offsets: Mapping[TopicPartition, Offset]) -> str:
    kind = f"{group.protocol or 'consumer'} group"
    away = " (no member is connected now)" if group.state == "Empty" else ""
    head = f"{group.group_id}: a {kind}, state {group.state}{away}, at broker {group.coordinator}."
    if group.is_share:
        return (
            f"{head} A share group commits no offsets, so it never waits for them: ask for a partition that it reads."
        )
    count = len(offsets)
    return f"{head} It has committed offsets of {count} partition{'s' if count != 1 else ''}."


def _behind(question: Question, explained: Explanation, offsets: Mapping[TopicPartition, Offset]) -> Explanation:
    """Adds the partitions on which the group can reach an open transaction."""
    shown = [partition for partition in sorted(offsets) if question.cluster.known.info(partition) is not None]
    found = question.searcher.search(shown)
    held = [at for at in shown if any(span.partition == at for span in open_in(found)) and _is_held(found.readings[at])]

    def line(at: TopicPartition, why: Explanation) -> str:
        stable = found.readings[at].last_stable_offset
        return f"{at}: {why.state}. It has committed offset {offsets[at]}; read_committed stops at {stable}."

    explained = with_held(question, explained, found, held, line)
    if explained.state != ALL_CLEAR:
        return explained
    clear = "All clear: it waits for no offset, and no transaction is open on a partition that it has read."
    return replace(explained, text=(*explained.text, clear))


def with_held(
    question: Question,
    explained: Explanation,
    found: Search,
    held: Sequence[TopicPartition],
    line: Callable[[TopicPartition, Explanation], str],
) -> Explanation:
    """Adds a line about each of the first partitions that are held; where nothing else was found, the first counts."""
    lines = []
    for at in held[:_NAMED]:
        why = of_partition(question.origin, at, found.only(at), wall_clock_ms())
        lines.append(line(at, why))
        if explained.state == ALL_CLEAR:
            explained = replace(why, target=explained.target, text=explained.text)
    if len(held) > _NAMED:
        lines.append(f"Also with an open transaction: {some(held[_NAMED:], _NAMED)}.")
    return replace(explained, text=(*explained.text, *lines))


def _is_held(reading: PartitionReading) -> bool:
    stable, end = reading.last_stable_offset, reading.high_watermark
    return stable is not None and end is not None and stable < end
