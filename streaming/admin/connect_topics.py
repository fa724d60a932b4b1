"""The internal topics of Kafka Connect, which nothing in Kafka names: they are known by their names alone.

Connect keeps its state in three topics: offset.storage.topic, config.storage.topic and status.storage.topic of the
workers' configuration. A topic is taken for one of them if there are three whose names differ only in the words offset,
config and status, or if the name begins with the group.id of workers that the brokers list. Pure: no I/O, no clock.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from txnwatch.state.model.incident import ConnectSetting, ConnectUse

_KIND: Final = re.compile(r"(?P<head>.*?)(?P<kind>offset|config|status)(?P<plural>e?s)?(?P<tail>(?:[-._].*)?)")
_SETTINGS: Final = {
    "offset": ConnectSetting.OFFSETS,
    "config": ConnectSetting.CONFIGS,
    "status": ConnectSetting.STATUS,
}
_BY_CUSTOM: Final = ("connect", "_connect", "__connect", "docker-connect", "connect-cluster")


class ConnectTopics(NamedTuple):
    """The internal topics of one Connect cluster."""

    offsets: str
    configs: str
    status: str

    @property
    def head(self) -> str:
        """What their names begin with."""
        return _head(self.offsets)


def _head(name: str) -> str:
    match = _KIND.fullmatch(name)
    return match["head"].rstrip("-._") if match is not None else ""


def connect_topics(names: Iterable[str]) -> list[ConnectTopics]:
    """The sets of three topics whose names differ only in the kind, sorted."""
    sets: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for name in sorted(names):
        match = _KIND.fullmatch(name)
        if match is not None:
            sets[match["head"], match["tail"]].setdefault(match["kind"], name)
    return [
        ConnectTopics(*(by_kind[kind] for kind in _SETTINGS))
        for by_kind in sets.values()
        if len(by_kind) == len(_SETTINGS)
    ]


def topics_of_workers(group_id: str, names: Iterable[str]) -> ConnectTopics | None:
    """The topics of the workers with this group.id, by its name or by custom; None if it is not known."""
    sets = connect_topics(names)
    own = (
        [topics for topics in sets if topics.head == group_id]
        or [topics for topics in sets if topics.head in _BY_CUSTOM]
        or sets
    )
    return own[0] if len(own) == 1 else None


def connect_uses(asked: Iterable[str], names: Iterable[str], groups: Collection[str] = ()) -> dict[str, ConnectUse]:
    """What Connect keeps in some topics; `names` are those of all topics, `groups` the groups of workers."""
    kinds = {name: match["kind"] for name in asked if (match := _KIND.fullmatch(name)) is not None}
    if not kinds:
        return {}
    all_names = [*names, *kinds]
    owned = {name: group for group in groups for name in topics_of_workers(group, all_names) or ()}
    owned |= {name: _head(name) for name in kinds if _head(name) in groups}
    in_sets = {name for topics in connect_topics(all_names) for name in topics}
    return {
        name: ConnectUse(topic=name, setting=_SETTINGS[kind], group_id=owned.get(name))
        for name, kind in kinds.items()
        if name in owned or name in in_sets
    }
