"""What somebody looks for: an incident, a partition, a topic, an id, a group or a team, by a part of its name. Pure.

Law: nothing is said to be found because its name is valid. What is not known leads to a command that asks the brokers.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from txnwatch.page.details import ask_for_id, number_below
from txnwatch.page.knowledge import Knowledge, transactions_of
from txnwatch.page.lanes import to_find
from txnwatch.page.words import name, owners_of
from txnwatch.state.model.findings import OpenTransaction
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import TopicPartition, is_topic_name

MATCHES: Final = 50
_ID: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")
_SEPARATORS: Final = re.compile(r"[\s,;:/()\[\]{}<>\"'`|=]+")
_WORDS: Final = 50
_BEGUN_ID: Final = re.compile(r"[0-9a-f]{6,31}")


class FoundThing(NamedTuple):
    """One thing with a part of the text in its name.

    Attributes:
        is_whole: whether the text is its whole name.
    """

    kind: str
    text: str
    address: str
    is_whole: bool


def found(knowledge: Knowledge, text: str) -> dict[str, Any] | None:
    """The things with the text in their names, and the address of the only one that is meant; None if there is none."""
    all_of_them = list(dict.fromkeys(_matches(knowledge, text) if text else ())) or _in_a_longer_text(knowledge, text)
    if not all_of_them:
        return None
    whole = {thing.address: None for thing in all_of_them if thing.is_whole}
    meant = list(whole) if whole else list({thing.address: None for thing in all_of_them})
    all_of_them.sort(key=lambda thing: not thing.is_whole)
    return {
        "address": meant[0] if len(whole) > 0 or len(meant) == 1 else None,
        "matches": [
            {"kind": thing.kind, "text": name(thing.text), "address": thing.address} for thing in all_of_them[:MATCHES]
        ],
        "more": max(0, len(all_of_them) - MATCHES),
    }


def _in_a_longer_text(knowledge: Knowledge, text: str) -> list[FoundThing]:
    """The names that are whole words of a text, as an alert has them; of an incident, the beginning as well."""
    words = dict.fromkeys(_SEPARATORS.sub(" ", text).split())
    matches = (thing for word in itertools.islice(words, _WORDS) for thing in _matches(knowledge, word.strip(".")))
    return list(dict.fromkeys(thing for thing in matches if thing.is_whole or thing.kind == "incident"))


def look_for(knowledge: Knowledge, text: str) -> str | None:
    """The command that asks the brokers about what is not known here."""
    at = _partition(text)
    return to_find(knowledge.store.commands, at) if at is not None else ask_for_id(knowledge, text)


def _partition(text: str) -> TopicPartition | None:
    topic, _, index = text.rpartition("-")
    number = number_below(index, 1 << 31)
    return TopicPartition(topic, number) if is_topic_name(topic) and number is not None else None


def _matches(knowledge: Knowledge, text: str) -> Iterator[FoundThing]:
    wanted = text.casefold()
    yield from _incidents(knowledge, wanted)
    at = _partition(text)
    if at is not None and knowledge.is_watched(at):
        yield FoundThing("partition", str(at), f"/partition/{at.topic}/{at.partition}", is_whole=True)
    yield from _groups(knowledge, wanted)
    yield from _ids(knowledge, wanted)
    for topic in knowledge.seen.topics or ():
        if wanted in topic.casefold():
            yield FoundThing("topic", topic, f"/incidents?topic={quote(topic)}", is_whole=wanted == topic.casefold())
    yield from _owners(knowledge, wanted)


def _incidents(knowledge: Knowledge, wanted: str) -> Iterator[FoundThing]:
    """By an id, its beginning, or a text with an id, as an alert or a message has it."""
    pasted = _ID.findall(wanted)
    for event in knowledge.seen.incidents or ():
        key = event.incident_id
        if key in pasted or (_BEGUN_ID.fullmatch(wanted) and key.startswith(wanted)):
            yield FoundThing("incident", key, f"/incident/{key}", is_whole=key in pasted)


def _groups(knowledge: Knowledge, wanted: str) -> Iterator[FoundThing]:
    for event in knowledge.open_incidents:
        affected, waiting = event.consumer_groups, event.waiting_groups
        for group_id in (*(group.group_id for group in affected), *(group.group_id for group in waiting)):
            if wanted in group_id.casefold():
                is_whole = wanted == group_id.casefold()
                yield FoundThing("group", group_id, f"/incident/{event.incident_id}", is_whole=is_whole)


def _ids(knowledge: Knowledge, wanted: str) -> Iterator[FoundThing]:
    writers: list[OpenTransaction | IncidentEvent] = [
        *transactions_of(knowledge.seen),
        *(knowledge.seen.incidents or ()),
    ]
    for writer in writers:
        long, address = writer.transactional_id, f"/producer/{writer.producer_id}"
        if long is not None and wanted in long.casefold():
            yield FoundThing("transactional id", long, address, is_whole=wanted == long.casefold())
        if str(writer.producer_id) == wanted:
            yield FoundThing("producer", wanted, address, is_whole=True)


def _owners(knowledge: Knowledge, wanted: str) -> Iterator[FoundThing]:
    """The teams with an incident that is open or ended less than a day ago, then the others of the table."""
    told = set[str]()
    for event in knowledge.seen.incidents or ():
        owner = event.owner
        if owner is not None and (wanted in owner.name.casefold() or wanted in owner.team.casefold()):
            told.add(owner.team)
            is_whole = wanted in {owner.team.casefold(), owner.name.casefold()}
            yield FoundThing("owner", owner.name, f"/incidents?owner={quote(owner.team)}", is_whole=is_whole)
    for team in owners_of(knowledge.store.origin).teams:
        if wanted in team.casefold() and team not in told:
            yield FoundThing("owner", team, f"/incidents?owner={quote(team)}", is_whole=wanted == team.casefold())
