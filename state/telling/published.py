"""What a watcher has published about the outcome of a hang, in a command that does not know the outcome itself.

A command reads the logs once. After an election it cannot know an outcome that a watcher has found before. So that the
two do not seem to contradict each other, the command shows what the watcher says, or says who may know it.

Law: anyone who may write the events topic can write any outcome. So it is shown with its author and its time, beside
the reason why the command has not proven it. It is never the basis of a marker, and it is not shown for other data.
Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from txnwatch.state.model.incident import ExpectedOutcome, IncidentEvent, PublishedEvents
from txnwatch.state.model.partition_replicas import PartitionReplicas
from txnwatch.state.model.verdicts import Verdict
from txnwatch.state.telling.commands import Origin
from txnwatch.state.telling.statements import OUTCOME_WORDS, OutcomeWords, Told, if_so, tell, words_of_outcome
from txnwatch.state.text import cut, utc_text

ANYONE: Final = "Anyone who may write the events topic can write this."
IF_SO: Final = "If that is true:"
ASK_THE_WATCHER: Final = (
    "Ask the watcher itself (its page), or ask the owner of the application whether its client was told that it is "
    "committed. The command with --dry-run shows what it would do, and changes nothing."
)
WHO_MAY_KNOW: Final = "A running watcher may know the outcome: its page and its events have it."


class Telling(NamedTuple):
    """What a command says about its own finding.

    Attributes:
        told: the statements.
        published_outcome, published_by: what a watcher says, if this command does not know the outcome.
    """

    told: tuple[Told, ...]
    published_outcome: ExpectedOutcome | None = None
    published_by: str | None = None


def tell_found(
    origin: Origin,
    event: IncidentEvent,
    blocked: Sequence[PartitionReplicas] = (),
    is_open: Container[str] | None = None,
) -> Telling:
    """The statements about a finding of this command; the events topic is read only for an unknown outcome.

    `blocked` has those of its partitions on which no marker can be written, and `is_open` those on which its data is
    open; None if that is not known.
    """
    if event.verdict is not Verdict.HANGING or event.expected_outcome is not ExpectedOutcome.UNKNOWN:
        return Telling(tell(event, is_open=is_open, blocked=blocked))
    published, own = origin.published(), words_of_outcome(event)
    said = said_about(event, published.events)
    if said is None or said.expected_outcome is ExpectedOutcome.UNKNOWN or not _is_same_data(said, event):
        why = " ".join(_why_nothing(said, published))
        return Telling(tell(event, blocked=blocked, outcome=own._replace(means=f"{own.means} {why}")))
    told = tell(event, blocked=blocked, outcome=_claimed(own, event, said))
    return Telling(told, said.expected_outcome, said.outcome_by)


def said_about(event: IncidentEvent, published: Iterable[IncidentEvent]) -> IncidentEvent | None:
    """The last event of a watcher's open incident about the same hang; that with the computed id, if there is one."""
    key = event.cluster_id, event.span, event.txn_start_offset, event.verdict
    fitting = [
        said
        for said in published
        if said.is_open
        and not said.is_by_hand
        and (said.cluster_id, said.span, said.txn_start_offset, said.verdict) == key
    ]
    return next((said for said in fitting if said.incident_id == said.first_id), fitting[-1] if fitting else None)


def _is_same_data(said: IncidentEvent, event: IncidentEvent) -> bool:
    """Whether nothing was appended since: an outcome is only about the data for which it was found."""
    return _data_of(said) == _data_of(event)


def _data_of(event: IncidentEvent) -> tuple[object, ...]:
    return event.producer_epoch, event.evidence.last_sequence, event.last_write_ms


def _why_nothing(said: IncidentEvent | None, published: PublishedEvents) -> Iterator[str]:
    """Why no outcome of a watcher is shown, and who may know it."""
    if said is None:
        if published.problem is not None:
            yield f"The events topic could not be read: {cut(published.problem)}."
        yield WHO_MAY_KNOW
    elif said.expected_outcome is ExpectedOutcome.UNKNOWN:
        yield "The event of a watcher about it does not have the outcome either."
    else:
        yield f"The event of a watcher has the outcome {said.expected_outcome}, but data was written since."


def _claimed(own: OutcomeWords, event: IncidentEvent, said: IncidentEvent) -> OutcomeWords:
    """The row with what the watcher says, as a claim; its steps are still those for an unknown outcome."""
    words = OUTCOME_WORDS[said.expected_outcome]
    who = f"The watcher '{cut(said.outcome_by)}'" if said.outcome_by is not None else "A watcher"
    why = f": {event.outcome_detail}" if event.outcome_detail is not None else ""
    claim = f"{who} said at {utc_text(said.time_ms)}: {words.means} This command has not proven it{why}. {ANYONE}"
    return own._replace(means=claim, safe=if_so(IF_SO, words.safe), then=ASK_THE_WATCHER)
