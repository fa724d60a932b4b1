"""Participants of transactions that Metadata does not show to this user.

Metadata leaves out a topic that this user may not describe, without an error, as if it did not exist. A request by name
is refused for such a topic, and answered with an unknown topic for a deleted one. So participants that are missing from
the metadata are requested by name. A refused topic is hidden: a transaction that hangs on it cannot be detected here.
Only `__transaction_state` names such partitions, because DescribeTransactions leaves them out, without an error.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from functools import partial

from txnwatch.state.evidence.screening import is_foreign
from txnwatch.state.model.description import DescribedTransaction, TransactionDescription
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.facts import Fact, NoticeKind, PartitionNotice, TransactionSeen
from txnwatch.state.model.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.state.model.problem import Problem
from txnwatch.state.model.quantities import FIRST_OFFSET, DurationMs, Offset
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.log_extent import list_extents, read_parts
from txnwatch.streaming.log.range_read import RangeRead
from txnwatch.streaming.log.transaction_fold import TransactionFold
from txnwatch.streaming.source.options import SourceOptions
from txnwatch.streaming.wire.transaction_log import coordinator_partition

_CLOCK_MS = DurationMs(60_000)  # the coordinator's clock may have been set back since
_MOST_RECORDS = 2_000_000  # offsets, of all partitions of the log together


def hidden_participants(
    facts: Iterable[Fact], known: Container[TopicPartition], options: SourceOptions, cluster: Cluster
) -> list[Fact]:
    """A notice for each hidden partition that is or was a participant of a transaction in these facts.

    Topics that the options exclude are left out, and so are `known` partitions: the planner requests those itself.
    """
    wanted = {one for one in _named(facts) if one not in known and options.wants(one.topic)}
    return [
        PartitionNotice(NoticeKind.HIDDEN, partition, "", FIRST_OFFSET, FIRST_OFFSET, str(why))
        for partition, why in hidden_partitions(cluster, wanted).items()
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
        one.transactional_id: one.start_ms
        for one in live
        if isinstance(one, DescribedTransaction) and one.is_live and one.start_ms is not None
    }
    logs = sorted(cluster.known.topics[TRANSACTION_STATE_TOPIC].partitions) if begun and _has_log(cluster) else []
    if not logs:
        return {}
    of_ids = {coordinator_partition(name, len(logs)) for name in begun}
    asked = [TopicPartition(TRANSACTION_STATE_TOPIC, number) for number in sorted(of_ids)]
    starts = cluster.offsets_since(asked, min(begun.values()) - _CLOCK_MS)
    most = _MOST_RECORDS // len(asked)
    problems: dict[str, Problem] = {}
    parts: list[RangeRead] = []
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
            parts.append(log.part(partial(TransactionFold, partition.partition), first))
    named: set[TopicPartition] = set()
    for read in read_parts(cluster, parts):
        named |= {one for one in _named(read.fold.facts()) if not is_foreign(one.topic, foreign_topics)}
        problems.update({_participants(read.partition): Problem(one.detail) for one in read.notices[:1]})
    return {**{str(partition): why for partition, why in hidden_partitions(cluster, named).items()}, **problems}


def _participants(log: TopicPartition) -> str:
    return f"participants of the transactions in {log}"


def _has_log(cluster: Cluster) -> bool:
    log = cluster.known.topics.get(TRANSACTION_STATE_TOPIC)
    return log is not None and bool(log.partitions)


def _named(facts: Iterable[Fact]) -> set[TopicPartition]:
    seen = (fact for fact in facts if isinstance(fact, TransactionSeen))
    return {partition for fact in seen for partition in (*fact.view.participants, *fact.held)}


def hidden_partitions(cluster: Cluster, named: Iterable[TopicPartition]) -> dict[TopicPartition, Problem]:
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


def why_not_shown(cluster: Cluster, topic: str) -> str:
    """Why a topic is not in the metadata, as a text for an operator."""
    error = hidden_topics(cluster, [topic]).get(topic)
    if error is None:
        return "not in the cluster"
    return f"hidden from this user ({error}): whether it exists, and whether a transaction hangs there, is unknown"


def hidden_topics(cluster: Cluster, names: Iterable[str]) -> dict[str, Problem]:
    """Those of some topics that may exist but are hidden from this user, with the error; at most one request."""
    shown = cluster.metadata.topics if cluster.metadata is not None else {}
    missing = sorted(name for name in set(names) if name not in shown or shown[name].is_hidden)
    if not missing:
        return {}
    try:
        named = cluster.named(missing)
    except BrokerError as exc:
        return dict.fromkeys(missing, Problem.from_error(exc))
    return {name: topic.error for name, topic in named.items() if topic.is_hidden and topic.error is not None}
