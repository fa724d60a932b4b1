"""`explain` for Kafka Connect: the group of its workers, and a transaction on one of its internal topics.

Connect has a group that commits nothing, and topics that workers and not groups read; streaming/admin/connect_topics.py
knows them by their names. If none or several sets could be those of a group, the answer is not complete.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from txnwatch.cli.compose import Question
from txnwatch.cli.explain_causes import causes_on, places_of, with_causes
from txnwatch.cli.explanation import ALL_CLEAR, OPEN, Explanation
from txnwatch.state.model.values import TopicPartition
from txnwatch.state.model.verdicts import EndsByItself
from txnwatch.state.telling.hurt import connect_text
from txnwatch.state.telling.statements import StatementKind, Told
from txnwatch.state.text import cut
from txnwatch.streaming.admin.connect_topics import connect_uses, topics_of_workers
from txnwatch.streaming.admin.groups import KnownGroup, shown_topics

NOT_CHECKED: Final = "not_checked"


def of_workers(question: Question, group: KnownGroup) -> Explanation:
    """Explains the group of Connect's workers by the internal topics of Connect."""
    away = " (no worker runs now)" if group.state == "Empty" else ""
    head = (
        f"{cut(group.group_id)}: the group of Kafka Connect's workers (group.id of their configuration), state "
        f"{group.state}{away}, at broker {group.coordinator}. It commits no offsets."
    )
    topics = topics_of_workers(group.group_id, shown_topics(question.cluster))
    sinks = "A sink connector has a group of its own, by default connect-NAME: ask for that one."
    if topics is None:
        question.missing[f"the internal topics of Connect group {cut(group.group_id)}"] = (
            "their names do not show which they are: ask for each topic that offset.storage.topic, "
            "config.storage.topic and status.storage.topic of the workers name"
        )
        return Explanation(group.group_id, NOT_CHECKED, text=(head, sinks))
    keeps = f"By their names, Connect keeps its state in {topics.offsets}, {topics.configs} and {topics.status}."
    partitions = [
        TopicPartition(name, number)
        for name in topics
        for number in sorted(question.cluster.known.topics[name].partitions)
    ]
    search = question.searcher.search(partitions)
    question.missing.update(search.not_checked)
    causes = causes_on(search, partitions)
    explained = with_causes(
        question, Explanation(group.group_id, ALL_CLEAR, group_id=group.group_id, text=(head, keeps)), causes
    )
    if not causes:
        clear = "All clear: no transaction is open on these topics."
        return replace(explained, text=(*explained.text, clear, sinks))
    explained = with_connect(question, explained, {at.topic for at in places_of(causes)}, [group.group_id])
    return replace(explained, text=(*explained.text, sinks))


def with_connect(
    question: Question, explained: Explanation, topics: Collection[str], groups: Collection[str] = ()
) -> Explanation:
    """The answer with what an open transaction on some topics does to Connect; the same for others.

    Nothing is said of a transaction that is short and ends by itself.
    """
    if explained.state == ALL_CLEAR or (explained.state == OPEN and explained.ends_by_itself == EndsByItself.YES):
        return explained
    uses = connect_uses(topics, shown_topics(question.cluster), groups)
    told = [Told(StatementKind.CONNECT, connect_text(uses[name])) for name in sorted(uses)]
    return replace(
        explained, text=(*explained.text, *(statement.text for statement in told)), told=(*explained.told, *told)
    )
