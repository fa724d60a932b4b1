"""What the incident side wants from the outside world, as values: a plan yields them, and gets the answers.

Law: state/incidents decides and never acts. A decision that needs a fresh read, the time, or a publication is a plan: a
generator that yields one `Wanted` after the other and gets each answer back. Whoever carries out a plan has the
connections: in a watch sinks/incidents/run_ledger.py, and sinks/abort/run_abort.py for aborts, also those by hand; in
the other commands streaming/search/searcher.py; in the simulation the model. So the order of reads and decisions is in
one place, and it is tested without a cluster.

The pattern is that of h11, which turns bytes into events and never touches a socket.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from txnwatch.state.evidence.proven_hang import StoredFindings
from txnwatch.state.incidents.life import NextStep
from txnwatch.state.incidents.speaking import SpeakerRole
from txnwatch.state.model.incident import IncidentEvent, Overwritten
from txnwatch.state.model.ports import (
    FormerOwnersRead,
    GroupOffsets,
    MarkerSpec,
    NotSent,
    PartitionReading,
    SpanHistory,
    TransactionAdmin,
    TransactionListing,
    WaitingGroups,
)
from txnwatch.state.model.transaction import ClosingMarker, TransactionDescription
from txnwatch.state.model.values import (
    CoordinatorEpoch,
    DurationMs,
    Offset,
    Problem,
    ProducerId,
    SpanStart,
    TimestampMs,
    TopicPartition,
)

T = TypeVar("T")


class Wanted(Generic[T]):
    """One thing that a plan wants; T is the type of the answer."""

    __slots__ = ()


Plan = Generator[Wanted[Any], Any, T]


def ask(wanted: Wanted[T]) -> Plan[T]:
    """A plan that wants one thing and returns its answer."""
    answer: T = yield wanted
    return answer


def carry_out(plan: Plan[T], answer: Callable[[Wanted[Any]], Any]) -> T:
    """Runs a plan to its end: `answer` does what is wanted. What it raises is raised in the plan."""
    try:
        wanted = next(plan)
        while True:
            try:
                answered = answer(wanted)
            except Exception as exc:  # noqa: BLE001 - the plan decides about it
                wanted = plan.throw(exc)
            else:
                wanted = plan.send(answered)
    except StopIteration as end:
        result: T = end.value
        return result


def intercepted(plan: Plan[T], make: Callable[[Change], None]) -> Plan[T]:
    """The same plan, with its changes made by `make`; everything else is wanted as before."""
    answered: Any = None
    problem: Exception | None = None
    while True:
        try:
            wanted = plan.throw(problem) if problem is not None else plan.send(answered)
        except StopIteration as end:
            result: T = end.value
            return result
        answered = problem = None
        match wanted:
            case Change():
                make(wanted)
                continue
            case Within(budget_ms, inner):
                wanted = Within(budget_ms, intercepted(inner, make))
        try:
            answered = yield wanted
        except Exception as exc:  # noqa: BLE001 - the plan that wanted this decides about it
            problem = exc


# Fresh reads of partitions and coordinators, and the one write, a marker: what TransactionAdmin has.


@dataclass(frozen=True, slots=True)
class ReadPartitions(Wanted[dict[TopicPartition, PartitionReading]]):
    """See TransactionAdmin.read_partitions."""

    partitions: Collection[TopicPartition]


@dataclass(frozen=True, slots=True)
class ReadHistories(Wanted[dict[SpanStart, SpanHistory]]):
    """See TransactionAdmin.read_span_histories."""

    starts: Collection[SpanStart]


@dataclass(frozen=True, slots=True)
class FindClosingMarker(Wanted[ClosingMarker | None]):
    """See TransactionAdmin.closing_marker."""

    span: SpanStart
    from_offset: Offset


@dataclass(frozen=True, slots=True)
class ReadLogEpochs(Wanted[dict[TopicPartition, CoordinatorEpoch | Problem]]):
    """See TransactionAdmin.log_epochs."""

    logs: Collection[TopicPartition]


@dataclass(frozen=True, slots=True)
class DescribeTransactions(Wanted[dict[str, TransactionDescription]]):
    """See TransactionAdmin.describe_transactions."""

    transactional_ids: Collection[str]


@dataclass(frozen=True, slots=True)
class ListTransactions(Wanted[TransactionListing]):
    """See TransactionAdmin.list_transactions."""

    producer_ids: Collection[ProducerId]


@dataclass(frozen=True, slots=True)
class ReadCleanupPolicies(Wanted[dict[str, str]]):
    """See TransactionAdmin.cleanup_policies."""

    topics: Collection[str]


@dataclass(frozen=True, slots=True)
class WriteMarker(Wanted[Problem | NotSent | None]):
    """See TransactionAdmin.write_marker."""

    marker: MarkerSpec


@dataclass(frozen=True, slots=True)
class Within(Wanted[T]):
    """A plan whose requests share a time budget; the answer is its result. See TransactionAdmin.within."""

    budget_ms: DurationMs
    plan: Plan[T]


# Other reads.


@dataclass(frozen=True, slots=True)
class Now(Wanted[TimestampMs]):
    """The time of the local clock."""


@dataclass(frozen=True, slots=True)
class ReadGroups(Wanted[GroupOffsets]):
    """See ConsumerGroups.committed_offsets."""

    partitions: Collection[TopicPartition]


@dataclass(frozen=True, slots=True)
class ReadWaitingGroups(Wanted[WaitingGroups]):
    """See ConsumerGroups.waiting."""

    spans: Collection[SpanStart]


@dataclass(frozen=True, slots=True)
class ReadFormerOwners(Wanted[FormerOwnersRead]):
    """See FormerOwners.read; without a readable log, no producer id is settled."""

    producer_ids: Collection[ProducerId]


@dataclass(frozen=True, slots=True)
class ReadNewRecords(Wanted[Sequence[IncidentEvent | Overwritten]]):
    """The records of the events topic since the last request, of this instance and of others."""


@dataclass(frozen=True, slots=True)
class IsTopicRead(Wanted[bool]):
    """Whether what was read of the events topic reaches to its end, as it was at the first of several such requests."""

    is_first: bool


@dataclass(frozen=True, slots=True)
class AskToSpeak(Wanted[SpeakerRole]):
    """What this instance publishes now; see Speaking."""


class LeaseAnswer(NamedTuple):
    """Whether this instance may act. `problem` is why it cannot ask for the lease; None if it can."""

    is_held: bool
    problem: str | None


@dataclass(frozen=True, slots=True)
class HoldLease(Wanted[LeaseAnswer]):
    """See Lease: as far as this instance knows, or `is_certain`: by a request at this moment."""

    is_certain: bool = False


# Changes, publications, and what is kept.


@dataclass(frozen=True, slots=True)
class Change(Wanted[None]):
    """The next event of an incident. Only the ledger makes changes.

    It stores the event, and then publishes it, if this instance speaks. The event is stored before the plan goes on:
    the next line of the plan already finds it in the book.

    Attributes:
        step: the step of the table of life.py that it carries out.
    """

    event: IncidentEvent
    step: NextStep


@dataclass(frozen=True, slots=True)
class Publish(Wanted[bool]):
    """Events to publish, in order; answers whether the events topic has everything that was published."""

    events: Sequence[IncidentEvent]


@dataclass(frozen=True, slots=True)
class Show(Wanted[None]):
    """What is stored of the next record of another writer, for the page."""

    event: IncidentEvent


@dataclass(frozen=True, slots=True)
class Withdraw(Wanted[list[IncidentEvent]]):
    """A record of another writer: events of its incident that wait for the topic and are not newer are dropped.

    The answer has them: they do not come to the topic.
    """

    record: IncidentEvent


@dataclass(frozen=True, slots=True)
class TakeOver(Wanted[None]):
    """This instance begins to speak: the mirrors get what is known, because the former speaker may have left it out."""


@dataclass(frozen=True, slots=True)
class OthersTold(Wanted[None]):
    """Another instance speaks, or has spoken until now: a mirror with a position has no part in what it has told."""


@dataclass(frozen=True, slots=True)
class FallSilent(Wanted[Sequence[IncidentEvent]]):
    """This instance no longer speaks; answers the events that still waited for the topic, and are dropped."""


@dataclass(frozen=True, slots=True)
class Tidy(Wanted[bool]):
    """Mirrors drop incidents that ended long ago, and empty ones are filled; answers whether the topic has everything.

    `has_ended` is whether an incident ended long ago.
    """

    has_ended: Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Bury(Wanted[bool]):
    """Incidents to remove from the events topic, which has everything; answers whether all of them are removed."""

    incident_ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class Keep(Wanted[None]):
    """What this process has found, to be kept for its next start; see EvidenceStore."""

    findings: StoredFindings


@dataclass(frozen=True, slots=True)
class Say(Wanted[None]):
    """A line for the operator that is no event."""

    text: str
    is_warning: bool = True


Way = Callable[[Any], Any]  # how one kind of Wanted is done: the thing goes in, its answer comes out


class PlanRunner:
    """Carries out plans: fresh reads and the marker by a TransactionAdmin, the time, and what `also` has in addition.

    It is given its connections; it decides nothing.
    """

    def __init__(
        self,
        admin: TransactionAdmin,
        now_ms: Callable[[], TimestampMs],
        also: Mapping[type[Wanted[Any]], Way] = MappingProxyType({}),
    ) -> None:
        self._admin = admin
        self._ways: dict[type[Wanted[Any]], Way] = {
            ReadPartitions: lambda wanted: admin.read_partitions(wanted.partitions),
            ReadHistories: lambda wanted: admin.read_span_histories(wanted.starts),
            FindClosingMarker: lambda wanted: admin.closing_marker(wanted.span, wanted.from_offset),
            ReadLogEpochs: lambda wanted: admin.log_epochs(wanted.logs),
            DescribeTransactions: lambda wanted: admin.describe_transactions(wanted.transactional_ids),
            ListTransactions: lambda wanted: admin.list_transactions(wanted.producer_ids),
            ReadCleanupPolicies: lambda wanted: admin.cleanup_policies(wanted.topics),
            WriteMarker: lambda wanted: admin.write_marker(wanted.marker),
            Within: self._within,
            Now: lambda _: now_ms(),
            **also,
        }

    def run(self, plan: Plan[T]) -> T:
        """The result of a plan; what a way raises is raised in the plan, where it is wanted."""
        return carry_out(plan, self._answer)

    def _answer(self, wanted: Wanted[T]) -> T:
        answer: T = self._ways[type(wanted)](wanted)
        return answer

    def _within(self, wanted: Within[T]) -> T:
        with self._admin.within(wanted.budget_ms):
            return self.run(wanted.plan)
