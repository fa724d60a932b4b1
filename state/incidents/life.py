"""The life of an incident: what happens to it, and what this process does.

The life is a table that is executed. The ledger looks up the step of each happening and makes it; `make docs` writes
the table into docs/consumers.md. An incident is opened once and resolved once, so each row says what follows for each
of the four values of `Known`. A cell of a case that cannot occur has `nothing`, or what the cell beside it has: a fresh
read, for example, confirms an incident that is open, or none. claims.py decides what an event on the events topic is
for this process. Pure: no I/O, no clock.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Final, NamedTuple

from txnwatch.state.model.incident import (
    IncidentEvent,
)
from txnwatch.state.model.verdicts import rank


class Known(StrEnum):
    """What this process knows of an incident."""

    NOTHING = "no incident is known"
    CLAIMED = "open, found by others"
    FOUND = "open, found here"
    ENDED = "resolved"


class NextStep(StrEnum):
    """What this process does."""

    NOTHING = "nothing"
    OPEN = "publish `opened`"
    END_AND_OPEN = "publish `resolved`, then `opened` under another id"
    CHANGE_VERDICT = "publish `updated` with the new verdict"
    ADOPT = "take over the content that was found here; publish it if it differs"
    UPDATE = "publish `updated`"
    TELL = "publish `updated` at once"
    END = "publish `resolved`"
    END_AT_ONCE = "publish `resolved` at once"
    END_AND_READ_AGAIN = "publish `resolved`, and read again: if it still hangs, it is opened under another id"
    CORRECT = "publish `updated` with what was found here"
    READ_AGAIN = "read again at once: if it still hangs, it is opened under another id"
    PUBLISH_AGAIN = "publish the last event again, with its sequence"
    END_AGAIN = "publish `resolved` again, with the next sequence"
    WAIT = "wait; once it is found here, do what is in the next column"


class Making(NamedTuple):
    """How the ledger makes the change of a step; `is_stored` is false for what it has stored already.

    `may_wait` is whether another instance that knows the outcome may publish it instead (speakers.py).
    """

    is_stored: bool = True
    is_published: bool = True
    may_wait: bool = False


MAKING: Final[dict[NextStep, Making]] = {
    NextStep.OPEN: Making(may_wait=True),
    NextStep.END_AND_OPEN: Making(),
    NextStep.CHANGE_VERDICT: Making(may_wait=True),
    NextStep.ADOPT: Making(is_published=False),
    NextStep.UPDATE: Making(may_wait=True),
    NextStep.TELL: Making(),
    NextStep.END: Making(may_wait=True),
    NextStep.END_AT_ONCE: Making(),
    NextStep.END_AND_READ_AGAIN: Making(is_stored=False),
    NextStep.CORRECT: Making(),
    NextStep.PUBLISH_AGAIN: Making(is_stored=False),
    NextStep.END_AGAIN: Making(may_wait=True),
}


class Happening(Enum):
    """What can happen to an incident; the values are for the page."""

    CONFIRMED = "A fresh read confirms it, with the same verdict"
    CONFIRMED_OTHERWISE = "A fresh read confirms it, with another verdict"
    ANOTHER_CONFIRMED = "A fresh read confirms another transaction of its producer on its partition"
    STRAY_WRITE = "The log shows a stray write"
    CHANGED = "A value has changed after which somebody would act differently"
    WITHDRAWN = "An outcome that was found here no longer counts"
    DECIDED = "The automatic abort has decided, or its marker has a result"
    OVER = "The log, the coordinator or the leader shows that it is over"
    DOUBLED = "Another open incident is about the same transaction"
    CONTRADICTED = "A fresh read contradicts what others have published"
    RECORD_AGREES = "Another writer publishes the next event, which agrees with what is known"
    RECORD_DIFFERS = "Another writer publishes the next event, which differs in a relevant field"
    RECORD_ENDS = "Another writer publishes its end"
    RECORD_AFTER_END = "A record of another writer takes the place of the end that is found here, and says otherwise"
    RECORD_IS_OLDER = "An older event follows the last one on the events topic"
    RECORD_HIDES_LAST = "An event with the sequence of the last one, and with another content, follows it on the topic"
    RECORD_BEFORE_END = "An event of another writer is on the events topic before our end with the same sequence"
    RECORD_IS_INVALID = "A tombstone, or a record that is no event, follows the last event on the events topic"
    ID_IS_SPENT = "A record uses up the sequences of its id"


class Row(NamedTuple):
    """What follows from one happening, for each of the values of Known, and why."""

    nothing: NextStep
    claimed: NextStep
    found: NextStep
    ended: NextStep
    why: str


_N = NextStep.NOTHING
LIFE: Final[dict[Happening, Row]] = {
    Happening.CONFIRMED: Row(
        *(NextStep.OPEN, NextStep.ADOPT, NextStep.ADOPT, NextStep.OPEN),
        why="An end may be forged, and an election can remove the marker: what hangs is open, under another id.",
    ),
    Happening.CONFIRMED_OTHERWISE: Row(
        *(NextStep.OPEN, NextStep.CHANGE_VERDICT, NextStep.CHANGE_VERDICT, NextStep.OPEN),
        why="The subject is the same: a stray write that hangs later, or a long running transaction that is late.",
    ),
    Happening.ANOTHER_CONFIRMED: Row(
        *(NextStep.OPEN, NextStep.END_AND_OPEN, NextStep.END_AND_OPEN, NextStep.OPEN),
        why="A producer has one open transaction on a partition, so the earlier one has ended.",
    ),
    Happening.STRAY_WRITE: Row(
        *(NextStep.OPEN, _N, _N, _N), why="Each is reported once. If it has ended already, `resolved` follows."
    ),
    Happening.CHANGED: Row(
        *(_N, NextStep.UPDATE, NextStep.UPDATE, _N),
        why="Small changes are in the next event. The owner and the outcome may be found after the opening.",
    ),
    Happening.WITHDRAWN: Row(
        *(_N, _N, NextStep.CORRECT, _N),
        why="Data was written since, or a transaction has begun: an abort must not rest on it.",
    ),
    Happening.DECIDED: Row(
        *(_N, NextStep.TELL, NextStep.TELL, _N), why="A decision is on the topic before its marker is written."
    ),
    Happening.OVER: Row(
        *(_N, NextStep.END, NextStep.END, _N), why="An end needs evidence, and any instance may have it."
    ),
    Happening.DOUBLED: Row(*(_N, NextStep.END, NextStep.END, _N), why="One transaction has one open incident."),
    Happening.CONTRADICTED: Row(
        *(_N, NextStep.END_AT_ONCE, _N, _N),
        why="Anyone who may write the events topic can publish a healthy transaction. What was found here is checked "
        "by the read of open incidents.",
    ),
    Happening.RECORD_AGREES: Row(
        *(_N, _N, _N, _N),
        why="Its sequence, status, time, end and last decision are taken over; a claimed success of an abort is not.",
    ),
    Happening.RECORD_DIFFERS: Row(
        *(_N, NextStep.WAIT, NextStep.CORRECT, _N),
        why="A claim never replaces a finding. A value that the record does not know yet is no difference.",
    ),
    Happening.RECORD_ENDS: Row(*(_N, _N, NextStep.READ_AGAIN, _N), why="The end may be forged."),
    Happening.RECORD_AFTER_END: Row(
        *(_N, _N, _N, NextStep.END_AGAIN),
        why="It may be forged, or an end by an instance that does not know the outcome. If the end is found here after "
        "the record, it follows then.",
    ),
    Happening.RECORD_IS_OLDER: Row(
        *(_N, NextStep.WAIT, NextStep.PUBLISH_AGAIN, NextStep.PUBLISH_AGAIN),
        why="Compaction keeps the last record. An open claim that this process has not found is not repeated.",
    ),
    Happening.RECORD_HIDES_LAST: Row(
        *(_N, NextStep.WAIT, NextStep.PUBLISH_AGAIN, NextStep.PUBLISH_AGAIN),
        why="Consumers drop the second of two events with one sequence, and compaction the first.",
    ),
    Happening.RECORD_BEFORE_END: Row(
        *(_N, _N, _N, NextStep.END_AGAIN), why="The first on the topic counts, so the end must follow it."
    ),
    Happening.RECORD_IS_INVALID: Row(
        *(_N, NextStep.WAIT, NextStep.PUBLISH_AGAIN, _N), why="A record that is no event ends nothing."
    ),
    Happening.ID_IS_SPENT: Row(
        *(_N, NextStep.END_AND_READ_AGAIN, NextStep.END_AND_READ_AGAIN, _N),
        why="No sequence is left for its next event. Its subject continues under another id.",
    ),
}


def step(known: Known, happens: Happening) -> NextStep:
    """What this process does."""
    row = LIFE[happens]
    return {Known.NOTHING: row.nothing, Known.CLAIMED: row.claimed, Known.FOUND: row.found, Known.ENDED: row.ended}[
        known
    ]


def confirmed_span(known: IncidentEvent | None, found: IncidentEvent) -> Happening:
    """What a confirmed candidate is to the open incident about the same producer on the same partition."""
    if known is None:
        return Happening.CONFIRMED
    if known.txn_start_offset != found.txn_start_offset:
        return Happening.ANOTHER_CONFIRMED
    return Happening.CONFIRMED if known.verdict == found.verdict else Happening.CONFIRMED_OTHERWISE


def confirmed_transaction(known: IncidentEvent | None, found: IncidentEvent) -> Happening:
    """The same for an incident about a transaction. A verdict only becomes worse: a milder one is no other one."""
    if known is None or rank(found.verdict) >= rank(known.verdict):
        return Happening.CONFIRMED
    return Happening.CONFIRMED_OTHERWISE
