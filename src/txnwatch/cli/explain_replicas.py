"""What `explain`, `fence` and `abort` add if partitions have too few in-sync replicas, or no leader.

Then a step that restarts a broker can take a partition offline, and a fence is refused or waits. So what the replicas
need is the only step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from txnwatch.cli.explanation import ENDS_BY_ITSELF, NOT_KNOWN, YES, Explanation
from txnwatch.state.model.partition_replicas import PartitionReplicas
from txnwatch.state.model.values import TopicPartition
from txnwatch.state.model.verdicts import Verdict
from txnwatch.state.telling.renderings import first_command
from txnwatch.state.telling.replica_words import blocked_lines, last_lines, repair_step
from txnwatch.state.telling.statements import StatementKind, Told
from txnwatch.streaming.admin.replicas import blocked_of, replicas_of
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.coordinator_log import log_of

_NOTHING_ENDS_IT = "Until this is repaired nothing ends it: neither its client, nor its coordinator, nor a fence."


def with_replicas(cluster: Cluster, explained: Explanation, partitions: Iterable[TopicPartition] = ()) -> Explanation:
    """The explanation with what its partitions, those of its transaction and that of the coordinators' log lack."""
    wanted = {*partitions, *map(TopicPartition.parse, explained.partitions)}
    log = log_of(cluster, explained.transactional_id) if explained.transactional_id is not None else None
    replicas = replicas_of(cluster, {*wanted, log} if log is not None else wanted)
    last = tuple(last_lines([state for state in replicas if state.is_last and not state.is_blocked]))
    explained = replace(explained, text=(*explained.text, *last))
    blocked = [state for state in replicas if state.is_blocked]
    if not blocked:
        return explained
    is_hanging = explained.state == Verdict.HANGING
    others = [statement for statement in explained.told if is_hanging or statement.kind is not StatementKind.NEXT]
    told = (Told(StatementKind.NEXT, repair_step(blocked)), *others)
    ends = NOT_KNOWN if explained.ends_by_itself == YES else explained.ends_by_itself
    text = (line for line in explained.text if not line.startswith(ENDS_BY_ITSELF))
    return replace(
        explained,
        told=told,
        next=first_command(told),
        ends_by_itself=ends,
        ends_by_ms=None if ends == NOT_KNOWN else explained.ends_by_ms,
        text=(*text, *blocked_lines(blocked), *(() if is_hanging else (_NOTHING_ENDS_IT,))),
    )


def log_blocked(cluster: Cluster, transactional_id: str) -> list[PartitionReplicas]:
    """The partition of the coordinators' log that has an id, if it cannot be written."""
    log = log_of(cluster, transactional_id)
    return blocked_of(cluster, [log]) if log is not None else []


def because_of(blocked: Iterable[PartitionReplicas]) -> str:
    """Why something failed, behind the failure, and what to do; empty if the replicas are not the reason."""
    all_blocked = list(blocked)
    return f". {' '.join(blocked_lines(all_blocked))} {repair_step(all_blocked)}" if all_blocked else ""
