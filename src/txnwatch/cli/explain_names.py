"""`txnwatch explain` for any other name: a group, a topic, a missing partition, a producer id, an id that has expired.

Only explain.py needs it, as the last resort: it takes what is neither a partition nor a known id.

One name can be several things, so a group and a topic of one name are both explained, first what needs attention. The
coordinators' log is searched only for a name that nothing has now.
"""

from __future__ import annotations

from dataclasses import replace

from txnwatch.cli.compose import Question
from txnwatch.cli.explain_groups import of_group, with_held
from txnwatch.cli.explain_ids import EXPIRED, of_former_id, of_producer_id
from txnwatch.cli.explanation import ALL_CLEAR, Explanation, open_in
from txnwatch.cli.output import utc
from txnwatch.cli.past_ids import nobody_has, participants_of
from txnwatch.state.evidence.visibility import Visibility
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.transaction import NotDescribed, TransactionDescription, UnknownTransactionalId
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.admin.groups import ClusterGroups
from txnwatch.streaming.log.coordinator_log import read_naming
from txnwatch.streaming.source.lister import hidden_topics, why_not_shown

# States that are no finding for --fail-on-found.
NO_FINDING = frozenset({ALL_CLEAR, "idle", EXPIRED, "superseded", str(Visibility.VISIBLE)})


def of_name(question: Question, name: str, now: TransactionDescription) -> Explanation:
    """Explains whatever has this name; `now` is what the coordinator of a transactional id of this name answers.

    Raises:
        BrokerError: nothing has this name; the text says what was looked for.
    """
    missing: dict[str, str] = {}
    former = (
        (of_former_id,) if isinstance(now, UnknownTransactionalId) else ()
    )  # only its absence shows that it expired
    for parts in ((of_group_named, of_topic), former, (of_producer_id,)):
        found: list[Explanation] = []
        for part in parts:
            asked = replace(question, missing={})
            explained = part(asked, name)
            missing |= asked.missing
            if explained is not None:
                question.missing |= asked.missing
                found.append(explained)
        if found:
            first, *others = sorted(found, key=lambda one: one.state in NO_FINDING)
            return replace(first, text=(*first.text, *(line for other in others for line in other.text)))
    if isinstance(now, NotDescribed):
        raise BrokerError(f"transactional id {name}: {now.problem}")
    unread = "".join(f"; {what} could not be read: {why}" for what, why in missing.items())
    raise BrokerError(_nothing(question, name) + unread)


def of_group_named(question: Question, name: str) -> Explanation | None:
    """Explains a consumer group or a share group; None if no broker lists one."""
    found = ClusterGroups(question.cluster).find(name)
    if found.group is not None:
        return of_group(question, found.group)
    if found.problems:
        question.missing[f"consumer group {name!r}"] = "; ".join(found.problems)
    return None


def of_topic(question: Question, name: str) -> Explanation | None:
    """Explains all partitions of a topic; None if it is not shown."""
    topic = question.cluster.known.topics.get(name)
    if topic is None or topic.is_hidden:
        return None
    partitions = [TopicPartition(name, number) for number in sorted(topic.partitions)]
    found = question.searcher.search(partitions)
    question.missing.update(found.not_checked)
    held = [at for at in partitions if any(span.partition == at for span in open_in(found))]
    count = f"{len(partitions)} partition{'s' if len(partitions) != 1 else ''}"
    head = f"{name}: a topic with {count}. Ask for a partition, for example {partitions[0]}."
    clear = f"All clear: no transaction is open on {'it' if len(partitions) == 1 else 'any of them'}."
    explained = Explanation(name, ALL_CLEAR, text=(head, *(() if held else (clear,))))
    return with_held(question, explained, found, held, lambda _, why: why.text[0])


def _nothing(question: Question, name: str) -> str:
    """What was looked for, and what the name most likely means."""
    if name.isascii() and name.isdigit():
        return f"{nobody_has(name)} `txnwatch find-hanging` shows whether it has open data"
    try:
        meant = TopicPartition.parse(name.partition("@")[0])
    except ValueError:
        meant = None
    about = _missing_partition(question, meant) if meant is not None else ""
    return (
        f"{name}: {about}no topic, consumer group or transactional id has this name: such an id never existed, or it "
        "expired (transactional.id.expiration.ms) and compaction has removed its records"
    )


def _missing_partition(question: Question, meant: TopicPartition) -> str:
    """Why a partition does not exist, as the beginning of a sentence; nothing if this is not known."""
    topic = question.cluster.known.topics.get(meant.topic)
    if topic is not None and topic.partitions:
        return f"topic {meant.topic} has the partitions 0 to {max(topic.partitions)}; "
    if hidden_topics(question.cluster, [meant.topic]):
        return f"topic {meant.topic}: {why_not_shown(question.cluster, meant.topic)}; "
    records, _ = read_naming(question.cluster, meant.topic)
    last = next((one for one in reversed(records) if meant in participants_of([one])), None)
    if last is None:
        return f"topic {meant.topic} does not exist: it was deleted, or it never existed; "
    return (
        f"topic {meant.topic} was deleted, and with it all that was open on it: transactional id "
        f"{last.transactional_id!r} had {meant} in a transaction at {utc(last.timestamp_ms)}; "
    )
