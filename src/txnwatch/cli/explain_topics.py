"""`explain` for several partitions at once: those of a topic, or those that a number or an offset can mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from txnwatch.cli.compose import Question
from txnwatch.cli.explain_causes import (
    causes_on,
    with_causes,
)
from txnwatch.cli.explain_connect import with_connect
from txnwatch.cli.explain_replicas import with_replicas
from txnwatch.cli.explanation import (
    ALL_CLEAR,
    UNPROVEN,
    Explanation,
)
from txnwatch.state.model.values import (
    TopicPartition,
)
from txnwatch.state.text import counted


def of_topic(question: Question, name: str) -> Explanation | None:
    """Explains all partitions of a topic; None if it is not shown."""
    topic = question.cluster.known.topics.get(name)
    if topic is None or topic.is_hidden:
        return None
    partitions = [TopicPartition(name, number) for number in sorted(topic.partitions)]
    count = counted(len(partitions), "partition")
    head = f"{name}: a topic with {count}. Ask for a partition, for example {partitions[0]}."
    return of_places(question, name, partitions, head, Explanation(name, ALL_CLEAR, topic=name))


def of_places(
    question: Question,
    target: str,
    partitions: Sequence[TopicPartition],
    head: str,
    clear: Explanation | None = None,
) -> Explanation:
    """Explains what is open on some partitions; `clear` has the fields of an answer without an open transaction."""
    search = question.searcher.search(partitions)
    question.missing.update(search.not_checked)
    causes = causes_on(search, partitions)
    text = f"All clear: no transaction is open on {'it' if len(partitions) == 1 else 'any of them'}."
    if search.not_checked:
        text = "No open transaction was found, but not everything could be read."
    state = UNPROVEN if search.not_checked and not causes else ALL_CLEAR
    explained = replace(clear or Explanation(target, state), state=state, text=(head, *(() if causes else (text,))))
    explained = with_causes(question, explained, causes)
    unread = [at for at in partitions if search.readings[at].problem is not None]
    if unread:
        explained = with_replicas(question.cluster, explained, unread)
    return with_connect(question, explained, {at.topic for at in partitions})
