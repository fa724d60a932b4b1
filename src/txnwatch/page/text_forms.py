"""The views as text, for curl and for a browser without JavaScript: one form for each address. Pure: no I/O, no clock.

A form is made from the answer that the view of the browser has, so both tell the same. What is not known says so, with
the command that asks the brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from txnwatch.page import audited, details, finding
from txnwatch.page.knowledge import Knowledge
from txnwatch.page.picture import Picture, sections_of
from txnwatch.page.shared import shared
from txnwatch.page.storms import ALL_INCIDENTS, LISTED, MOST, filter_of, select
from txnwatch.page.words import (
    NO_CLIENT,
    NO_INCIDENT,
    NO_NAME,
    NO_PARTITION,
    NotThere,
    as_text,
    evaluated,
    number,
)
from txnwatch.state.model.values import ProducerId, TimestampMs, TopicPartition, is_topic_name
from txnwatch.state.telling.hurt import CONNECT_STOPS, NO_GROUP_STANDS, NO_GROUPS_READ
from txnwatch.state.text import counted, duration_text

Row = Mapping[str, Any]
_FURTHEST: Final = 1_000_000
_NONE: Final = "No incident like this is open."


class AskedView(NamedTuple):
    """What a view is asked for.

    Attributes:
        base: what every address of the cluster begins with.
        rest: what its path has behind the name of the view.
    """

    base: str
    rest: str
    query: Mapping[str, str]


class TextForm(NamedTuple):
    """A view as lines, below those of the sentence."""

    lines: Sequence[str]
    is_known: bool = True


Form = Callable[[Knowledge, AskedView], TextForm]


def head_lines(picture: Picture, now_ms: TimestampMs, cluster: str) -> list[str]:
    """The sentence, and what it rests on: every form begins with it."""
    status = picture["status"]
    age = evaluated(status["judged_ms"], now_ms)
    at = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    lines = [as_text(status["headline"], now_ms), f"{as_text(status['detail'], now_ms)} · {age} · {cluster}, at {at}"]
    lines += [f"  start: {step['text']} ({step['state']})" for step in status["start"] or ()]
    if (exposures := status["exposures"]) is not None:
        lines.append(f"  {audited.counts_line(exposures)}, {audited.audited_ago(exposures['at_ms'], now_ms)}: /audit")
    return lines


# The lists.


def _overview(knowledge: Knowledge, asked: AskedView) -> TextForm:
    """The open incidents that are meant, one row for each cause; on a wall the sentence is enough."""
    if "wall" in asked.query:
        return TextForm(())
    answer = sections_of(knowledge, filter_of(asked.query))
    order, lines = answer["order"], list[str]()
    for key in order["incidents"]:
        lines += ["", *incident_lines(answer["incidents"][key], knowledge.now_ms, asked.base)]
    if order["more_incidents"]:
        lines += ["", f"and {order['more_incidents']} more incidents: {asked.base}/incidents has all of them"]
    if not lines and filter_of(asked.query) != ALL_INCIDENTS:
        lines = ["", _NONE]
    return TextForm(lines)


def _incidents(knowledge: Knowledge, asked: AskedView) -> TextForm:
    limit, offset = (details.number_below(asked.query.get(key, ""), _FURTHEST) for key in ("limit", "offset"))
    answer = select(knowledge, filter_of(asked.query), min(limit or LISTED, MOST), offset or 0)
    lines = [f"{counted(answer['count'], 'open incident')}, from {answer['offset'] + 1}" if answer["rows"] else _NONE]
    for row in answer["rows"]:
        lines += ["", *incident_lines(row, knowledge.now_ms, asked.base)]
    if answer["more"]:
        beyond = answer["offset"] + len(answer["rows"])
        lines += ["", f"and {number(answer['more'])} more: {asked.base}/incidents?offset={beyond}"]
    return TextForm(["", *lines])


def _partitions(knowledge: Knowledge, _: AskedView) -> TextForm:
    answer = details.partitions(knowledge)
    rows = (
        (
            f"{row['topic']}-{row['partition']}",
            row["holder"]["name"] if row["holder"] is not None else "held by a transaction that is not in the list",
            row["holder"]["phase"].replace("_", " ") if row["holder"] is not None else "",
            f"open for {duration_text(knowledge.now_ms - row['since_ms'])}",
            f"{_count(row['hidden'])} hidden",
        )
        for row in answer["rows"]
    )
    return TextForm(_section("partitions that are held back", rows, answer["more"]))


def _ended(knowledge: Knowledge, _: AskedView) -> TextForm:
    answer = details.ended(knowledge)
    rows = (
        (
            _clock(row["since_ms"]),
            row["tag"],
            ", ".join(row["places"]),
            f"behind {row['holder']}",
            f"{row['how']}, after {duration_text(row['ended_ms'] - row['since_ms'])}",
        )
        for row in answer["rows"]
    )
    return TextForm(_section("ended within a day", rows, answer["more"]))


def _oldest(knowledge: Knowledge, _: AskedView) -> TextForm:
    answer = details.oldest(knowledge)
    rows = (
        (
            row["name"],
            row["state"],
            f"open for {duration_text(knowledge.now_ms - row['since_ms'])}",
            *row["partitions"][:4],
        )
        for row in answer["rows"]
    )
    return TextForm(_section("the oldest open transactions", rows, answer["more"]))


def _roots(knowledge: Knowledge, _: AskedView) -> TextForm:
    answer = shared(knowledge)
    roots = (
        (
            f"{row['kind']} {row['name']}",
            f"{counted(row['partitions'], 'partition')} and {counted(row['groups'], 'group')}",
            f"in {counted(row['incidents'], 'incident')}, since {_clock(row['since_ms'])}",
            _behind(row),
        )
        for row in answer["roots"]
    )
    groups = ((row["name"], row["state"], row["owner"] or "owner not known", _behind(row)) for row in answer["groups"])
    return TextForm(
        [
            *_section("roots of several incidents", roots, answer["more_roots"]),
            *_section("groups that do not get on, or are at risk", groups, answer["more_groups"]),
        ]
    )


def _behind(row: Row) -> str:
    more = f" and {number(row['more'])} more" if row["more"] else ""
    return (
        ", ".join(f"{incident['tag']} {incident['place']} /incident/{incident['id']}" for incident in row["behind"])
        + more
    )


def _found(knowledge: Knowledge, asked: AskedView) -> TextForm:
    text = asked.query.get("name", "")
    search = finding.found(knowledge, text)
    if search is None:
        return _missing(NO_NAME, finding.look_for(knowledge, text))
    matches = [{**match, "address": asked.base + match["address"]} for match in search["matches"]]
    return TextForm(["", *found_lines({**search, "matches": matches})])


def found_lines(search: Row) -> list[str]:
    """What was found, with the addresses."""
    return [
        *_table((match["kind"], match["text"], match["address"]) for match in search["matches"]),
        *_more(search["more"]),
    ]


def _watcher(knowledge: Knowledge, _: AskedView) -> TextForm:
    seen, store = knowledge.seen, knowledge.store
    rows = (
        (
            "state",
            f"{knowledge.truth.state}{f', not met: {knowledge.truth.why}' if knowledge.truth.why is not None else ''}",
        ),
        ("view of the coordinators", str(store.access)),
        ("scanned partitions", number(seen.watched.scanned)),
        ("partitions that a census watches", number(seen.watched.census)),
        ("partitions without proof", _count(knowledge.facts.unproven)),
        ("last barrier", _count(seen.totals.barrier)),
        ("events that the topic lacks", _count(seen.undelivered)),
        *((f"events to {target.name}", target.problem or "taken") for target in seen.targets),
    )
    return TextForm(["", *_table(rows)])


# One thing.


def _incident(knowledge: Knowledge, asked: AskedView) -> TextForm:
    answer = details.incident(knowledge, asked.rest)
    if answer is None:
        return _missing(NO_INCIDENT, details.forgotten(knowledge, asked.rest))
    now_ms = knowledge.now_ms
    lines = ["", *incident_lines(answer, answer["ended_ms"] or now_ms, None)]
    lines += [f"  {answer[key]}" for key in ("outcome", "ends") if answer.get(key)]
    if answer["ended_ms"] is not None:
        lines += [f"  it has ended, at {_clock(answer['ended_ms'])}"]
    waits = answer["waits"]
    lines += ["", "what waits behind it"]
    lines += [f"  {place} stands at {_count(waits['last_stable'])}" for place in waits["places"]]
    lines += [
        f"  {group['name']}  {group['state'].replace('_', ' ')}, {_count(group['behind'])} behind"
        f"{', ' + group['owner'] if group['owner'] is not None else ''}"
        for group in waits["groups"]
    ]
    lines += [f"  {group['name']}  waits for offsets of {', '.join(group['partitions'])}" for group in waits["waiting"]]
    if (after := answer["next_holder"]) is not None:
        lines += [f"  if you end it: {after['name']} is the next, from {number(after['start'])}"]
        lines += [f"  ends by itself: {after['ends']}"]
    lines += _section(
        "its life", ((_clock(moment["at_ms"]), moment["status"], moment["text"]) for moment in answer["life"])
    )
    lines += [line for look in _looks(answer["proof"]) for line in look]
    return TextForm([*lines, *_section("facts", _facts(answer["facts"]))])


def _looks(proof: Row | None) -> Iterator[list[str]]:
    if proof is None:
        return
    yield ["", "how it was proven"]
    for title, look in (*zip(("look 1", "look 2"), proof["looks"], strict=True), ("fresh read", proof["fresh_read"])):
        yield [f"  {title}: {' '.join(look['text'])} {look['gives']}"]


def _facts(facts: Iterable[Sequence[Any]]) -> Iterator[tuple[str, str]]:
    """A number is a time."""
    return ((label, _clock(value) if isinstance(value, int) else str(value)) for label, value in facts)


def _partition(knowledge: Knowledge, asked: AskedView) -> TextForm:
    topic, _, index = asked.rest.rpartition("/")
    at_number = details.number_below(index, 1 << 31)
    if at_number is None or not is_topic_name(topic):
        return _missing(NO_PARTITION, None)
    answer = details.partition(knowledge, TopicPartition(topic, at_number))
    place = f"{topic}-{at_number}"
    if not answer["incidents"] and answer["is_watched"] is not True:
        what = "is not watched, or does not exist" if answer["is_watched"] is False else "may not be watched"
        return _missing(NotThere(f"{place} {what}. Nothing is known about it."), answer["look"], is_known=True)
    nothing = "Nothing is known about it" if answer["is_unproven"] else "No incident is open here"
    lines = ["", f"{place}: {counted(len(answer['incidents']), 'incident') if answer['incidents'] else nothing}"]
    lines += [f"  watched: {answer['watched']}"]
    lines += [f"  last stable offset {_count(answer['last_stable'])}, end {_count(answer['end'])}"]
    lines += [f"  hidden from readers: {_count(answer['hidden'])}"]
    lines += [f"  {answer['look']}"] if answer["look"] is not None else []
    for row in answer["incidents"]:
        lines += ["", *incident_lines(row, knowledge.now_ms, asked.base)]
    held = (
        (
            number(holder["start"]),
            holder["name"],
            holder["state"],
            f"open for {duration_text(knowledge.now_ms - holder['since_ms'])}",
            f"ends by itself: {holder['ends']}",
        )
        for holder in answer["holders"]
    )
    groups = (
        (
            group["name"],
            group["state"].replace("_", " "),
            f"lag {_count(group['lag'])}",
            f"really {_count(group['behind'])}",
        )
        for group in answer["groups"]
    )
    return TextForm([*lines, *_section("open here, in order", held), *_section("groups", groups)])


def _id(knowledge: Knowledge, asked: AskedView) -> TextForm:
    wanted = asked.rest or asked.query.get("name", "")
    return _client(knowledge, asked, details.transactional_id(knowledge, wanted), details.ask_for_id(knowledge, wanted))


def _producer(knowledge: Knowledge, asked: AskedView) -> TextForm:
    wanted = details.number_below(asked.rest, 1 << 63)
    return _client(
        knowledge, asked, details.producer(knowledge, ProducerId(wanted)) if wanted is not None else None, None
    )


def _client(knowledge: Knowledge, asked: AskedView, answer: Row | None, look: str | None) -> TextForm:
    if answer is None:
        return _missing(NO_CLIENT, look)
    lines = ["", answer["name"] or "no transactional id is known"]
    lines += [f"  producer ids: {', '.join(map(str, answer['producer_ids']))}"]
    lines += [f"  call {_who(answer['owner'])}" if answer["owner"] is not None else f"  {answer['no_owner']}"]
    for transaction in answer["open"]:
        where = ", ".join(
            f"{span['topic']}-{span['partition']} from {number(span['start'])}" for span in transaction["spans"]
        )
        lines += [
            f"  {transaction['state']}, open for {duration_text(knowledge.now_ms - transaction['since_ms'])}: {where}"
        ]
    if answer["row"] is not None:
        lines += ["", *incident_lines(answer["row"], knowledge.now_ms, asked.base)]
    rows = (
        (_clock(incident["since_ms"]), incident["verdict"], incident["text"], f"{asked.base}/incident/{incident['id']}")
        for incident in answer["incidents"]
    )
    return TextForm([*lines, *_section("its incidents", rows)])


def _audit(knowledge: Knowledge, asked: AskedView) -> TextForm:
    return TextForm(["", *audited.lines_of(knowledge, asked.rest)])


# Rows.


def incident_lines(row: Row, now_ms: TimestampMs, base: str | None) -> Iterator[str]:
    """An incident: what stands, behind whom, who is hurt, whom to call, what to do, and whether it is safe.

    The last line is its address below `base`; there is none if `base` is None.
    """
    fold, where = row.get("fold"), ", ".join(row["places"]) or "no partition stands"
    if fold is not None:
        what = fold["topic"] or fold["prefix"] or "several"
        since = duration_text(now_ms - fold["since_ms"])
        yield f"{row['tag']}  {fold['count']} incidents of {what}, on {fold['partitions']} partitions, for {since}"
        yield f"  all of them: {base}{fold['list']}"
        yield f"  the worst: {where}  behind {row['holder']}  for {duration_text(now_ms - row['since_ms'])}"
    else:
        yield f"{row['tag']}  {where}  behind {row['holder']}  for {duration_text(now_ms - row['since_ms'])}"
    yield f"  {row['why']}"
    yield f"  hidden from readers: {_hidden(row, now_ms)}"
    yield f"  hurt: {_hurt(row)}"
    yield f"  {row['safe']}"
    yield from (f"  {text}" for step in row["steps"] for text in step.values() if text is not None)
    yield f"  call {_who(row['owner'])}" if row["owner"] is not None else "  no owner is known"
    if base is not None:
        yield f"  more: {base}/incident/{row['id']}"


def _hidden(row: Row, now_ms: TimestampMs) -> str:
    shown = row.get("fold") or row
    if shown["hidden"] is None:
        return "not known"
    at_ms = None if row.get("fold") is not None else row["hidden_at_ms"]
    age = f", {duration_text(now_ms - at_ms)} ago" if at_ms is not None else ""
    return f"{'at least ' if shown['hidden_is_least'] else ''}{counted(shown['hidden'], 'record')}{age}"


def _hurt(row: Row) -> str:
    kinds = (("stopped", "stopped"), ("waiting", "waiting for offsets"), ("at_risk", "at risk"))
    more = {key: " and more" if row.get(f"more_{key}") else "" for key, _ in kinds}
    hurt = [f"{', '.join(row[key])}{more[key]} ({what})" for key, what in kinds if row[key]]
    hurt += [CONNECT_STOPS] if row["connect"] else []
    return "; ".join(hurt) or (NO_GROUP_STANDS if row["topic"] is not None else NO_GROUPS_READ)


def _who(owner: Row) -> str:
    return f"{owner['name']}, {owner['contact']}" if owner["contact"] is not None else str(owner["name"])


def _missing(what: NotThere, look: str | None, *, is_known: bool = False) -> TextForm:
    ask = ["  this command asks the brokers, and only reads:", f"  {look}"] if look is not None else []
    return TextForm(["", *filter(None, what), *ask], is_known)


def _section(title: str, rows: Iterable[Sequence[str]], more: int = 0) -> list[str]:
    """A table below its title; `more` rows are left out."""
    return ["", title, *_table(rows), *_more(more)]


def _table(rows: Iterable[Sequence[str]]) -> list[str]:
    """Rows with their columns below each other; names may be long, so no column is wider than 40."""
    table = [list(row) for row in rows]
    if not table:
        return ["  none"]
    columns = range(max(map(len, table)) - 1)
    widths = [min(40, max(len(row[at]) for row in table if at < len(row) - 1)) for at in columns]
    return ["  " + "  ".join([*(cell.ljust(widths[at]) for at, cell in enumerate(row[:-1])), row[-1]]) for row in table]


def _more(count: int) -> list[str]:
    return [f"  and {number(count)} more"] if count else []


def _count(value: int | None) -> str:
    return "not known" if value is None else number(value)


def _clock(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


FORMS: Final[Mapping[str, Form]] = {
    "/": _overview,
    "/incidents": _incidents,
    "/incident/{rest:path}": _incident,
    "/partition/{rest:path}": _partition,
    "/partitions": _partitions,
    "/id": _id,
    "/id/{rest:path}": _id,
    "/producer/{rest:path}": _producer,
    "/open": _oldest,
    "/ended": _ended,
    "/find": _found,
    "/roots": _roots,
    "/watcher": _watcher,
    "/audit": _audit,
    "/audit/{rest}": _audit,
}
