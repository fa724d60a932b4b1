"""A finding of `txnwatch audit`: which check has fired, on what evidence, and the remedies for this cluster. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from txnwatch.state.audit.audit_check import AuditCheck, Basis, CheckGroup, ExposureSeverity, IncidentSign
from txnwatch.state.audit.audit_facts import AuditFacts, NotAudited
from txnwatch.state.audit.audit_table import BY_NAME
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import (
    TRANSACTION_STATE_TOPIC,
    WEEK_MS,
    BrokerId,
    TimestampMs,
    TopicPartition,
    elapsed,
)
from txnwatch.state.model.verdicts import Verdict
from txnwatch.state.text import counted, some

EXAMPLES = 5
REPLICAS: Final = 3  # enough


class SeenValue(NamedTuple):
    """One value of one answer: the request, its field, and the value."""

    request: str
    field: str
    value: str


class ChosenRemedy(NamedTuple):
    """A remedy for this cluster; `command` is a tool of Kafka with its arguments, `plan` its reassignment."""

    text: str
    command: tuple[str, ...] = ()
    plan: Mapping[TopicPartition, tuple[BrokerId, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Exposure:
    """One finding: one check and one cause, never one for each partition.

    Attributes:
        key: what names the subject for `--ignore`.
        affected: how many subjects are affected; `examples` has the first of them.
        ids: the transactional ids that are exposed, as far as they are known; `topics` the topics.
    """

    check: AuditCheck
    severity: ExposureSeverity
    key: str
    finding: str
    basis: Basis
    affected: int
    examples: tuple[str, ...]
    evidence: tuple[SeenValue, ...]
    remedies: tuple[ChosenRemedy, ...]
    issues: tuple[str, ...] = ()
    topics: frozenset[str] = field(default_factory=frozenset)
    ids: tuple[str, ...] = ()


def exposure(
    name: str,
    severity: ExposureSeverity,
    finding: str,
    basis: Basis,
    affected: Sequence[object],
    evidence: Iterable[SeenValue],
    remedies: Iterable[ChosenRemedy],
    **more: object,
) -> Exposure:
    """A finding of the check with this name."""
    check = BY_NAME[name]
    made = Exposure(
        check=check,
        severity=severity,
        key=str(affected[0]) if affected else "",
        finding=finding,
        basis=basis,
        affected=len(affected),
        examples=tuple(map(str, affected[:EXAMPLES])),
        evidence=tuple(evidence),
        remedies=tuple(remedies),
        issues=check.issues,
    )
    return replace(made, **more)  # type: ignore[arg-type]


def nodes(brokers: Sequence[BrokerId]) -> str:
    """Some brokers, as text."""
    return f"broker{'s' if len(brokers) != 1 else ''} {some(brokers, EXAMPLES)}"


def remedy(name: str, which: str, **values: object) -> ChosenRemedy:
    """A remedy of the table, with its values put in; that of an id says for which client it is."""
    check = BY_NAME[name]
    line = check.remedies[which]
    command = tuple(part.format(**values) if "{" in part else part for part in line.command)
    is_for_some = check.group is CheckGroup.IDS and line.applies != "all"
    return ChosenRemedy(f"for {line.applies}: {line.text}" if is_for_some else line.text, command)


def for_topics(topics: Sequence[str], made: Callable[[str], ChosenRemedy]) -> list[ChosenRemedy]:
    """A remedy for each of the first topics, and what is left after them."""
    more = len(topics) - EXAMPLES
    left = (
        [ChosenRemedy(f"then audit again: it has the commands for {counted(more, 'more topic')}")] if more > 0 else []
    )
    return [*map(made, topics[:EXAMPLES]), *left]


def first_back(brokers: Iterable[BrokerId], then: str) -> ChosenRemedy:
    """The remedy that needs these brokers: before they are back, its command does nothing, or harms."""
    return ChosenRemedy(f"first bring {nodes(sorted(set(brokers)))} back: {then}")


def more_replicas(name: str, facts: AuditFacts, partitions: Iterable[TopicPartition]) -> ChosenRemedy:
    """The remedy of more replicas, with a plan for the topics of these partitions.

    Each partition keeps its replicas and gets others, in turn. With too few brokers there is no plan, nor if a
    partition has no leader that the new replicas could copy.
    """
    line = BY_NAME[name].remedies["replicas"]
    brokers, away = sorted(facts.brokers), facts.away
    topics = [facts.topics[topic] for topic in sorted({place.topic for place in partitions})]
    asked = ((topic.place(number), of) for topic in topics for number, of in sorted(topic.partitions.items()))
    few = {place: of for place, of in asked if len(of.replicas) < REPLICAS}
    lost = {node for of in few.values() if of.leader is None for node in of.replicas if node in away}
    if len(brokers) + len(away) < REPLICAS:
        return ChosenRemedy(f"add brokers: {line.text}")
    if lost or len(brokers) < REPLICAS:
        return first_back(lost or away, line.text)
    plan: dict[TopicPartition, tuple[BrokerId, ...]] = {}
    for at, (place, of) in enumerate(few.items()):
        in_turn = brokers[at % len(brokers) :] + brokers[: at % len(brokers)]
        others = [node for node in in_turn if node not in of.replicas]
        plan[place] = (*of.replicas, *others[: REPLICAS - len(of.replicas)])
    return ChosenRemedy(line.text, line.command, plan)


@dataclass(frozen=True, slots=True)
class AuditResult:
    """The findings, worst first within their group; what could not be checked; how many of a check are not shown."""

    exposures: tuple[Exposure, ...]
    missing: tuple[NotAudited, ...]
    folded: Mapping[str, int] = field(default_factory=dict)


def exposed_ids(exposure: Exposure, facts: AuditFacts) -> Sequence[str] | None:
    """The transactional ids that a finding exposes: those that it names, or those that wrote to its topics.

    None if the coordinators' log could not be read, or if the finding is about no id and no topic.
    """
    if exposure.ids:
        return exposure.ids
    if facts.ids is None or not exposure.topics:
        return None
    return list(
        dict.fromkeys(
            audited_id.name for topic in sorted(exposure.topics) for audited_id in facts.writers.get(topic, ())
        )
    )


class FittingIncident(NamedTuple):
    """An incident that fits a finding."""

    incident_id: str
    verdict: Verdict
    since_ms: TimestampMs


def of_the_week(events: Iterable[IncidentEvent], now_ms: TimestampMs) -> list[IncidentEvent]:
    """The last event of each incident of the last week, the newest first."""
    newest = {event.incident_id: event for event in events if elapsed(event.time_ms, now_ms) < WEEK_MS}
    return sorted(newest.values(), key=lambda event: -event.time_ms)


def explained(exposure: Exposure, incidents: Iterable[IncidentEvent]) -> tuple[FittingIncident, ...]:
    """The incidents that fit a finding.

    The events topic is no evidence, so this is no finding: it is where to look first.
    """
    return tuple(
        FittingIncident(event.incident_id, event.verdict, event.open_since_ms)
        for event in incidents
        if fits(exposure, event)
    )


def unexplained(exposures: Iterable[Exposure], incidents: Iterable[IncidentEvent]) -> list[IncidentEvent]:
    """The incidents that fit no finding."""
    shown = list(exposures)
    return [event for event in incidents if not any(fits(exposure, event) for exposure in shown)]


def unexplained_line(events: Sequence[IncidentEvent]) -> str | None:
    """The incidents that fit no finding, and why that is usual for a hang of unknown outcome; None without any."""
    if not events:
        return None
    ids = some([event.incident_id for event in events], EXAMPLES)
    line = f"incidents of the last week that fit no finding: {len(events)}, for example {ids}"
    unknown = [event for event in events if event.outcome_doubt is not None and event.verdict is Verdict.HANGING]
    if not unknown:
        return line
    return (
        f"{line}; {counted(len(unknown), 'is a hang', 'are hangs')} whose expected outcome is unknown: a lost marker "
        "and a late write look alike there"
    )


def fits(exposure: Exposure, event: IncidentEvent) -> bool:
    """Whether an incident fits a finding: by a sign of the check, and by the topics or the ids of the finding."""
    return any(sign.is_of(event) and _is_about(exposure, sign, event) for sign in exposure.check.explains)


def _is_about(exposure: Exposure, sign: IncidentSign, event: IncidentEvent) -> bool:
    if exposure.topics:
        pending = {place.rpartition("-")[0] for place in event.pending_partitions}
        concerned = {TRANSACTION_STATE_TOPIC} if sign.is_lost_id else {event.topic, *pending}
        return not concerned.isdisjoint(exposure.topics)
    return not exposure.ids or event.transactional_id in {None, *exposure.ids}
