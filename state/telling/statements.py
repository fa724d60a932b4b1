"""What is said about an incident: what it holds, whom it hurts, why, its outcome, whether it may be ended, what to do.

`explain`, `find-hanging`, `status`, the page and the alerts are renderings of these statements, so they cannot
disagree. A finding of a command is an event too: `find-hanging` and `explain` build it as a watcher does. Pure: no I/O,
no clock.

Law: each verdict, reason and outcome has one row here, and its sentences are nowhere else. The event's command was
built by this process (commands.py), so the step fits it: a command that only reads is followed by a second step.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from txnwatch.state.abort.fencing import last_door
from txnwatch.state.evidence.screening import ExpectedEnd
from txnwatch.state.model.incident import EndedBy, EndKind, GroupState, IncidentEvent, OutcomeDoubt, SinceClock
from txnwatch.state.model.incident import ExpectedOutcome as O
from txnwatch.state.model.ownership import ADVICE_MEANS, FLINK, FLINK_COMMITS, Certainty
from txnwatch.state.model.partition_replicas import PartitionReplicas
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, ProducerEpoch, TopicPartition
from txnwatch.state.model.verdicts import RULE_OF, Family, Reason, Verdict, WillEndBy
from txnwatch.state.telling.commands import has_fence, is_look
from txnwatch.state.telling.ends import end_of_event, ends_text
from txnwatch.state.telling.hurt import connect_text, held_text
from txnwatch.state.telling.replica_words import blocked_lines, repair_step
from txnwatch.state.text import counted, cut, duration_text, some, utc_text


class StatementKind(StrEnum):
    """What a statement answers."""

    HOLDS = "holds"
    SINCE = "since"
    WHOM = "whom"
    HURT = "hurt"
    CONNECT = "connect"
    WHY = "why"
    OUTCOME = "outcome"
    SAFE = "safe"
    ENDS = "ends"
    NEXT = "next"


@dataclass(frozen=True, slots=True)
class Told:
    """One sentence or a few; a step may have the command that does it."""

    kind: StatementKind
    text: str
    command: str | None = None


# The rows: reasons, outcomes, verdicts, ends.

REASON_MEANS: Final[dict[Reason, str]] = {
    Reason.NO_TRANSACTIONAL_ID: "no transactional id has this producer id any more (it expired, or was lost)",
    Reason.NOT_STARTED: "the id was initialised, but no transaction was begun: the data is a stray write",
    Reason.ALREADY_COMPLETED: "the transaction is complete: its marker was lost, or the data came after its marker",
    Reason.NOT_A_PARTICIPANT: "this partition is not a participant of the id's last transaction",
    Reason.PRODUCER_ID_SUPERSEDED: "the id has another producer id now",
}
# The state of the id now does not show which of two causes it was; the outcome does.
_MARKER_IS_MISSING = "the transaction is complete, and its marker is missing here"
_INITIALISED_SINCE = "the id was initialised since, and no transaction is open under it"
_FORMER_MARKER = f"{_INITIALISED_SINCE}: the marker of the transaction before is missing here"
_BY_OUTCOME: Final[dict[tuple[Reason, O], str]] = {
    (Reason.ALREADY_COMPLETED, O.NONE): "the transaction of its id is complete, and never owned this data",
    (Reason.ALREADY_COMPLETED, O.ABORT): _MARKER_IS_MISSING,
    (Reason.ALREADY_COMPLETED, O.COMMIT): _MARKER_IS_MISSING,
    (Reason.NOT_STARTED, O.ABORT): _FORMER_MARKER,
    (Reason.NOT_STARTED, O.COMMIT): _FORMER_MARKER,
    (Reason.NOT_STARTED, O.UNKNOWN): f"{_INITIALISED_SINCE}: the data is of a transaction before, or a stray write",
}


def reason_text(reason: Reason, outcome: O) -> str:
    """The reason as a part of a sentence that agrees with the expected outcome."""
    return _BY_OUTCOME.get((reason, outcome), REASON_MEANS[reason])


class OutcomeWords(NamedTuple):
    """One row: the expected outcome of a hang.

    Attributes:
        means: what is known about its end.
        safe: whether it may be ended, and with which marker.
        do: the step that ends it; for an unknown outcome the step before.
        asks: the question before an ABORT marker is written.
        asks_commit: the question before a COMMIT marker is written.
        then: what follows a step that only reads.
    """

    means: str
    safe: str
    do: str
    asks: str
    then: str = "If it still hangs, run the command that this one prints."
    asks_commit: str = "Write the COMMIT marker?"


_ASKS: Final = "Write the ABORT marker?"
IF_OLD_CLIENT: Final = (
    "If its client is an old one and has sent InitProducerId twice, a transaction may have owned the data: if you can, "
    "ask the owner of the application first."
)
OUTCOME_WORDS: Final = {
    O.ABORT: OutcomeWords(
        "It was aborted, and its ABORT marker is missing here.",
        "An ABORT marker is right: no client was told that this data is committed.",
        "Write the ABORT marker.",
        _ASKS,
    ),
    O.NONE: OutcomeWords(
        "As far as the logs show, no transaction owned the data.",
        f"An ABORT marker is right. {IF_OLD_CLIENT}",
        "Write the ABORT marker.",
        _ASKS,
    ),
    O.COMMIT: OutcomeWords(
        "Its commit was acknowledged to the client, and its COMMIT marker is missing here.",
        "A COMMIT marker is right: an ABORT marker would destroy acknowledged data.",
        "Write the COMMIT marker: this command does it, although its name is abort.",
        "Write the ABORT marker, and destroy acknowledged data?",
    ),
    O.UNKNOWN: OutcomeWords(
        "Its outcome (commit or abort) is not known",
        "Write no marker yet: if its commit was acknowledged, an ABORT marker would destroy acknowledged data.",
        "Look at it: another read may show the outcome.",
        "Has the owner of the application said that its client was not told that it is committed? With yes the ABORT "
        "marker is written.",
        "If its outcome stays unknown, ask the owner of the application whether its client was told that it is "
        "committed. The command with --dry-run shows what it would do, and changes nothing.",
        "Has the owner of the application, or the watcher itself, said that its client was told that it is committed? "
        "With yes the COMMIT marker is written.",
    ),
}
_MOVED_DOUBTS: Final = (OutcomeDoubt.ONGOING_MOVED, OutcomeDoubt.RECORDS_MOVED)
_ONGOING_MOVED: Final = OUTCOME_WORDS[O.UNKNOWN]._replace(
    safe="An ABORT marker is right, unless its client was told that it is committed: no coordinator knows it now.",
    do="Look at it, and ask the owner of the application whether its client was told that it is committed.",
    then="If it was not, write the ABORT marker. Its command asks first; txnwatch explain prints it.",
)


def outcome_words(event: IncidentEvent) -> OutcomeWords:
    """The row of a hang."""
    is_moved = event.outcome_doubt is OutcomeDoubt.ONGOING_MOVED
    return _ONGOING_MOVED if is_moved else OUTCOME_WORDS[event.expected_outcome]


FENCES_FIRST: Final = "The command fences the id first: the application that uses it must start again."
IF_REPLICAS_LACK: Final = "If the command names replicas, repair them first, and run it again."
LOOK_AGAIN: Final = "Look again before you act."
IF_TRUE: Final = "If this event is true:"
IF_FLINK: Final = f"If its application is a Flink job that is down for a restart: {FLINK_COMMITS}"
HELD_SAFE: Final = "Write no marker: it would end the producer's next transaction."
HELD: Final = "Do nothing now: the producer's next transaction holds it ({state}), and the marker of that one ends it."
_Of = Callable[[IncidentEvent], str]


class VerdictWords(NamedTuple):
    """One row: a verdict.

    Attributes:
        brief: what it is, behind the name of what holds the partition.
        why: what is wrong.
        was: the same, once it is over.
        safe: whether it may be ended; for a hang the row of its outcome has it.
        do: the first step.
        then: the step after it; None if there is none.
    """

    brief: str
    why: _Of
    was: _Of
    safe: str
    do: str
    then: _Of | None = None


def sooner(state: str, door: str, *, is_past_timeout: bool) -> str:
    """What ends a transaction of a client before its coordinator does; `door` is what helps if this does not."""
    return (
        f"To end it{'' if is_past_timeout else ' sooner'}, restart its application or fence its id: both abort it, and "
        f"consumers do not get its data. If it is still in state {state} half a minute after that (the answer is "
        f"CONCURRENT_TRANSACTIONS, or there is none): {door}."
    )


SOONER_OF_HEALTHY: Final = (
    "It needs nothing. To end it sooner, fence its id, or restart its application: both abort it, consumers do not get "
    "its data, and the application must start again."
)
SOONER_OF_TWO_PHASE: Final = (
    "Only its client ends it: the application, or what coordinates its two-phase commit, has to commit or abort it. If "
    "this never happens, a fence of its id aborts it, also if it is prepared: then its data is lost."
)
SOONER_OF_FLINK: Final = (
    "To end it, resume the job: that commits it. A fence of its id ends it too, and loses the data of its checkpoint."
)
MAY_BE_PREPARED: Final = "It is a two-phase transaction: if its client has prepared it, nobody can commit it any more"


def after_a_commit(before: ProducerEpoch, committed_at: str, now: ProducerEpoch | None) -> str:
    """What to know of a transaction of a Flink job whose id has committed one before, under a lower epoch.

    A checkpoint has a producer id and an epoch. Who resumes it for a transaction that is committed already is fenced.
    """
    return (
        f"Its transaction under epoch {before} was committed at {committed_at}. If the job was fenced when it resumed, "
        "its checkpoint has that one: do not resume it again, because nothing of it is missing. Then nobody will "
        f"commit epoch {now}: it ends at its timeout, or sooner by a fence of its id. If the job runs, it may still "
        "commit it."
    )


def markers_again(door: str) -> str:
    """What makes a coordinator write missing markers; `door` is what helps if nothing else does."""
    return (
        f"If its partitions have leaders and enough in-sync replicas, and it still waits: {door}; then all markers are "
        "sent again."
    )


def _sooner(event: IncidentEvent) -> str:
    return sooner(str(event.transaction_state), _door(event), is_past_timeout=RULE_OF[event.verdict].is_past_timeout)


def _door(event: IncidentEvent) -> str:
    """The last thing that helps, by the place of the id's record in the coordinators' log."""
    number = (event.evidence.coordinator_log or "").partition("@")[0]
    is_known = number.isascii() and number.isdecimal() and len(number) < 10
    return last_door(TopicPartition(TRANSACTION_STATE_TOPIC, int(number)) if is_known else None, event.coordinator_id)


def _why_hanging(event: IncidentEvent) -> str:
    if event.outcome_doubt in _MOVED_DOUBTS:
        return "No marker will ever come: no coordinator finds its transactional id."
    if event.reason is None:
        return "No marker will ever come: no live transaction holds it."
    return f"No marker will ever come: {reason_text(event.reason, event.expected_outcome)} ({event.reason})."


def _why_it_hung(event: IncidentEvent) -> str:
    if event.reason is None:
        return "It hung: no live transaction held it."
    return f"It hung. Found at that time: {reason_text(event.reason, event.expected_outcome)} ({event.reason})."


def _why_stuck(event: IncidentEvent) -> str:
    count = len(event.pending_partitions)
    if not count:
        return "Its outcome is decided and its markers are written. The last record of its coordinator is missing."
    return f"Its outcome is decided. Markers are missing on {_partitions(count)}."


def _why_stuck_where(event: IncidentEvent, is_open: Container[str]) -> str:
    """The same if it is known where its data is open: a marker of another writer may have ended it."""
    pending = event.pending_partitions
    ended = sum(place not in is_open for place in pending)
    if not ended:
        return _why_stuck(event)
    return ended_text(len(pending), ended)


def ended_text(pending: int, ended: int) -> str:
    """What it means that data of a decided transaction has ended on some of the partitions that lack its marker."""
    where = "there" if ended == pending else f"on {ended} of them"
    return (
        f"Its outcome is decided. Its coordinator waits for markers on {_partitions(pending)}, but its data has ended "
        f"{where} by a marker of another writer. So readers go on {where}, and the leader may refuse the coordinator's "
        "own marker for ever."
    )


def _partitions(count: int) -> str:
    return f"{count} partition{'' if count == 1 else 's'}"


_OWNED: Final = "Write no marker: its coordinator still owns it."
VERDICT_WORDS: Final = {
    Verdict.HANGING: VerdictWords("hanging, it never ends by itself", _why_hanging, _why_it_hung, "", ""),
    Verdict.STUCK_PREPARE: VerdictWords(
        "its outcome is decided, and markers are missing",
        _why_stuck,
        lambda _: "Its outcome was decided, and markers or the last record of its coordinator were missing.",
        "Write no marker: its coordinator repeats those that are missing.",
        "Look which partitions it waits for, and bring their leaders and replicas back: then its markers are written.",
        lambda event: markers_again(_door(event)),
    ),
    Verdict.LATE: VerdictWords(
        "late, its coordinator has not aborted it",
        lambda _: "Its timeout has passed, and its coordinator has not aborted it.",
        lambda _: "Its timeout had passed, and its coordinator had not aborted it.",
        _OWNED,
        "Look at it and at its coordinator.",
        _sooner,
    ),
    Verdict.LONG_RUNNING: VerdictWords(
        "long running, its coordinator will abort it",
        lambda _: "It has used most of its timeout. Its coordinator aborts it at the timeout.",
        lambda _: "It had used most of its timeout.",
        _OWNED,
        "Look at the application, or do nothing.",
        _sooner,
    ),
    Verdict.STRAY_WRITE: VerdictWords(
        "a stray write, which is over",
        lambda _: "Data that no transaction owned was ended with a later transaction. Nothing hangs now.",
        lambda _: "Data that no transaction owned was ended with a later transaction.",
        "There is nothing to end.",
        "Look at the client: exactly-once was broken there.",
    ),
}
END_MEANS: Final = {
    EndKind.COMMITTED: "committed",
    EndKind.ABORTED: "aborted",
    EndKind.ABSORBED: "ended with the producer's next transaction",
    EndKind.MOVED_ON: "ended by itself",
    EndKind.PARTITION_GONE: "the partition is deleted",
    EndKind.TRUNCATED: "the data is removed from the log",
    EndKind.REFUTED: "a further read refuted it",
    EndKind.NO_LONGER_OPEN: "no longer open",
    EndKind.GIVEN_UP: "the abort by hand saw no end of it",
}


# The statements of one incident, in the order in which somebody reads them.

_GROUPS_NAMED: Final = 3
_LONGEST_DETAIL: Final = 1_000  # a reason is a few sentences


class Shown(Protocol):
    """Makes text of others safe, and cuts it."""

    def __call__(self, text: str, longest: int = ..., /) -> str:
        """The text."""


def tell(
    event: IncidentEvent,
    shown: Shown = cut,
    is_open: Container[str] | None = None,
    blocked: Sequence[PartitionReplicas] = (),
    outcome: OutcomeWords | None = None,
) -> tuple[Told, ...]:
    """The statements about an incident. Its command was built by this process; `shown` makes names of others safe.

    `is_open` has the partitions on which data of its producer is open now; None if that is not known. `blocked` has
    those of its partitions, and of the coordinators' log, of which it is known that no marker can be written there.
    `outcome` is the row of its outcome, if another one is to be said than its own.
    """
    return tuple(_tell(event, shown, is_open, blocked, outcome or words_of_outcome(event, shown)))


def tell_end(end: ExpectedEnd, blocked: Sequence[PartitionReplicas] = ()) -> tuple[Told, ...]:
    """The statements about a transaction without a verdict: whether it ends by itself, and what to repair."""
    return *why_blocked(blocked), Told(StatementKind.ENDS, ends_text(end)), *to_repair(blocked)


def why_blocked(blocked: Sequence[PartitionReplicas]) -> Iterator[Told]:
    """What is missing on partitions where no marker can be written."""
    return (Told(StatementKind.WHY, line) for line in blocked_lines(blocked))


def to_repair(blocked: Sequence[PartitionReplicas]) -> Iterator[Told]:
    """The step without which nothing can be ended; none if no partition is known to need it."""
    return iter([_step(repair_step(blocked))] if blocked else [])


def _tell(
    event: IncidentEvent,
    shown: Shown,
    is_open: Container[str] | None,
    blocked: Sequence[PartitionReplicas],
    outcome: OutcomeWords,
) -> Iterator[Told]:
    words = VERDICT_WORDS[event.verdict]
    yield Told(StatementKind.HOLDS, _holds(event, shown))
    yield Told(StatementKind.SINCE, _since(event))
    yield Told(StatementKind.WHOM, _whom(event, shown))
    is_stuck = RULE_OF[event.verdict].family is Family.PREPARE and event.is_open
    if is_stuck and is_open is not None:
        yield Told(StatementKind.WHY, _why_stuck_where(event, is_open))
    else:
        yield Told(StatementKind.WHY, words.why(event) if event.is_open else words.was(event))
    yield from why_blocked(blocked)
    hurt = " ".join(_hurt(event, shown) if event.is_open else _was_hurt(event, shown))
    if hurt:
        yield Told(StatementKind.HURT, hurt)
    if event.connect is not None and event.is_open:
        yield Told(StatementKind.CONNECT, connect_text(event.connect, shown))
    if event.is_open:
        if event.verdict is Verdict.HANGING:
            yield Told(StatementKind.OUTCOME, outcome.means)
        yield Told(StatementKind.SAFE, _safe(event, outcome))
        if (caution := _caution(event)) is not None:
            yield Told(StatementKind.SAFE, caution)
    yield Told(StatementKind.ENDS, _ends(event, blocked))
    yield from to_repair(blocked)
    if blocked and event.verdict is not Verdict.HANGING:
        return
    if is_stuck and is_open is not None and event.pending_partitions and not _holds_pending(event, is_open):
        yield _step(markers_again(_door(event)), event.suggested_command)
    elif event.is_open:
        yield from _steps(event, outcome)


def _holds_pending(event: IncidentEvent, is_open: Container[str]) -> bool:
    return any(place in is_open for place in event.pending_partitions)


def _holds(event: IncidentEvent, shown: Shown) -> str:
    producer = f"Producer id {event.producer_id}, epoch {event.producer_epoch}"
    name = event.transactional_id
    owner = f"Its transactional id is {shown(name)}" if name is not None else "No transactional id of it is known"
    broker = f" at broker {event.coordinator_id}" if event.coordinator_id is not None else ""
    has, now = ("had", " then") if _is_past(event) else ("has", " now")
    state = f", in state {event.transaction_state}{now}{broker}" if event.transaction_state is not None else ""
    if event.topic is None:
        return f"{producer}, {has} a transaction open. {owner}{state}.{_its_partitions(event, shown)}"
    where = f"{shown(event.topic)}-{event.partition}"
    return f"{producer}, {has} a transaction open on {where} from offset {event.txn_start_offset}. {owner}{state}."


def _is_past(event: IncidentEvent) -> bool:
    """Whether its transaction is over; a stray write is over when it is found."""
    return not event.is_open or event.verdict is Verdict.STRAY_WRITE


def _its_partitions(event: IncidentEvent, shown: Shown) -> str:
    """The partitions of a whole transaction: those without its marker, or its participants."""
    pending, all_of_it = event.pending_partitions, event.evidence.coordinator_partitions
    what, names = ("Its marker is missing on", pending) if pending else ("Its partitions", all_of_it)
    return (
        f" {what}: {some([shown(partition) for partition in names], _GROUPS_NAMED)}." if names and event.is_open else ""
    )


def _since(event: IncidentEvent) -> str:
    """Since when it is open, or decided. The age is that of the event: `open_since_ms` may be of another clock."""
    least = "at least " if event.open_since_clock is SinceClock.OBSERVED else ""
    what = "decided" if RULE_OF[event.verdict].family is Family.PREPARE else "open"
    since = f"since {least}{utc_text(event.open_since_ms)}"
    if _is_past(event):
        return f"It was {what} {since}."
    return f"{what.capitalize()} {since}, for {duration_text(event.age_ms)}."


def _whom(event: IncidentEvent, shown: Shown) -> str:
    if event.owner is None:
        return "Owner: not known."
    contact = f" ({shown(event.owner.contact)})" if event.owner.contact is not None else ""
    return f"Owner: {shown(event.owner.name)}{contact}."


def _hurt(event: IncidentEvent, shown: Shown) -> Iterator[str]:
    if event.topic is not None and event.partition is not None and event.hidden_records:
        place = TopicPartition(shown(event.topic), event.partition)
        yield held_text(place, event.last_stable_offset, event.high_watermark, event.hidden_records)
    yield from _groups(event, shown, "Groups that stand still", "Groups that wait for their committed offsets")
    at_risk = [group for group in event.consumer_groups if group.state is GroupState.AT_RISK]
    at_risk_names = [shown(group.group_id) for group in at_risk if group.committed_offset is not None]
    if at_risk_names:
        offset = event.last_stable_offset if event.last_stable_offset is not None else event.txn_start_offset
        yield f"Groups at risk, which stop once they reach offset {offset}: {some(at_risk_names, _GROUPS_NAMED)}."
    new = [shown(group.group_id) for group in at_risk if group.committed_offset is None]
    if new:
        names = some(new, _GROUPS_NAMED)
        yield f"Groups that have committed nothing there yet, and stop if they read with read_committed: {names}."


def _was_hurt(event: IncidentEvent, shown: Shown) -> Iterator[str]:
    if event.topic is not None and event.hidden_records:
        count = counted(event.hidden_records, "record")
        yield f"Before its end, at least {count} of {shown(event.topic)}-{event.partition} were hidden."
    yield from _groups(event, shown, "Groups that stood still", "Groups that waited for their committed offsets")


def _groups(event: IncidentEvent, shown: Shown, stopped: str, waiting: str) -> Iterator[str]:
    """The groups that do not get on."""
    groups = {
        stopped: [shown(group.group_id) for group in event.consumer_groups if group.state is GroupState.STOPPED],
        waiting: [shown(group.group_id) for group in event.waiting_groups],
    }
    yield from (f"{what}: {some(names, _GROUPS_NAMED)}." for what, names in groups.items() if names)


def words_of_outcome(event: IncidentEvent, shown: Shown = cut) -> OutcomeWords:
    """The row of a hang; it says why its outcome is not known."""
    words = outcome_words(event)
    if event.expected_outcome is not O.UNKNOWN:
        return words
    why = f": {shown(event.outcome_detail, _LONGEST_DETAIL)}" if event.outcome_detail is not None else ""
    return words._replace(means=f"{words.means}{why}.")


def _safe(event: IncidentEvent, outcome: OutcomeWords) -> str:
    """Whether it may be ended. What others may have written is said with that condition."""
    if event.verdict is not Verdict.HANGING:
        return VERDICT_WORDS[event.verdict].safe
    if _is_held(event):
        return HELD_SAFE
    return if_so(IF_TRUE, outcome.safe) if _is_a_claim(event) else outcome.safe


def if_so(condition: str, text: str) -> str:
    """A sentence that is true under a condition."""
    return f"{condition} {text[0].lower()}{text[1:]}"


def _caution(event: IncidentEvent) -> str | None:
    """What else to know before it is ended: a late transaction of Flink looks like one that is forgotten."""
    if event.advice is not None:
        return ADVICE_MEANS[event.advice]
    made_by = event.application
    is_another = made_by is not None and made_by.certainty is Certainty.CERTAIN and made_by.framework != FLINK
    return IF_FLINK if event.verdict is Verdict.LATE and not is_another else None


def _is_held(event: IncidentEvent) -> bool:
    """Whether the producer's next transaction holds the data of a hang."""
    state = event.transaction_state
    is_live = state is not None and (state.is_live or state is TransactionState.PREPARE_EPOCH_FENCE)
    return event.suggested_command is None and is_live


def _is_a_claim(event: IncidentEvent) -> bool:
    """Whether the outcome of a hang was read from where others may write: this process would else end it at once."""
    command = event.suggested_command
    return event.expected_outcome is not O.UNKNOWN and (command is None or is_look(command))


def _ends(event: IncidentEvent, blocked: Sequence[PartitionReplicas]) -> str:
    if event.resolution is not None:
        return f"It is over: {how_it_ended(event)}, after {duration_text(event.age_ms)}."
    is_live = event.verdict is not Verdict.HANGING
    return ends_text(ExpectedEnd(WillEndBy.REPAIR) if blocked and is_live else end_of_event(event))


def how_it_ended(event: IncidentEvent) -> str:
    """How an incident ended, and by whom; empty if it is open."""
    if event.resolution is None:
        return ""
    by = "" if event.resolution.by is EndedBy.UNKNOWN else f" by {event.resolution.by.replace('_', ' ')}"
    return f"{END_MEANS[event.resolution.how]}{by}"


def _steps(event: IncidentEvent, outcome: OutcomeWords) -> Iterator[Told]:
    words, command = VERDICT_WORDS[event.verdict], event.suggested_command
    if event.verdict is Verdict.HANGING:
        yield from _steps_of_a_hang(event, command, outcome)
        return
    yield _step(words.do, command)
    # The second step would end a transaction: not if this loses data, and only the one of an id.
    if words.then is not None and event.advice is None and event.topic is None:
        yield _step(words.then(event))


def _steps_of_a_hang(event: IncidentEvent, command: str | None, outcome: OutcomeWords) -> Iterator[Told]:
    if _is_held(event):
        yield _step(HELD.format(state=event.transaction_state))
    elif command is None or is_look(command):
        yield _step(LOOK_AGAIN if _is_a_claim(event) else outcome.do, command)
        yield _step(outcome.then)
    else:
        yield _step(f"{outcome.do} {FENCES_FIRST}" if has_fence(command) else outcome.do, command)
        yield _step(IF_REPLICAS_LACK)


def _step(text: str, command: str | None = None) -> Told:
    return Told(StatementKind.NEXT, text, command)
