"""Participants of transactions that Metadata does not show to this user.

Metadata leaves out a topic that this user may not describe, without an error, as if it did not exist. A request by
name is refused for such a topic, and answered with an unknown topic for a deleted one. So participants that are
missing from the metadata are requested by name. A refused topic is hidden: a transaction that hangs on it cannot be
detected here. Only `__transaction_state` names such partitions, because DescribeTransactions leaves them out, without
an error.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from functools import partial

from txnwatch.state.model.facts import Fact, NoticeKind, PartitionNotice, TransactionSeen
from txnwatch.state.model.transaction import DescribedTransaction, TransactionDescription
from txnwatch.state.model.values import (
    FIRST_OFFSET,
    TRANSACTION_STATE_TOPIC,
    DurationMs,
    Offset,
    Problem,
    TopicPartition,
    coordinator_partition,
    is_foreign,
    log_numbered,
)
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.hidden_topics import hidden_topics
from txnwatch.streaming.log.lookups import list_extents, read_parts
from txnwatch.streaming.log.range_reading import RangeReading
from txnwatch.streaming.log.transaction_fold import TransactionFold

_CLOCK_MS = DurationMs(60_000)  # the coordinator's clock may have been set back since
_MOST_RECORDS = 2_000_000  # offsets, of all partitions of the log together


def hidden_participants(
    facts: Iterable[Fact], planned: Container[TopicPartition], is_wanted: Callable[[str], bool], cluster: Cluster
) -> list[Fact]:
    """A notice for each hidden partition that is or was a participant of a transaction in these facts.

    Topics that are not wanted are left out, and so are `planned` partitions: the planner requests those itself.
    """
    wanted = {
        participant for participant in _named(facts) if participant not in planned and is_wanted(participant.topic)
    }
    return [
        PartitionNotice(NoticeKind.HIDDEN, partition, "", FIRST_OFFSET, FIRST_OFFSET, str(why))
        for partition, why in _hidden_partitions(cluster, wanted).items()
    ]


def hidden_of(
    cluster: Cluster, live: Iterable[TransactionDescription], foreign_topics: str | None = None
) -> dict[str, Problem]:
    """Hidden participants of live transactions, and parts of the log that could not be checked, with the reason.

    It reads the partitions of `__transaction_state` that have the ids of these transactions, from the time when the
    oldest of them began. The partitions share a limit of `_MOST_RECORDS` offsets equally. If one of them has grown by
    more offsets than its share since, only its last offsets are read, and that is one of the problems. Topics that
    match `foreign_topics` are left out.
    """
    begun = {
        transaction.transactional_id: transaction.start_ms
        for transaction in live
        if isinstance(transaction, DescribedTransaction) and transaction.is_live and transaction.start_ms is not None
    }
    logs = cluster.known.topics[TRANSACTION_STATE_TOPIC].partitions if begun and _has_log(cluster) else {}
    if not logs:
        return {}
    asked = sorted({log_numbered(coordinator_partition(name, len(logs))) for name in begun})
    starts = cluster.offsets_since(asked, min(begun.values()) - _CLOCK_MS)
    most = _MOST_RECORDS // len(asked)
    problems: dict[str, Problem] = {}
    parts: list[RangeReading[TransactionFold]] = []
    for partition, log in list_extents(cluster, asked).items():
        start = starts[partition]
        if isinstance(log, Problem):
            problems[_participants(partition)] = log
        elif isinstance(start, Problem):
            problems[_participants(partition)] = start
        elif start is not None:
            first = max(start.offset, Offset(log.end - most))
            if first > start.offset:
                grown = f"the log has grown by {log.end - start.offset} offsets since the oldest transaction began"
                problems[_participants(partition)] = Problem(f"{grown}; only the last {most} were read")
            parts.append(RangeReading(log.part(first), partial(TransactionFold, partition)))
    named: set[TopicPartition] = set()
    for read in read_parts(cluster, parts):
        named |= {
            participant
            for participant in _named(read.fold.facts())
            if not is_foreign(participant.topic, foreign_topics)
        }
        problems.update({_participants(read.partition): Problem(notice.detail) for notice in read.notices[:1]})
    return {**{str(partition): why for partition, why in _hidden_partitions(cluster, named).items()}, **problems}


def _participants(log: TopicPartition) -> str:
    return f"participants of the transactions in {log}"


def _has_log(cluster: Cluster) -> bool:
    log = cluster.known.topics.get(TRANSACTION_STATE_TOPIC)
    return log is not None and bool(log.partitions)


def _named(facts: Iterable[Fact]) -> set[TopicPartition]:
    seen = (fact for fact in facts if isinstance(fact, TransactionSeen))
    return {partition for fact in seen for partition in (*fact.view.participants, *fact.held)}


def _hidden_partitions(cluster: Cluster, named: Iterable[TopicPartition]) -> dict[TopicPartition, Problem]:
    """Those of some participants whose topics are hidden from this user, with the reason."""
    wanted = sorted(set(named))
    hidden = hidden_topics(cluster, {partition.topic for partition in wanted})
    return {
        partition: Problem(
            "a transaction includes this partition, but its topic is hidden from this user "
            f"({hidden[partition.topic]}): a hang there is not detected",
            hidden[partition.topic].code,
        )
        for partition in wanted
        if partition.topic in hidden
    }
