"""`explain` for Kafka Connect: the group of its workers, and a transaction on one of its internal topics.

Connect has a group that commits nothing, and topics that workers and not groups read. It keeps its state in three
topics: offset.storage.topic, config.storage.topic and status.storage.topic of the workers' configuration. A worker that
starts reads each of them to its end, which it lists with read_uncommitted, before it loads a connector. With
exactly.once.source.support it reads the first two with read_committed, so behind an open transaction it never comes to
that end. No group shows this, because these consumers have none.

Law: nothing in Kafka names these topics, so they are known by their names alone: three topics whose names differ only
in the words offset, config and status. If none or several sets could be those of a group, the answer is not complete.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from txnwatch.cli.compose import Question
from txnwatch.cli.explanation import ALL_CLEAR, OPEN, YES, Explanation, open_in
from txnwatch.state.evidence.screening import Search
from txnwatch.state.model.values import TopicPartition
from txnwatch.state.text import cut, quoted, some
from txnwatch.streaming.admin.groups import KnownGroup

NOT_CHECKED: Final = "not_checked"
_NAMED = 5
_KIND = re.compile(r"(?P<head>.*?)(?P<kind>offset|config|status)(?P<plural>e?s)?(?P<tail>(?:[-._].*)?)")
_KINDS = ("offset", "config", "status")
_BY_CUSTOM = ("connect", "_connect", "__connect", "docker-connect", "connect-cluster")

Line = Callable[[TopicPartition, Explanation], str]
WithHeld = Callable[[Question, Explanation, Search, Sequence[TopicPartition], Line], Explanation]


class ConnectTopics(NamedTuple):
    """The internal topics of one Connect cluster."""

    offsets: str
    configs: str
    status: str

    @property
    def head(self) -> str:
        """What their names begin with."""
        found = _KIND.fullmatch(self.offsets)
        assert found is not None
        return found["head"].rstrip("-._")


def connect_topics(names: Iterable[str]) -> list[ConnectTopics]:
    """The sets of three topics whose names differ only in the kind, sorted."""
    sets: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for name in sorted(names):
        found = _KIND.fullmatch(name)
        if found is not None:
            sets[found["head"], found["tail"]].setdefault(found["kind"], name)
    return [ConnectTopics(*(one[kind] for kind in _KINDS)) for one in sets.values() if len(one) == len(_KINDS)]


def topics_of_workers(group_id: str, names: Iterable[str]) -> ConnectTopics | None:
    """The topics of the workers with this group.id, by its name or by custom; None if it is not known."""
    sets = connect_topics(names)
    own = [one for one in sets if one.head == group_id] or [one for one in sets if one.head in _BY_CUSTOM] or sets
    return own[0] if len(own) == 1 else None


# The group of the workers.


def of_workers(question: Question, group: KnownGroup, with_held: WithHeld) -> Explanation:
    """Explains the group of Connect's workers by the internal topics of Connect."""
    away = " (no worker runs now)" if group.state == "Empty" else ""
    head = (
        f"{cut(group.group_id)}: the group of Kafka Connect's workers (group.id of their configuration), state "
        f"{group.state}{away}, at broker {group.coordinator}. It commits no offsets."
    )
    known = topics_of_workers(group.group_id, _shown(question))
    sinks = "A sink connector has a group of its own, by default connect-NAME: ask for that one."
    if known is None:
        question.missing[f"the internal topics of Connect group {cut(group.group_id)}"] = (
            "their names do not show which they are: ask for each topic that offset.storage.topic, "
            "config.storage.topic and status.storage.topic of the workers name"
        )
        return Explanation(group.group_id, NOT_CHECKED, text=(head, sinks))
    keeps = f"By their names, Connect keeps its state in {known.offsets}, {known.configs} and {known.status}."
    partitions = [
        TopicPartition(name, number)
        for name in known
        for number in sorted(question.cluster.known.topics[name].partitions)
    ]
    found = question.searcher.search(partitions)
    question.missing.update(found.not_checked)
    held = [at for at in partitions if any(span.partition == at for span in open_in(found))]
    explained = Explanation(group.group_id, ALL_CLEAR, text=(head, keeps))
    explained = with_held(question, explained, found, held, lambda _, why: why.text[0])
    if not held:
        clear = "All clear: no transaction is open on these topics."
        return replace(explained, text=(*explained.text, clear, sinks))
    return replace(explained, text=(*explained.text, *_stops(explained, [at.topic for at in held], known), sinks))


def _shown(question: Question) -> list[str]:
    return [name for name, topic in question.cluster.known.topics.items() if not topic.is_hidden]


# A transaction on one of the internal topics.


def with_connect(question: Question, topic: str, explained: Explanation) -> Explanation:
    """The answer about a topic or a partition, with what its open transaction does to Connect; the same for others."""
    known = next((one for one in connect_topics(_shown(question)) if topic in one), None)
    if known is None:
        return explained
    return replace(explained, text=(*explained.text, *_stops(explained, [topic], known)))


def _stops(explained: Explanation, held: Sequence[str], known: ConnectTopics) -> tuple[str, ...]:
    """Which workers a transaction stops; none if it is short and ends by itself."""
    if explained.state == ALL_CLEAR or (explained.state == OPEN and explained.ends_by_itself == YES):
        return ()
    topics = sorted(set(held))
    setting = "exactly.once.source.support"
    if topics == [known.status]:
        setting = "isolation.level=read_committed"
    names = some([quoted(name) for name in topics], _NAMED)
    what = f"By its name, {names} is an internal topic" if len(topics) == 1 else f"By their names, {names} are topics"
    stops = (
        f"Workers with {setting} that start now load no connectors: they read to its end with read_committed first, "
        "and wait there until this transaction has ended. Do not restart workers that run: they go on."
    )
    return f"{what} of Kafka Connect.", stops
