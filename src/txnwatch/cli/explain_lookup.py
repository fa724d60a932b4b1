"""`explain` for one text: what has it as its name, then what it is taken for, and at last the nearest names.

Apart: explain.py finds out whether the target is a partition or a record, and adds whom to call.

One name can be several things, so an id, a group and a topic of one name are all explained, first what needs attention.
The coordinators' log is searched only for a name that nothing has now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NoReturn

from txnwatch.cli.compose import Question
from txnwatch.cli.explain_names import (
    NO_FINDING,
    of_former_id,
    of_group_named,
    of_known_id,
    of_producer_id,
    participants_of,
)
from txnwatch.cli.explain_replicas import because_of, log_blocked
from txnwatch.cli.explain_topics import of_topic
from txnwatch.cli.explain_typed import (
    KnownNames,
    known_names,
    missing_partition_of,
    near_text,
    not_found_incident,
    of_form,
)
from txnwatch.cli.explain_words import of_word, with_word
from txnwatch.cli.explanation import (
    Explanation,
)
from txnwatch.cli.output import utc
from txnwatch.cli.past_ids import nobody_has
from txnwatch.cli.typed_forms import same_but_for_case
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.transaction import (
    DescribedTransaction,
    NotDescribed,
    TransactionDescription,
    UnknownTransactionalId,
)
from txnwatch.state.model.values import (
    TopicPartition,
)
from txnwatch.state.text import cut, quoted
from txnwatch.streaming.admin.transaction_requests import NEVER_USED, NEVER_USED_NOTE
from txnwatch.streaming.client.hidden_topics import hidden_topics, why_not_shown
from txnwatch.streaming.log.coordinator_log import (
    read_naming,
)


def of_name(question: Question, name: str, now: TransactionDescription) -> Explanation:
    """Explains whatever has this name; `now` is what the coordinator of a transactional id of this name answers.

    Raises:
        BrokerError: nothing has this name; the text says what was looked for.
    """
    missing: dict[str, str] = {}
    former = (
        (of_former_id,) if isinstance(now, UnknownTransactionalId) else ()
    )  # only its absence shows that it expired
    for_known_id = (of_known_id,) if isinstance(now, DescribedTransaction) else ()
    for parts in ((*for_known_id, of_group_named, of_topic), (of_form,), former, (of_producer_id,)):
        explanations: list[Explanation] = []
        for part in parts:
            asked = replace(question, missing={})
            explained = part(asked, name)
            missing |= asked.missing
            if explained is not None:
                question.missing |= asked.missing
                explanations.append(explained)
        if explanations:
            first, *others = sorted(explanations, key=lambda explanation: explanation.state in NO_FINDING)
            explained = replace(first, text=(*first.text, *(line for other in others for line in other.text)))
            return with_word(explained, name)
    meant = of_word(question.origin, name)
    if meant is not None:
        question.missing |= missing
        if isinstance(now, NotDescribed) and now.problem.text != NEVER_USED:
            question.missing[f"transactional id {cut(name)}"] = str(now.problem)
        return meant
    names = known_names(question)
    return _same_but_for_case(question, name, names) or _nowhere(question, name, now, missing, names)


def _same_but_for_case(question: Question, name: str, names: KnownNames) -> Explanation | None:
    """Explains the only name that differs in the case of letters."""
    same = same_but_for_case(name, names.kinds)
    if len(same) != 1 or name in same:
        return None
    now = question.searcher.admin.describe_transactions(same)[same[0]]
    explained = of_name(question, same[0], now)
    head = f"{cut(name)}: taken for {names.kinds[same[0]]} {quoted(same[0])}, which differs in the case of letters."
    return replace(explained, target=name, text=(head, *explained.text))


def _nowhere(
    question: Question, name: str, now: TransactionDescription, missing: Mapping[str, str], names: KnownNames
) -> NoReturn:
    """Nothing has this name.

    Raises:
        BrokerError: always.
    """
    unread = "".join(f"; {what} could not be read: {why}" for what, why in missing.items())
    unread += "".join(f"; not all names are known: {problem}" for problem in names.problems)
    incident = not_found_incident(question, name)
    if incident is not None:
        raise BrokerError(incident + unread)
    if name.isascii() and name.isdigit():
        raise BrokerError(f"{nobody_has(name)} No partition that was read has open data of it{unread}")
    near = near_text(question, name, names)
    at = missing_partition_of(question, name.partition("@")[0])
    about = _missing_partition(question, at) if at is not None else ""
    if isinstance(now, NotDescribed) and now.problem.text == NEVER_USED:
        raise BrokerError(f"{cut(name)}: {about}no topic or consumer group has this name{near}; {NEVER_USED_NOTE}")
    if isinstance(now, NotDescribed):
        why = because_of(log_blocked(question.cluster, name))
        raise BrokerError(f"transactional id {cut(name)}: {now.problem}{why}{near}")
    raise BrokerError(
        f"{cut(name)}: {about}no topic, consumer group or transactional id has this name{near}; if it was an id: such "
        f"an id never existed, or it expired (transactional.id.expiration.ms) and compaction has removed its records"
        f"{unread}"
    )


def _missing_partition(question: Question, meant: TopicPartition) -> str:
    """Why a partition does not exist, as the beginning of a sentence; nothing if this is not known."""
    topic = question.cluster.known.topics.get(meant.topic)
    if topic is not None and topic.partitions:
        highest = max(topic.partitions)
        return f"topic {meant.topic} has {f'the partitions 0 to {highest}' if highest else 'only partition 0'}; "
    if hidden_topics(question.cluster, [meant.topic]):
        return f"topic {meant.topic}: {why_not_shown(question.cluster, meant.topic)}; "
    records, _ = read_naming(question.cluster, meant.topic)
    last = next((record for record in reversed(records) if meant in participants_of([record])), None)
    if last is None:
        return f"topic {meant.topic} does not exist: it was deleted, or it never existed; "
    return (
        f"topic {meant.topic} was deleted, and with it all that was open on it: transactional id "
        f"{quoted(last.transactional_id)} had {meant} in a transaction at {utc(last.timestamp_ms)}; "
    )
