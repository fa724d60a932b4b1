"""An incident as a message that somebody can act on without a click: in a chat, in an alert, beside an event.

What is said is that of `tell`; here it is put in order, and made harmless. It has the cluster, the place, what has
changed, since when, behind whom, the owner, who is hurt, why, whether it is safe to end it, and the steps. Pure: no
I/O, no clock.

Chat systems turn some text into a mention of everybody, a link, an image or bold type, and the templates of
Alertmanager escape nothing. So in text of others, what is not printable and what Slack or Markdown takes for markup, a
mention or a link is shown as an escape; a name with a dot before letters too, because chats make a link of a domain.
A plus before a digit is no list, and begins the phone number of an owner.
Two values are not only text. The links are ours. The command is for a code block, and is left out if a name in it is
markup there or elsewhere; a domain in it is a link outside of a code block.

Law: no line begins with text of others, so none of it is a heading, a list or a quotation.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.telling.changes import changes
from txnwatch.state.telling.renderings import sentences
from txnwatch.state.telling.statements import StatementKind, Told, how_it_ended, tell
from txnwatch.state.text import CUT_MARK, duration_text, printable

LONGEST_TEXT: Final = 200
LONGEST_COMMAND: Final = 1_000
_LONGEST_PLACE: Final = 80
_LONGEST_NAME: Final = 100
_RUNBOOK: Final = "https://github.com/txnwatch/txnwatch/blob/main/docs/runbook.md"
# What is markup in Slack or in Markdown, or a link with `www.` or a scheme. An underscore within a word is none, and a
# run of them begins no emphasis that no other one ends. Each run is read once, from its beginning.
_MARKUP: Final = re.compile(
    r"[\\<>&@`*~\[\]|$^]|:(?=//|[\w+-])|(?<=www)[.]|(?<!_)_++(?![^\W_])|\A(?:[-=\s]|\+(?!\d))"
    r"|\A#(?=[#\s]|\Z)|(?<=\A\d)[.](?=\s|\Z)|(?<=\A\d\d)[.](?=\s|\Z)",
    re.IGNORECASE,
)
# An end such as .example. In many scripts a vowel is a combining sign, which is no letter for Python.
_DOMAIN: Final = re.compile(r"[.\u3002\uff0e\uff61](?=(?:[^\W\d_]|[^\x00-\x7f]){2})")


class Message(NamedTuple):
    """What a message consists of.

    Attributes:
        summary: the cluster, the place and the verdict, or how it ended; for a title.
        parts: what is said, by the kind of statement; the steps are `next` and `then`.
        command: the next command, for a code block; empty if there is none.
        runbook: the link to what to do about the verdict.
        page: the link to the incident; empty without an address of the page.
    """

    summary: str
    parts: Mapping[str, str]
    command: str
    runbook: str
    page: str

    @property
    def lines(self) -> tuple[str, ...]:
        """The parts as lines; none begins with text of others."""
        return tuple(f"{_LABELS.get(name, '')}{text}" for name, text in self.parts.items())

    def as_text(self, status: str) -> str:
        """The message for a chat; the command is behind the step that it does."""
        fenced = [f"```\n{self.command}\n```"] if self.command else []
        behind = len(self.lines) - int(_THEN in self.parts)
        links = (f"Runbook: {self.runbook}", *([f"Page: {self.page}"] if self.page else []))
        lines = (*self.lines[:behind], *fenced, *self.lines[behind:])
        return "\n".join((f"[{status.upper()}] {self.summary}", *lines, *links))


def message_of(event: IncidentEvent, external_url: str | None = None, before: IncidentEvent | None = None) -> Message:
    """The message about an incident; `external_url` is the address of the page, `before` the event before it."""
    changed = "; ".join(changes(event, before, _name)) if before is not None and event.is_open else ""
    return Message(
        summary=summary_of(event),
        parts={**({_CHANGED: changed} if changed else {}), **parts_of(tell(event, _name))},
        command=command_of(event),
        runbook=f"{_RUNBOOK}#{event.verdict}",
        page=page_of(external_url, event.incident_id),
    )


def page_of(external_url: str | None, incident_id: str | None = None) -> str:
    """The link to the page, or to an incident on it; empty without an address."""
    if external_url is None:
        return ""
    return external_url.rstrip("/") + (f"/incident/{incident_id}" if incident_id is not None else "/")


def summary_of(event: IncidentEvent) -> str:
    """What it is about, on one line."""
    about = f"{harmless(event.cluster, _LONGEST_PLACE)}: {place_of(event)}: Kafka transaction {words_of(event)}"
    return about if event.is_open else f"{about}: {how_it_ended(event)}, after {duration_text(event.age_ms)}"


def place_of(event: IncidentEvent) -> str:
    """The partition, or the transactional id."""
    where = f"{event.topic}-{event.partition}" if event.topic is not None else event.transactional_id or "(no name)"
    return harmless(where, _LONGEST_PLACE)


def words_of(event: IncidentEvent) -> str:
    """The verdict, in words."""
    return event.verdict.replace("_", " ")


_ORDER: Final = (
    StatementKind.SINCE,
    StatementKind.HOLDS,
    StatementKind.WHOM,
    StatementKind.HURT,
    StatementKind.CONNECT,
    StatementKind.WHY,
    StatementKind.SAFE,
)
_CHANGED: Final = "changed"
_NEXT: Final = "next"
_THEN: Final = "then"
PARTS: Final = (str(StatementKind.ENDS), *map(str, _ORDER), _NEXT, _THEN)
_LABELS: Final = {
    _CHANGED: "Changed: ",
    str(StatementKind.WHY): "Why: ",
    str(StatementKind.SAFE): "Safe to end it? ",
    _NEXT: "Next: ",
    _THEN: "Then: ",
}


def parts_of(told: Iterable[Told]) -> dict[str, str]:
    """The statements by their kinds, in the order of the lines; the end of what is over comes first."""
    statements = list(told)
    steps = [statement.text for statement in statements if statement.kind is StatementKind.NEXT]
    kinds = _ORDER if steps else (StatementKind.ENDS, *_ORDER)
    parts = {**sentences(statements, *kinds), _NEXT: " ".join(steps[:1]), _THEN: " ".join(steps[1:])}
    return {name: text for name, text in parts.items() if text}


def command_of(event: IncidentEvent) -> str:
    """The suggested command, or where it is: a command that is cut or escaped must not be pasted."""
    command = event.suggested_command
    if command is None:
        return ""
    names = (event.topic or "", event.transactional_id or "")
    short = [name for name in names if 0 < len(name) <= LONGEST_COMMAND]
    names_in_it = [name for name in short if name in command or shlex.quote(name) in command]
    is_shown = (
        len(command) <= LONGEST_COMMAND
        and command.isprintable()
        and not re.search(r"[<>&`]", command.replace(" && ", " "))
        and not any(map(_MARKUP.search, names_in_it))
    )
    return command if is_shown else "`txnwatch status` shows it: it cannot be shown here as it is"


def without_markup(text: str) -> str:
    """The text with escapes for markup alone; a name with a dot stays as it is."""
    return _MARKUP.sub(_escaped, text)


def harmless(text: str, longest: int = LONGEST_TEXT) -> str:
    """Text of others that Slack and Markdown do not take for markup, a mention or a link, and of a limited length."""
    kept = longest
    shown = _inert(text if len(text) <= longest else f"{text[: kept - 1]}{CUT_MARK}")
    while len(shown) > longest:  # its escapes are longer than what they show; none has more than 10 characters
        kept -= max(1, (len(shown) - longest) // 10)
        shown = _inert(f"{text[: kept - 1]}{CUT_MARK}")
    return shown


def _name(text: str, longest: int = _LONGEST_NAME) -> str:
    return harmless(text, longest)


def _inert(text: str) -> str:
    """The text with escapes. They are made after the cut, so that none is cut, and the mark makes nothing active."""
    return printable(_DOMAIN.sub(_escaped, without_markup(text)))


def _escaped(match: re.Match[str]) -> str:
    return "".join(f"\\x{ord(char):02x}" if ord(char) <= 0xFF else f"\\u{ord(char):04x}" for char in match[0])
