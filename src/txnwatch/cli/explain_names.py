"""`txnwatch explain` for names: a transactional id, a producer id, an id that has expired, a group.

Groups are asked about for every target. A group whose committed offsets are pending in a hanging transaction shows
nothing unusual anywhere else: its input partitions are all clear, and the hang is on `__consumer_offsets`. So a
partition without an open transaction is explained only once no group waits for its offsets of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from txnwatch.cli.compose import Question
from txnwatch.cli.explain_aborts import AbortsOf, with_past_abort
from txnwatch.cli.explain_causes import (
    MOST_NAMED,
    Obstacle,
    also_lines,
    causes_on,
    places_of,
    with_causes,
)
from txnwatch.cli.explain_connect import NOT_CHECKED, of_workers
from txnwatch.cli.explain_contention import with_contention
from txnwatch.cli.explain_positions import position_lines, positions_of
from txnwatch.cli.explain_replicas import log_blocked, naming_replicas
from txnwatch.cli.explain_words import ERROR_WORD
from txnwatch.cli.explanation import (
    ALL_CLEAR,
    OPEN,
    UNPROVEN,
    Explanation,
    end_text,
    of_id,
    of_span,
    open_in,
)
from txnwatch.cli.open_anywhere import open_anywhere, with_strays
from txnwatch.cli.past_ids import ends_of, former_owner, former_text, nobody_has, place_of, tombstone_of
from txnwatch.state.evidence.contention import contention_of
from txnwatch.state.evidence.hurt_groups import Hold, Hurt, groups_of, holds_of, hurt_by
from txnwatch.state.evidence.past_ends import PastEnd, past_ends
from txnwatch.state.evidence.read_committed import Visibility, hidden_records
from txnwatch.state.evidence.screening import FOREIGN, open_data
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.ports import PartitionReading
from txnwatch.state.model.transaction import (
    DescribedTransaction,
    NotDescribed,
    UnknownTransactionalId,
)
from txnwatch.state.model.values import (
    CONSUMER_OFFSETS_TOPIC,
    INT64,
    Offset,
    ProducerId,
    TopicPartition,
    coordinator_partition,
    is_foreign,
)
from txnwatch.state.model.verdicts import EndsByItself
from txnwatch.state.telling.commands import explain_id
from txnwatch.state.telling.hurt import UNSTABLE, affected_lines, held_text, waiting_lines, waiting_means
from txnwatch.state.telling.moved_ids import MovedId, known_text, last_text, moved_text
from txnwatch.state.text import counted, cut, quoted, some
from txnwatch.streaming.admin.groups import ClusterGroups, GroupPositions, KnownGroup
from txnwatch.streaming.admin.transactions import ClusterAdmin, described_with_log
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.hidden_topics import hidden_topics
from txnwatch.streaming.log.coordinator_log import (
    LogRecord,
    history_of,
    read_all_records,
    read_records_anywhere,
    read_views,
)
from txnwatch.streaming.log.hidden_participants import hidden_of
from txnwatch.streaming.log.moved_records import moved_of, read_moved_names

EXPIRED, MOVED = "expired", "moved"


_LOOKS = 3


def of_known_id(question: Question, transactional_id: str, looks: int = _LOOKS) -> Explanation:
    """Explains an id that its coordinator has.

    If an idle id has begun a transaction before the partitions were read, or a decided one has got its own markers
    since, it looks again.

    Raises:
        BrokerError: the coordinator did not answer, or does not know the id.
    """
    cluster, missing, foreign_topics = question.cluster, question.missing, question.searcher.foreign_topics
    with naming_replicas(lambda: log_blocked(cluster, transactional_id)):
        with_log = described_with_log(cluster, transactional_id)
    described, history = with_log.described, history_of(with_log.records)
    producer_id = described.producer_id
    records = read_all_records(cluster, transactional_id)[0] if read_moved_names(cluster) else with_log.records
    past = past_ends(history)
    if with_log.problem is not None:
        missing["the coordinators' log"] = with_log.problem
    hidden = hidden_of(cluster, [described], foreign_topics=foreign_topics)
    missing.update({what: str(why) for what, why in hidden.items()})
    held = set(described.partitions) if described.is_live else _held_last(question, described)
    ids = producer_ids_of(records) | {producer_id}
    anywhere = open_anywhere(question, ids)
    if anywhere.found.covered and not described.is_live and looks > 1:
        return of_known_id(question, transactional_id, looks - 1)
    unlisted = ClusterAdmin(cluster).read_partitions(sorted(held - anywhere.readings.keys())).values()
    seen = [*anywhere.of(held), *unlisted]
    if _has_got_markers(cluster, described, seen):
        if looks > 1:
            return of_known_id(question, transactional_id, looks - 1)
        seen = [reading for reading in seen if reading.problem is not None or reading.open_transaction(producer_id)]
    question.note_unread(unlisted)
    search = question.searcher.judge(described)
    missing.update(search.not_checked)
    explained = of_id(question.origin, with_log, seen, wall_clock_ms(), search, past, has_strays=bool(anywhere.strays))
    explained = with_contention(explained, contention_of(history, past), wall_clock_ms())
    explained = with_strays(question, explained, anywhere)
    explained = with_groups_behind(question, explained, ids, seen)
    explained = _with_moved(explained, moved_of(cluster, transactional_id, records), producer_id)
    ends = ends_of(with_log.records, producer_id)
    return with_past_abort(question, explained, _aborts(transactional_id, producer_id, held, ends))


def _with_moved(explained: Explanation, moved: MovedId | None, producer_id: ProducerId) -> Explanation:
    """With what a changed number of partitions of the coordinators' log has done to the id."""
    if moved is None:
        return explained
    return replace(explained, text=(*explained.text, moved_text(moved), known_text(moved, producer_id)))


def _has_got_markers(cluster: Cluster, described: DescribedTransaction, seen: Sequence[PartitionReading]) -> bool:
    """Whether a participant was closed by the coordinator itself: it no longer describes the transaction as before."""
    if not described.state.is_prepare or not open_data(described.producer_id, seen, among=described.partitions).closed:
        return False
    name = described.transactional_id
    return ClusterAdmin(cluster).describe_transactions([name])[name] != described


def _held_last(question: Question, described: DescribedTransaction) -> set[TopicPartition]:
    """The partitions of an id without a live transaction: those of its last one."""
    logs = read_views(question.cluster, [described.producer_id])
    view = logs.views.get(described.producer_id)
    if view is None:  # the part that was not read may have its last participants
        question.missing.update({str(log): why for log, why in logs.problems.items()})
    last = view.participants if view is not None else frozenset()
    return _without_foreign(question, {*described.partitions, *last})


def _aborts(name: str, producer_id: ProducerId, held: Iterable[TopicPartition], ends: Sequence[PastEnd]) -> AbortsOf:
    """The aborts of open data of an id, also under a producer id that it had before."""

    def is_wanted(event: IncidentEvent) -> bool:
        return event.transactional_id == name or event.producer_id == producer_id

    return AbortsOf(is_wanted, sorted(held), producer_id, ends)


def _without_foreign(question: Question, held: set[TopicPartition]) -> set[TopicPartition]:
    foreign = {partition for partition in held if is_foreign(partition.topic, question.searcher.foreign_topics)}
    question.missing.update({str(partition): FOREIGN for partition in foreign})
    return held - foreign


def of_former_id(question: Question, transactional_id: str) -> Explanation | None:
    """Explains an id that its coordinator does not know; None if the log does not name it either."""
    records, problem = read_records_anywhere(question.cluster, transactional_id)
    if problem is not None:
        question.missing["the coordinators' log"] = problem
    if not records:
        return None
    moved = moved_of(question.cluster, transactional_id, records)
    last = next((record for record in reversed(records) if record.value is not None), None)
    ends = past_ends(history_of(records))
    explained = Explanation(
        target=transactional_id,
        state=EXPIRED if moved is None else MOVED,
        transactional_id=transactional_id,
        producer_id=last.value.producer_id if last is not None and last.value is not None else None,
        since_ms=records[-1].timestamp_ms,
        text=(_gone(transactional_id, records, moved), *map(end_text, ends[-1:])),
    )
    if last is None or last.value is None:
        return explained
    producer_id, held = last.value.producer_id, _without_foreign(question, participants_of(records))
    anywhere = open_anywhere(question, producer_ids_of(records))
    again = "" if anywhere.strays else " Its application may start again at any time."
    had = f"It had producer id {' and '.join(map(str, sorted(producer_ids_of(records))))}.{again}"
    explained = with_strays(question, replace(explained, text=(*explained.text, had)), anywhere)
    own = ends_of(records, producer_id)
    return with_past_abort(question, explained, _aborts(transactional_id, producer_id, held, own))


def producer_ids_of(records: Iterable[LogRecord]) -> set[ProducerId]:
    """All producer ids that the records show for their id."""
    return {record.value.producer_id for record in records if record.value is not None}


def participants_of(records: Iterable[LogRecord]) -> set[TopicPartition]:
    """All partitions of the transactions that the records show."""
    return {participant for record in records if record.value is not None for participant in record.value.participants}


def _gone(transactional_id: str, records: list[LogRecord], moved: MovedId | None) -> str:
    tombstone = tombstone_of(records)
    gone = f"{cut(transactional_id)}: no coordinator has this transactional id any more"
    if moved is not None:
        return f"{gone}, but it has not expired. {moved_text(moved)} {last_text(moved)}"
    if tombstone is None:
        return f"{gone}; its last record is at {place_of(records[-1])}."
    return f"{gone}: it has expired (transactional.id.expiration.ms). Its tombstone is at {place_of(tombstone)}."


def of_producer_id(question: Question, text: str) -> Explanation | None:
    """Explains a producer id by its transactional id; None if the text is no number, or nobody has or had it.

    Raises:
        BrokerError: a coordinator did not answer.
    """
    if not text.isascii() or not text.isdigit() or int(text) > INT64:
        return None
    producer_id = ProducerId(int(text))
    listing = ClusterAdmin(question.cluster).list_transactions([producer_id])
    question.missing.update({f"transactional ids of producer id {text}": str(why) for why in listing.problems})
    names = [row.transactional_id for row in listing.transactions if row.producer_id == producer_id]
    if names:
        now = ClusterAdmin(question.cluster).describe_transactions([names[0]])[names[0]]
        former = of_former_id(question, names[0]) if isinstance(now, UnknownTransactionalId) else None
        explained = former or of_known_id(question, names[0])
        head = f"{text} is the producer id of transactional id {quoted(names[0])}."
        return replace(explained, target=text, text=(head, *explained.text))
    owner = former_owner(question.cluster, producer_id)
    if owner.problem is not None:
        question.missing["the coordinators' log"] = owner.problem
    if owner.transactional_id is None:
        return _of_nobody(question, producer_id)
    head = former_text(producer_id, owner)
    if isinstance(owner.now, NotDescribed):
        raise BrokerError(f"transactional id {cut(owner.transactional_id)}: {owner.now.problem}")
    if isinstance(owner.now, DescribedTransaction):
        return _superseded(question, text, owner.now, head)
    former = of_former_id(question, owner.transactional_id)
    assert former is not None  # the log names it
    return replace(former, target=text, text=(head, *former.text))


def _superseded(question: Question, text: str, now: DescribedTransaction, head: str) -> Explanation:
    """A producer id that its transactional id has replaced by another one."""
    explained = Explanation(
        target=text,
        state="superseded",
        transactional_id=now.transactional_id,
        producer_id=ProducerId(int(text)),
        next=explain_id(question.origin, now.transactional_id),
        text=(head,),
    )
    return with_strays(question, explained, open_anywhere(question, [ProducerId(int(text))]))


def _of_nobody(question: Question, producer_id: ProducerId) -> Explanation | None:
    """A producer id that no transactional id has or had; None if nothing of it is open on the partitions read."""
    anywhere = open_anywhere(question, [producer_id])
    if not anywhere.strays:
        return None
    explained = Explanation(str(producer_id), EXPIRED, producer_id=producer_id, text=(nobody_has(producer_id),))
    return with_strays(question, explained, anywhere)


# States that are no finding for --fail-on-found.
NO_FINDING = frozenset({ALL_CLEAR, "idle", EXPIRED, "superseded", ERROR_WORD, NOT_CHECKED, str(Visibility.VISIBLE)})


def of_group_named(question: Question, name: str) -> Explanation | None:
    """Explains a consumer group or a share group; None if no broker lists one."""
    answer = ClusterGroups(question.cluster).find(name)
    if answer.group is not None:
        return of_group(question, answer.group)
    if answer.problems:
        question.missing[f"consumer group {name!r}"] = "; ".join(answer.problems)
    return None


# The groups that a partition or an id hurts.


def with_groups_behind(
    question: Question,
    explained: Explanation,
    producer_ids: Iterable[ProducerId],
    readings: Collection[PartitionReading],
) -> Explanation:
    """The explanation of an id, with the groups that its open data stops; none for a transaction that ends in time."""
    if explained.state == OPEN and explained.ends_by_itself == EndsByItself.YES:
        return explained
    holds = [hold for producer_id in producer_ids for hold in holds_of(producer_id, readings)]
    groups = groups_of(ClusterGroups(question.cluster), holds, wall_clock_ms())
    hurt = hurt_by(holds, groups)
    return replace(
        explained,
        text=(*explained.text, *(_behind_lines(hurt, holds, groups.problems) if holds else ())),
        affected_groups=hurt.affected_names,
        waiting_groups=hurt.waiting_names,
    )


def _behind_lines(hurt: Hurt, holds: Sequence[Hold], problems: Iterable[str]) -> Iterable[str]:
    """Who stands still because of the open data of an id, partition by partition."""
    held = [hold.reading for hold in holds if hold.reading.partition in hurt.affected]
    for reading in held[:MOST_NAMED]:
        stable, hidden = reading.last_stable_offset, hidden_records(reading) or 0
        assert stable is not None
        yield held_text(reading.partition, stable, reading.high_watermark, hidden)
        yield from affected_lines(hurt.affected[reading.partition], stable)
    if len(held) > MOST_NAMED:
        names = some([str(reading.partition) for reading in held[MOST_NAMED:]], MOST_NAMED)
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
    for name, (first, *others) in list(waits.items())[:MOST_NAMED]:
        why = of_span(question.origin, first.span, first.found, wall_clock_ms())
        lines = (
            (
                f"But consumer group {quoted(name)} waits: its committed offset of {partition} is pending in a "
                f"transaction on {first.span.partition} ({UNSTABLE})."
            ),
            waiting_means("It"),
            *why.text,
            *also_lines(question, others),
        )
        explained = _with_cause(explained, why, lines)
    left = list(waits)[MOST_NAMED:]
    if left:
        line = f"Also waiting for their committed offsets: {some([quoted(name) for name in left], MOST_NAMED)}."
        explained = replace(explained, text=(*explained.text, line))
    return replace(explained, waiting_groups=tuple(waits))


def _with_cause(explained: Explanation, why: Explanation, lines: Iterable[str]) -> Explanation:
    """The explanation with a transaction elsewhere; this is its subject if nothing else was found."""
    text = (*explained.text, *lines)
    if explained.state != ALL_CLEAR:
        return replace(explained, text=text)
    return replace(why, target=explained.target, hidden_records=explained.hidden_records, text=text)


def _waits(question: Question, names: Iterable[str]) -> dict[str, list[Obstacle]]:
    """By group, the transactions with its pending offsets, the worst first; healthy ones are left out."""
    wanted = set(names)
    places = sorted({place for name in wanted if (place := offsets_partition(question, name)) is not None})
    if not places:
        return {}
    search = question.searcher.search(places)
    question.note_unread(search.readings.values())
    causes = [cause for cause in causes_on(search, places) if cause.state != OPEN]
    answer = ClusterGroups(question.cluster).waiting(span.start for span in open_in(search))
    question.missing.update(dict.fromkeys(answer.problems, "the groups of an open transaction are not known"))
    waits: dict[str, list[Obstacle]] = {}
    for cause in causes:
        for group in answer.groups.get(cause.span.start, ()):
            if group.group_id in wanted:
                waits.setdefault(group.group_id, []).append(cause)
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
    """Explains a group: whether it waits for its offsets, and behind which open transactions it stands.

    A partition counts if the group has committed an offset of it, or has a member that is assigned it.
    """
    if group.is_connect:
        return of_workers(question, group)
    positions = ClusterGroups(question.cluster).offsets_of(group)
    if positions.problems:
        question.missing[f"consumer group {group.group_id!r}"] = "; ".join(positions.problems)
    name = group.group_id
    explained = Explanation(target=name, state=ALL_CLEAR, group_id=name, text=(_head(group, positions),))
    waits = _waits(question, [group.group_id]).get(group.group_id, [])
    for first in waits[:1]:
        why = of_span(question.origin, first.span, first.found, wall_clock_ms())
        where = f"It waits: its committed offsets are pending in a transaction on {first.span.partition}."
        lines = (where, waiting_means("It"), *why.text)
        explained = replace(explained, text=(*explained.text, *lines), waiting_groups=(group.group_id,))
    explained, behind = _behind(question, explained, positions, is_share=group.is_share)
    explained = with_causes(question, explained, [*waits, *behind], next(iter(waits), None))
    if explained.state != ALL_CLEAR:
        return explained
    is_incomplete, reads = bool(question.missing), positions.offsets or positions.uncommitted
    if not (is_incomplete or reads or positions.is_never_stopped):
        lacks = "it has no position on a partition" if group.is_share else "it has no member and no committed offset"
        question.missing[f"which partitions group {cut(group.group_id)} reads"] = lacks
    if question.missing:
        text = _NOT_ALL_READ if is_incomplete else _READS_UNKNOWN
        return replace(explained, state=UNPROVEN, text=(*explained.text, text))
    clear = "All clear: it waits for no offset, and no transaction is open on a partition that it reads or has read."
    if positions.is_never_stopped:
        clear = "All clear: no transaction stops it."
    return replace(explained, text=(*explained.text, clear))


_NOT_ALL_READ = "Nothing was found, but not everything could be read: whether a transaction stops it is not known."
_READS_UNKNOWN = "Nothing shows which partitions it reads: whether a transaction stops it is not known."


def _head(group: KnownGroup, positions: GroupPositions) -> str:
    kind = f"{group.protocol or 'consumer'} group"
    away = " (no member is connected now)" if group.state == "Empty" else ""
    head = f"{cut(group.group_id)}: a {kind}, state {group.state}{away}, at broker {group.coordinator}."
    if group.is_share:
        head += " A share group commits no offsets, so it never waits for them."
        if positions.is_never_stopped:
            return f"{head} It does not read with read_committed (share.isolation.level), so no transaction stops it."
        return f"{head} It has a position on {counted(len(positions.offsets), 'partition')}."
    new = len(positions.uncommitted)
    members = f" Its members are assigned {counted(new, 'partition')} of which it has committed nothing." if new else ""
    return f"{head} It has committed offsets of {counted(len(positions.offsets), 'partition')}.{members}"


def _behind(
    question: Question, explained: Explanation, positions: GroupPositions, *, is_share: bool
) -> tuple[Explanation, list[Obstacle]]:
    """Adds the partitions on which the group can reach an open transaction; and these transactions."""
    reads = sorted(positions.offsets.keys() | positions.uncommitted)
    shown = [partition for partition in reads if question.cluster.known.info(partition) is not None]
    hidden = hidden_topics(question.cluster, {partition.topic for partition in reads})
    question.missing.update({f"topic {name}": str(why) for name, why in hidden.items()})
    search = question.searcher.search(shown)
    question.note_unread(search.readings.values())
    causes = causes_on(search, [at for at in shown if _is_held(search.readings[at])])
    held = places_of(causes)

    def line(at: TopicPartition) -> str:
        stable, offset = search.readings[at].last_stable_offset, positions.offsets.get(at)
        if offset is None:
            return f"{at}: {held[at]}. A member has it, and nothing was committed; read_committed stops at {stable}."
        has = "is at" if is_share else "has committed"
        return f"{at}: {held[at]}. It {has} offset {offset}; read_committed stops at {stable}."

    lines = [line(at) for at in list(held)[:MOST_NAMED]]
    if len(held) > MOST_NAMED:
        lines.append(f"Also with an open transaction: {some(list(held)[MOST_NAMED:], MOST_NAMED)}.")
    where = positions_of(question, positions.offsets, search.readings) if not is_share else []
    text = (*explained.text, *lines, *position_lines(where, held))
    hurt = any(_can_reach(positions.offsets.get(at), search.readings[at]) for at in held)
    affected = (explained.target,) if hurt else ()
    return replace(explained, text=text, positions=tuple(where), affected_groups=affected), causes


def _can_reach(offset: Offset | None, reading: PartitionReading) -> bool:
    """Whether a group stops at the last stable offset, if it reads with read_committed."""
    return offset is None or offset <= (reading.last_stable_offset or 0)


def _is_held(reading: PartitionReading) -> bool:
    stable, end = reading.last_stable_offset, reading.high_watermark
    return stable is not None and end is not None and stable < end
