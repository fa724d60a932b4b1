"""The open transactions behind which a group or a topic stands: each is named, the worst first.

Law: the worst one is the subject of the answer, wherever it is: a hang on the last partition is not hidden by a healthy
transaction on the first. At most MOST_NAMED others are named, and what is left is counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from txnwatch.cli.compose import Question
from txnwatch.cli.explanation import UNPROVEN, Explanation, badness, of_span, open_in, worst_first
from txnwatch.state.evidence.read_committed import hidden_records
from txnwatch.state.evidence.screening import Search
from txnwatch.state.incidents.event_builder import topics_of
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.ownership import Subject
from txnwatch.state.model.values import TopicPartition
from txnwatch.state.model.verdicts import Verdict
from txnwatch.state.telling.commands import explain_partition, find_hanging
from txnwatch.state.text import quoted
from txnwatch.streaming.client.clock import wall_clock_ms

MOST_NAMED: Final = 5


class Obstacle(NamedTuple):
    """An open transaction behind which the target stands, with what was found around it."""

    span: SpanCandidate
    state: str
    found: Search


def causes_on(search: Search, partitions: Collection[TopicPartition]) -> list[Obstacle]:
    """What is open on some partitions, the worst first; else by partition and offset."""
    wanted = set(partitions)
    ordered = worst_first(sorted(open_in(search), key=lambda span: span.partition), search)
    return [Obstacle(span, state, search) for span, state in ordered if span.partition in wanted]


def places_of(causes: Iterable[Obstacle]) -> dict[TopicPartition, str]:
    """The partitions of some causes, each with its worst state, in the order of the causes."""
    places: dict[TopicPartition, str] = {}
    for cause in causes:
        places.setdefault(cause.span.partition, cause.state)
    return places


def with_causes(
    question: Question, explained: Explanation, causes: Sequence[Obstacle], told: Obstacle | None = None
) -> Explanation:
    """The explanation with the worst cause as its subject, and all others named; `told` is one that the text has."""
    if not causes:
        return explained
    first, *others = sorted(causes, key=lambda cause: badness(cause.state))
    why = of_span(question.origin, first.span, first.found, wall_clock_ms())
    lines = () if first is told else (f"{_headline(first, why)}.",)
    reading = first.found.readings[first.span.partition]
    return replace(
        why,
        target=explained.target,
        group_id=explained.group_id,
        hidden_records=max(0, hidden_records(reading) or 0),
        affected_groups=explained.affected_groups,
        waiting_groups=explained.waiting_groups,
        positions=explained.positions,
        text=(*explained.text, *lines, *also_lines(question, others)),
    )


def also_lines(question: Question, causes: Sequence[Obstacle]) -> Iterator[str]:
    """The causes after the first, each with whom to call and the command that explains it."""
    for cause in causes[:MOST_NAMED]:
        why = of_span(question.origin, cause.span, cause.found, wall_clock_ms())
        command = explain_partition(question.origin, cause.span.partition)
        yield f"Also {_headline(cause, why)}{_to_call(question, cause, why)}: `{command}`."
    left = causes[MOST_NAMED:]
    if left:
        hanging = sum(cause.state == Verdict.HANGING for cause in left)
        of_them = f" ({hanging} of them {'hangs' if hanging == 1 else 'hang'})" if hanging else ""
        yield f"And {len(left)} more{of_them}: `{find_hanging(question.origin)}` shows what hangs or is late."


_LABELS: Final = {str(Verdict.HANGING): "HANGING", UNPROVEN: "open, its owner is not known"}


def _headline(cause: Obstacle, why: Explanation) -> str:
    name = f"transactional id {quoted(why.transactional_id)}, " if why.transactional_id is not None else ""
    return (
        f"{_LABELS.get(cause.state, cause.state)}: {cause.span.partition} from offset {cause.span.span.start_offset}, "
        f"{name}producer id {cause.span.producer_id}"
    )


def _to_call(question: Question, cause: Obstacle, why: Explanation) -> str:
    topic = cause.span.partition.topic
    subject = Subject(why.transactional_id, topic, frozenset({topic, *topics_of(why.partitions)}))
    owner = question.origin.owners.owner(subject)
    return f", call {owner.whom_to_call}" if owner is not None else ""
