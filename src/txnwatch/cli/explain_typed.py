"""`explain` for a text that nothing in the cluster has as its name: what it is taken for, and the nearest names.

Apart: explain_lookup.py asks for what exists first.

The forms are in typed_forms.py. Each answer begins with what the text was taken for.

Law: the id of an incident is a hash, so nothing in it can be believed or read. What is open now is compared with it:
each open transaction has an id of its own. Only if none fits, the events topic says where to look, and the answer is
what is found there now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from txnwatch.cli.compose import Question
from txnwatch.cli.explain_connect import NOT_CHECKED
from txnwatch.cli.explain_names import of_former_id, of_group_named, of_known_id, of_producer_id
from txnwatch.cli.explain_partitions import of_one_partition
from txnwatch.cli.explain_records import of_record
from txnwatch.cli.explain_topics import of_places, of_topic
from txnwatch.cli.explanation import Explanation
from txnwatch.cli.open_anywhere import data_partitions, read_all
from txnwatch.cli.output import utc
from txnwatch.cli.typed_forms import TypedKind, TypedReading, nearest, readings, same_but_for_case
from txnwatch.config import EVENTS_TOPIC
from txnwatch.state.model.incident import IncidentEvent, partition_of, span_incident_id, transaction_incident_id
from txnwatch.state.model.ports import PartitionReading
from txnwatch.state.model.transaction import DescribedTransaction
from txnwatch.state.model.values import Offset, PartitionOffset, TopicPartition
from txnwatch.state.model.verdicts import RULE_OF, Verdict, family_of
from txnwatch.state.telling.commands import explain_group, explain_id, explain_named, explain_partition, find_hanging
from txnwatch.state.text import cut, quoted, some
from txnwatch.streaming.admin.groups import ClusterGroups, shown_topics

_NAMED = 5


class Taken(NamedTuple):
    """What a text was taken for, as words, and the answer about that."""

    meant: str
    explained: Explanation


def of_form(question: Question, text: str) -> Explanation | None:
    """Explains what a text can be taken for; None if no reading of it exists."""
    unread: dict[str, str] = {}
    for reading in readings(text):
        asked = replace(question, missing={})
        taken = _ANSWERS[reading.kind](asked, reading)
        if taken is not None:
            question.missing.update(asked.missing)
            head = f"{cut(text)}: taken for {taken.meant}."
            return replace(taken.explained, target=text, text=(head, *taken.explained.text))
        unread |= asked.missing
    question.missing.update(unread)
    return None


# The places.


def _topic_of(question: Question, name: str) -> str | None:
    """The topic of this name, or the only one whose name differs in the case of letters."""
    if name in question.cluster.known.topics:
        return name
    same = same_but_for_case(name, shown_topics(question.cluster))
    return same[0] if len(same) == 1 else None


def _place_of(question: Question, reading: TypedReading) -> TopicPartition | None:
    topic = _topic_of(question, reading.topic)
    at = TopicPartition(topic, reading.partition) if topic is not None else None
    return at if at is not None and question.cluster.known.info(at) is not None else None


def _record(question: Question, reading: TypedReading) -> Taken | None:
    at = _place_of(question, reading)
    if at is None:
        return None
    record = PartitionOffset(at, Offset(reading.offset))
    return Taken(
        f"offset {reading.offset} of partition {at.partition} of topic {at.topic}", of_record(question, record)
    )


def _partition(question: Question, reading: TypedReading) -> Taken | None:
    at = _place_of(question, reading)
    return (
        Taken(f"partition {at.partition} of topic {at.topic}", of_one_partition(question, at))
        if at is not None
        else None
    )


def _each_partition(question: Question, reading: TypedReading) -> Taken | None:
    number = reading.partition
    places = [at for at in data_partitions(question.cluster, None) if at.partition == number]
    if not places:
        return None
    names = some([at.topic for at in places], _NAMED)
    if len(places) == 1:
        return Taken(
            f"partition {number} of {names}, the only topic that has one", of_one_partition(question, places[0])
        )
    head = (
        f"Its topic is not named: {len(places)} topics have a partition {number} ({names}). Ask for one of them, for "
        f"example `{explain_partition(question.origin, places[0])}`."
    )
    return Taken(f"partition {number} of every topic", of_places(question, f"partition {number}", places, head))


def _each_offset(question: Question, reading: TypedReading) -> Taken | None:
    offset = reading.offset
    everywhere, left = read_all(question)
    places = [at for at, partition_reading in everywhere.items() if _stops_at(partition_reading, Offset(offset))]
    meant = f"offset {offset} of a partition that is not named"
    if places:
        head = f"At this offset read_committed stops or open data begins on {some([str(at) for at in places], _NAMED)}."
        return Taken(meant, of_places(question, f"offset {offset}", places, head))
    question.missing[f"offset {offset}"] = "its partition is not named"
    unread = left + sum(partition_reading.problem is not None for partition_reading in everywhere.values())
    where = f"{len(everywhere) - unread + left} partitions" if unread else f"any of the {len(everywhere)} partitions"
    example = next(iter(everywhere), TopicPartition("TOPIC", 0))
    text = (
        f"On {where} that were read, read_committed does not stop at this offset, and no open data begins there. Ask "
        f"for the offset of a partition: `{explain_partition(question.origin, example)} --offset {offset}`."
    )
    return Taken(meant, Explanation(str(offset), NOT_CHECKED, text=(text,)))


def _stops_at(partition_reading: PartitionReading, offset: Offset) -> bool:
    stable, end = partition_reading.last_stable_offset, partition_reading.high_watermark
    is_end = stable is not None and end is not None and stable < end and stable == offset
    return is_end or any(producer.txn_start_offset == offset for producer in partition_reading.producers)


# The names with a word before them.


def _named_topic(question: Question, reading: TypedReading) -> Taken | None:
    name = _topic_of(question, reading.name)
    explained = of_topic(question, name) if name is not None else None
    return Taken(f"topic {name}", explained) if explained is not None else None


def _group(question: Question, reading: TypedReading) -> Taken | None:
    explained = of_group_named(question, reading.name)
    return Taken(f"consumer group {quoted(reading.name)}", explained) if explained is not None else None


def _id(question: Question, reading: TypedReading) -> Taken | None:
    now = question.searcher.admin.describe_transactions([reading.name])[reading.name]
    is_known = isinstance(now, DescribedTransaction)
    explained = of_known_id(question, reading.name) if is_known else of_former_id(question, reading.name)
    return Taken(f"transactional id {quoted(reading.name)}", explained) if explained is not None else None


def _producer(question: Question, reading: TypedReading) -> Taken | None:
    explained = of_producer_id(question, reading.name)
    return Taken(f"producer id {reading.name}", explained) if explained is not None else None


# Incidents.


def _incident(question: Question, reading: TypedReading) -> Taken | None:
    meant = f"the incident {reading.incident}"
    at = _open_data_of(question, reading.incident)
    if at is not None:
        explained = of_one_partition(question, at)
        return Taken(f"{meant}: open data on {at} has this id now", explained)
    name = _live_id_of(question, reading.incident)
    if name is not None:
        return Taken(f"{meant}: the open transaction of {quoted(name)} has this id now", of_known_id(question, name))
    published = question.origin.published()
    named = [event for event in published.events if event.incident_id == reading.incident]
    here = [event for event in named if event.cluster_id == question.origin.cluster_id]
    for event in here or named:  # one of this cluster at most
        return _published(question, event, meant)
    return None


def _open_data_of(question: Question, incident_id: str) -> TopicPartition | None:
    """The partition whose open data has this id as its incident; a second hang of the same data has another one."""
    cluster_id = question.origin.cluster_id
    for at, partition_reading in read_all(question)[0].items():
        for producer in partition_reading.producers:
            start = producer.txn_start_offset
            if start is not None and partition_reading.topic_id is not None:
                own_id = span_incident_id(
                    cluster_id, partition_reading.topic_id, at.partition, producer.producer_id, start
                )
                if own_id == incident_id:
                    return at
    return None


_OF_EACH_FAMILY: Final = {RULE_OF[verdict].family: verdict for verdict in Verdict}


def _live_id_of(question: Question, incident_id: str) -> str | None:
    """The transactional id whose live transaction has this id as its incident."""
    admin = question.searcher.admin
    live = [
        transaction.transactional_id
        for transaction in admin.list_transactions([]).transactions
        if transaction.state.is_live
    ]
    for name, now in admin.describe_transactions(live).items():
        if isinstance(now, DescribedTransaction) and (family := family_of(now)) is not None:
            verdict = _OF_EACH_FAMILY[family]
            cluster_id = question.origin.cluster_id
            if incident_id == transaction_incident_id(cluster_id, name, now.producer_id, now.start_ms, verdict):
                return name
    return None


def _published(question: Question, event: IncidentEvent, meant: str) -> Taken:
    """An incident that only the events topic names: it says where to look."""
    said = f"{meant}. By the events topic, which others may write, it is {event.status} since {utc(event.time_ms)}"
    if event.cluster_id != question.origin.cluster_id:
        text = f"It is of the cluster {cut(event.cluster)}, and not of this one: ask there."
        return Taken(said, Explanation(event.incident_id, NOT_CHECKED, text=(text,)))
    if event.topic is None or event.txn_start_offset is None:
        return Taken(
            f"{said}, about transactional id {quoted(event.transactional_id or '')}", _of_its_id(question, event)
        )
    at, offset = partition_of(event), event.txn_start_offset
    where = f"{said}, about {at} from offset {offset}"
    if event.first_id == event.incident_id:
        where += " (the id fits this place)"
    topic = question.cluster.known.topics.get(event.topic)
    if topic is None or topic.topic_id != event.topic_id or question.cluster.known.info(at) is None:
        text = (
            f"That topic {event.topic} was deleted, or is hidden from this user: what was open there is gone with it."
        )
        return Taken(where, Explanation(event.incident_id, NOT_CHECKED, text=(text,)))
    return Taken(f"{where}. Now", of_record(question, PartitionOffset(at, offset)))


def _of_its_id(question: Question, event: IncidentEvent) -> Explanation:
    """What the transactional id of an incident is doing now."""
    name = event.transactional_id or ""
    now = question.searcher.admin.describe_transactions([name])[name] if name else None
    if isinstance(now, DescribedTransaction):
        return of_known_id(question, name)
    former = of_former_id(question, name) if name else None
    gone = "No coordinator has this transactional id now, and the log has no record of it."
    return former or Explanation(event.incident_id, NOT_CHECKED, text=(gone,))


_ANSWERS: Final[Mapping[TypedKind, Callable[[Question, TypedReading], Taken | None]]] = {
    TypedKind.INCIDENT: _incident,
    TypedKind.RECORD: _record,
    TypedKind.PARTITION: _partition,
    TypedKind.EACH_PARTITION: _each_partition,
    TypedKind.EACH_OFFSET: _each_offset,
    TypedKind.TOPIC: _named_topic,
    TypedKind.GROUP: _group,
    TypedKind.ID: _id,
    TypedKind.PRODUCER: _producer,
}


# The names that exist.


class KnownNames(NamedTuple):
    """The topics, groups and transactional ids that this user sees; each name with what it is."""

    kinds: dict[str, str]
    problems: tuple[str, ...] = ()


def known_names(question: Question) -> KnownNames:
    """Lists them: one request for each broker about groups, and one about ids."""
    groups, problems = ClusterGroups(question.cluster).names()
    listing = question.searcher.admin.list_transactions([])
    return KnownNames(
        {
            **{transaction.transactional_id: str(TypedKind.ID) for transaction in listing.transactions},
            **dict.fromkeys(groups, str(TypedKind.GROUP)),
            **dict.fromkeys(shown_topics(question.cluster), str(TypedKind.TOPIC)),
        },
        (*problems, *(str(problem) for problem in listing.problems if listing.has_ids)),
    )


def near_text(question: Question, text: str, names: KnownNames) -> str:
    """The nearest names with the command for each, as a part of a sentence; empty if none is near."""
    near = nearest(text, {**names.kinds, **_partitions_near(question, text)})
    named = [f"{cut(name)} ({what}): `{_command(question, name, what)}`" for name, what in near]
    return f"; near: {', '.join(named)}" if named else ""


def _partitions_near(question: Question, text: str) -> dict[str, str]:
    """The partitions of the topics that the beginning of a text is near to."""
    stem = text.rstrip("0123456789oOlI").rstrip("-_/:. ")
    topics = nearest(stem, dict.fromkeys(shown_topics(question.cluster), str(TypedKind.TOPIC))) if stem != text else []
    topics_by_name = question.cluster.known.topics
    return {
        str(TopicPartition(name, number)): str(TypedKind.PARTITION)
        for name, _ in topics
        for number in sorted(topics_by_name[name].partitions)
    }


def _command(question: Question, name: str, what: str) -> str:
    commands = {str(TypedKind.ID): explain_id, str(TypedKind.GROUP): explain_group}
    return commands.get(what, explain_named)(question.origin, name)


def not_found_incident(question: Question, text: str) -> str | None:
    """Why the id of an incident leads nowhere; None if the text is no such id."""
    reading = next(readings(text), None)
    if reading is None or reading.kind is not TypedKind.INCIDENT:
        return None
    topic = question.origin.events.events_topic or EVENTS_TOPIC
    published = question.origin.published()
    why = "has no event of it"
    if topic not in question.cluster.known.topics:
        why = "does not exist, or is hidden from this user"
    elif published.problem is not None:
        why = f"could not be read: {published.problem}"
    return (
        f"{cut(text)}: taken for an incident. Nothing that is open in this cluster now has this id, and the events "
        f"topic {topic} {why}. It has ended and its events are gone, or it is of another cluster: its alert or event "
        f"names the cluster. What hangs now: `{find_hanging(question.origin)}`"
    )


def missing_partition_of(question: Question, text: str) -> TopicPartition | None:
    """The partition that a text names and that does not exist; one of a topic that exists comes first."""
    named = [TopicPartition(reading.topic, reading.partition) for reading in readings(text) if reading.topic]
    for topic, number in named:
        existing = _topic_of(question, topic)
        if existing is not None:
            return TopicPartition(existing, number)
    return named[0] if named else None
