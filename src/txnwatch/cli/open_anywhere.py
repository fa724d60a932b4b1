"""What some producer ids have open on any partition of the cluster: `explain` of an id looks where `find-hanging` does.

A write that no transaction owns is on a partition that neither the coordinator nor its log names: the id is idle, or it
has expired, and the data hangs all the same. So the leaders of all partitions are asked (DescribeProducers), and only
what is open under these producer ids is proven.

Law: at most MOST_PARTITIONS are read. What was not read is in `missing` of the question, and nothing is said to be
clear there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from txnwatch.cli.compose import Question
from txnwatch.cli.explain_causes import Obstacle, also_lines
from txnwatch.cli.explanation import Explanation, blocking_order, of_span, worst_first
from txnwatch.state.evidence.screening import Search
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.ports import PartitionReading
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, ProducerId, TopicPartition, is_foreign
from txnwatch.state.model.verdicts import Verdict
from txnwatch.state.telling.commands import explain_partition
from txnwatch.state.text import some
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster

MOST_PARTITIONS = 20_000
_AT_ONCE = 1_000
_NAMED = 5


@dataclass(frozen=True, slots=True)
class OpenAnywhere:
    """What was found.

    Attributes:
        strays: the open data that hangs or whose owner is not proven, what hangs first.
        found: the proofs about it.
        readings: of all partitions that were asked for; some may have a problem.
        left: how many partitions were not asked for.
    """

    strays: tuple[SpanCandidate, ...]
    found: Search
    readings: Mapping[TopicPartition, PartitionReading]
    left: int = 0

    @property
    def read(self) -> int:
        """How many partitions were read."""
        return sum(reading.problem is None for reading in self.readings.values())

    @property
    def unread(self) -> int:
        """How many partitions were not read."""
        return len(self.readings) - self.read + self.left

    def of(self, partitions: Collection[TopicPartition]) -> list[PartitionReading]:
        """The readings of some partitions, and of those where one of the producer ids has open data."""
        return [reading for at, reading in self.readings.items() if at in partitions or at in self.found.readings]

    @property
    def nothing(self) -> str:
        """Where nothing was found."""
        which = (
            f"any of the {self.read} partitions that were read"
            if self.read != 1
            else "the only partition that was read"
        )
        return f"Nothing of it is open on {which}."

    @property
    def not_looked(self) -> str:
        """Where nobody has looked; empty if everything was read."""
        if not self.unread:
            return ""
        more = f"{self.unread} more partition{'s were' if self.unread > 1 else ' was'} not read"
        return f"{more}: it is not known whether it has open data there."


def open_anywhere(question: Question, producer_ids: Collection[ProducerId]) -> OpenAnywhere:
    """Reads all partitions that this user sees, and proves what is open under the producer ids."""
    readings, left = read_all(question)
    read = [reading for reading in readings.values() if reading.problem is None]
    holding = [
        reading.partition
        for reading in read
        if any(reading.open_transaction(producer_id) is not None for producer_id in producer_ids)
    ]
    search = _proven(question, holding, producer_ids)
    hanging = blocking_order(span for span, _ in search.hanging)
    unproven = blocking_order(span for span, _ in search.unproven)
    return OpenAnywhere((*hanging, *unproven), search, readings, left)


def read_all(question: Question) -> tuple[dict[TopicPartition, PartitionReading], int]:
    """The readings of all partitions that this user sees, and how many were left out because there are too many."""
    partitions = data_partitions(question.cluster, question.searcher.foreign_topics)
    asked, left = partitions[:MOST_PARTITIONS], partitions[MOST_PARTITIONS:]
    readings: dict[TopicPartition, PartitionReading] = {}
    for first in range(0, len(asked), _AT_ONCE):
        readings |= question.searcher.admin.read_partitions(asked[first : first + _AT_ONCE])
    _note_unread(question, readings.values(), len(left))
    return readings, len(left)


def _note_unread(question: Question, readings: Iterable[PartitionReading], left: int) -> None:
    """What was not read, as one entry for each reason."""
    unread: dict[str, list[str]] = {}
    for reading in readings:
        if reading.problem is not None:
            unread.setdefault(str(reading.problem), []).append(str(reading.partition))
    question.missing.update({some(names, _NAMED): why for why, names in unread.items()})
    if left:
        question.missing[f"{left} more partitions"] = (
            f"`explain` reads at most {MOST_PARTITIONS} partitions for an id; `txnwatch find-hanging` reads all"
        )


def data_partitions(cluster: Cluster, foreign_topics: str | None) -> list[TopicPartition]:
    """The partitions in which producers of this cluster can have open data, as far as this user sees them."""
    return [
        TopicPartition(name, number)
        for name, topic in sorted(cluster.known.topics.items())
        if name != TRANSACTION_STATE_TOPIC and not is_foreign(name, foreign_topics)
        for number in sorted(topic.partitions)
    ]


def _proven(question: Question, holding: list[TopicPartition], producer_ids: Collection[ProducerId]) -> Search:
    if not holding:
        return Search(policy=question.searcher.policy)
    search = question.searcher.search(holding, lambda span: span.producer_id in producer_ids)
    question.missing.update({f"{span.partition} producer id {span.producer_id}": why for span, why in search.unproven})
    return search


def with_strays(question: Question, explained: Explanation, anywhere: OpenAnywhere) -> Explanation:
    """The explanation of an id with what it has open anywhere: data that hangs is its subject.

    Where nothing was found, it says what was read; with partitions that were not read, nothing is clear.
    """
    is_quiet = explained.state in _QUIET
    if not anywhere.strays:
        lines = [anywhere.nothing] if is_quiet else []
        lines += filter(None, [anywhere.not_looked])
        state = "unproven" if anywhere.unread and is_quiet else explained.state
        return replace(explained, state=state, text=(*explained.text, *lines))
    first, *others = anywhere.strays
    others_named = also_lines(
        question, [Obstacle(*pair, anywhere.found) for pair in worst_first(others, anywhere.found)]
    )
    why = of_span(question.origin, first, anywhere.found, wall_clock_ms())
    text = (*explained.text, *why.text, *others_named)
    name = explained.transactional_id or why.transactional_id
    if why.state != Verdict.HANGING and not is_quiet:  # a live transaction with a verdict of its own
        return replace(explained, text=text)
    step = explain_partition(question.origin, first.partition) if why.next is None else why.next
    return replace(why, target=explained.target, transactional_id=name, text=text, next=step)


_QUIET = frozenset({"idle", "contended", "expired", "moved", "superseded"})
