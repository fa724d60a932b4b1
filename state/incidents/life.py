"""The life of an incident: what happens to it, and what the instance that speaks does.

The life is a table that is executed. The ledger looks up the step of each happening and makes it; `make docs` writes
the table into docs/consumers.md. An incident is opened once and resolved once, so each row says what follows for each
of the four values of `Known`. A cell of a case that cannot occur has `nothing`, or what the cell beside it has: a fresh
read, for example, confirms an incident that is open, or none. An instance that does not speak makes the same steps and
publishes nothing (untold.py). Pure: no I/O, no clock.
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
    END = "publish `resolved`"
    END_AND_RENAME = "publish `resolved`; what was found here goes on under the other id"
    RENAME = "what was found here goes on under the other id"
    END_SPENT = "publish `resolved`; the id is never used again"
    TELL_AGAIN = "publish what is known here again, above the sequence of the record"


UNPUBLISHED: Final = frozenset({NextStep.ADOPT, NextStep.RENAME})  # the steps whose event is only stored
UNSTORED: Final = frozenset({NextStep.END_SPENT})  # those whose event is only published


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
    EARLIER_ID = "Another writer has an open record about the hang that was found here, under an earlier id of it"
    CONTRADICTED = "A fresh read contradicts what others have published"
    FOREIGN_RECORD = "A record of another writer, a tombstone or a record that is no event follows on the events topic"
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
        *(_N, _N, NextStep.UPDATE, _N),
        why="Data was written since, or a transaction has begun: an abort must not rest on it.",
    ),
    Happening.DECIDED: Row(
        *(_N, NextStep.UPDATE, NextStep.UPDATE, _N), why="A decision is on the topic before its marker is written."
    ),
    Happening.OVER: Row(
        *(_N, NextStep.END, NextStep.END, _N), why="An end needs evidence, and whoever speaks may have it."
    ),
    Happening.DOUBLED: Row(*(_N, NextStep.END, NextStep.END, _N), why="One transaction has one open incident."),
    Happening.EARLIER_ID: Row(
        *(_N, _N, NextStep.END_AND_RENAME, NextStep.RENAME),
        why="Of two instances that both speak, one may have ended the incident and opened it again. The first id under "
        "which it is open is its name for both. Only the id is taken over, and an id never changes back.",
    ),
    Happening.CONTRADICTED: Row(
        *(_N, NextStep.END, _N, _N),
        why="Anyone who may write the events topic can publish a healthy transaction. What was found here is checked "
        "by the read of open incidents.",
    ),
    Happening.FOREIGN_RECORD: Row(
        *(_N, _N, NextStep.TELL_AGAIN, NextStep.TELL_AGAIN),
        why="Anyone who may write the topic can write anything, so contents are not compared. The first answer comes "
        "at once, each further one after a pause that is twice as long. A tombstone ends nothing. What others have "
        "found is a claim, which the next check reads afresh.",
    ),
    Happening.ID_IS_SPENT: Row(
        *(_N, NextStep.END_SPENT, NextStep.END_AND_OPEN, NextStep.END_SPENT),
        why="No sequence is left for its next event. What was found here continues under another id.",
    ),
}


def step(known_state: Known, happens: Happening) -> NextStep:
    """What this process does."""
    row = LIFE[happens]
    return {Known.NOTHING: row.nothing, Known.CLAIMED: row.claimed, Known.FOUND: row.found, Known.ENDED: row.ended}[
        known_state
    ]


def confirmed_span(incident: IncidentEvent | None, event: IncidentEvent) -> Happening:
    """What a confirmed candidate is to the open incident about the same producer on the same partition."""
    if incident is None:
        return Happening.CONFIRMED
    if incident.txn_start_offset != event.txn_start_offset:
        return Happening.ANOTHER_CONFIRMED
    return Happening.CONFIRMED if incident.verdict == event.verdict else Happening.CONFIRMED_OTHERWISE


def confirmed_transaction(incident: IncidentEvent | None, event: IncidentEvent) -> Happening:
    """The same for an incident about a transaction. A verdict only becomes worse: a milder one is no other one."""
    if incident is None or rank(event.verdict) >= rank(incident.verdict):
        return Happening.CONFIRMED
    return Happening.CONFIRMED_OTHERWISE
