"""`txnwatch abort`: ends one hanging transaction by hand, with the same proof and rules as the automatic abort.

The difference: a person decides. The command shows the possible loss and asks for confirmation. An unknown outcome is
refused unless a person says that it is accepted: by the answer to that question, or with `--accept-unknown-outcome`. A
transaction whose commit was acknowledged is completed with `--result commit`, and aborted only with
`--lose-acknowledged-data`. As in the automatic abort, a live transaction is refused, and so is one whose epoch may be
used again.

Law: the exit code is 0 if the log shows that a marker of the requested kind has closed the transaction, whoever wrote
it. A watch that aborts automatically is often faster than the person who pastes a command.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from txnwatch.cli.command_origin import origin_of
from txnwatch.cli.compose import searcher_of
from txnwatch.cli.events_access import add_publishing_flags, operator_name, publishing, topic_of
from txnwatch.cli.explain_replicas import because_of, naming_replicas
from txnwatch.cli.explanation import incident_of_a_watcher
from txnwatch.cli.one_shot import (
    add_connection_flags,
    add_foreign_flag,
    add_output_flags,
    add_owners_flag,
    add_partition_flags,
    add_write_flags,
    confirmed,
    id64,
    options_of,
)
from txnwatch.cli.output import CLEAN, FAILURE, REFUSED, CommandAnswer, Line, Name, row_of, write
from txnwatch.sinks.abort.run_abort import ManualAbort, OperatorsTopic
from txnwatch.state.abort.rules import RULE_OF_REFUSAL, Refused
from txnwatch.state.evidence.screening import Search
from txnwatch.state.incidents.by_hand import ManualTarget, unless_published_otherwise
from txnwatch.state.model.errors import BrokerError, ConfigError, SinkError, TxnwatchError
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.incident import ActionResult, ExpectedOutcome, IncidentEvent, Refusal, start_of
from txnwatch.state.model.partition_replicas import NONE_AT_RISK, PartitionReplicas
from txnwatch.state.model.values import Offset, PartitionOffset, ProducerEpoch, ProducerId, TopicPartition
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.state.telling.commands import Origin, fence_owner
from txnwatch.state.telling.published import said_about, tell_found
from txnwatch.state.telling.renderings import sentences
from txnwatch.state.telling.statements import StatementKind, outcome_words
from txnwatch.state.text import cut
from txnwatch.streaming.admin.replicas import blocked_of
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.hidden_topics import why_not_shown
from txnwatch.streaming.log.lookups import look_up

# Connects `txnwatch abort` to a cluster and to its events topic; state/incidents/by_hand.py has the abort.

_TIMEOUT_S = 10.0
_BETWEEN_READS_S = 1.0
Publishing = Callable[[], AbstractContextManager[OperatorsTopic]]
Blocked = Callable[[], list[PartitionReplicas]]


class _Connected(NamedTuple):
    """The abort, what opens the events topic, what tells of the replicas, and what looks whether it is over."""

    abort: ManualAbort
    publishing: Publishing
    blocked: Blocked
    closed_by: Callable[[float], Decided | None]


@contextlib.contextmanager
def _abort_on_cluster(parsed: argparse.Namespace, target: ManualTarget) -> Iterator[_Connected]:
    """Connects with the connection flags."""
    options = options_of(parsed.bootstrap_server, parsed.command_config)
    events = topic_of(parsed)
    with contextlib.closing(Cluster(options.bootstrap, options.security, timeout_s=_TIMEOUT_S)) as cluster:
        abort = ManualAbort(
            target=target,
            admin=ClusterAdmin(cluster),
            search=partial(_search, cluster, parsed.foreign_topics),
            absence=partial(_absence, cluster),
            origin=origin_of(cluster, parsed),
            operator=operator_name(),
            now_ms=wall_clock_ms,
            pause=lambda: time.sleep(_BETWEEN_READS_S),
        )
        yield _Connected(
            abort,
            partial(publishing, parsed, cluster, options, events, "abort"),
            partial(blocked_of, cluster, [target.partition]),
            partial(_closed_by, cluster, target),
        )


def _closed_by(cluster: Cluster, target: ManualTarget, patience_s: float) -> Decided | None:
    """The row of a transaction that a marker of the requested kind has closed; None if the log does not show one."""
    until_s = time.monotonic() + patience_s
    while True:
        decided = _look_for_marker(cluster, target)
        if decided is not None or time.monotonic() > until_s:
            return decided
        time.sleep(_BETWEEN_READS_S)


def _look_for_marker(cluster: Cluster, target: ManualTarget) -> Decided | None:
    if target.start_offset is None:
        return None  # which of the transactions of a producer is meant is not known
    try:
        reading = ClusterAdmin(cluster).read_partitions([target.partition])[target.partition]
        place, _ = look_up(cluster, PartitionOffset(target.partition, target.start_offset), reading)
    except BrokerError:
        return None
    batch, marker = place.batch, place.marker
    is_data = batch is not None and not batch.is_control and place.first_offset == target.start_offset
    if batch is None or not is_data or marker is None or marker.commit is not target.is_commit:
        return None
    assert batch.producer_id is not None
    if reading.open_transaction(batch.producer_id) is not None:
        return None  # the offset may be a wrong one, of the transaction before
    kind = "COMMIT" if marker.commit else "ABORT"
    return Decided(
        topic=target.partition.topic,
        partition=target.partition.partition,
        txn_start_offset=target.start_offset,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        transactional_id=None,
        reason=None,
        expected_outcome=None,
        outcome_doubt=None,
        result="already_closed",
        detail=f"the {kind} marker at offset {marker.offset} has closed it; this command has written nothing",
    )


def _search(
    cluster: Cluster,
    foreign_topics: str | None,
    partition: TopicPartition,
    is_wanted: Callable[[SpanCandidate], bool],
) -> Search:
    cluster.refresh()
    # A hang has no threshold. The abort asks for the replicas right before it writes.
    searcher = replace(searcher_of(cluster, DetectionPolicy(), foreign_topics), at_risk=lambda *_: NONE_AT_RISK)
    return searcher.search([partition], is_wanted)


def _absence(cluster: Cluster, partition: TopicPartition) -> str | None:
    return why_not_shown(cluster, partition.topic) if cluster.known.info(partition) is None else None


# The command: its flags, what it asks, and what it shows.

# Flags of Kafka's tool that are not supported, with the reason; docs/kafka-transactions.md has the reasons too.
NOT_TAKEN = {
    "--producer-epoch": "read from the partition's leader, which has the epoch of the open transaction; a lower one is "
    "refused, and a higher one fences the producer",
    "--coordinator-epoch": "read from the partition's leader, which has the epoch of the last marker; a higher one "
    "fences the real coordinator, whose own markers are refused from then on",
}
ACCEPT_UNKNOWN, LOSE_ACKNOWLEDGED = "--accept-unknown-outcome", "--lose-acknowledged-data"
_ALLOWED_BY = {Refusal.OUTCOME_UNKNOWN: ACCEPT_UNKNOWN, Refusal.OUTCOME_WAS_COMMIT: LOSE_ACKNOWLEDGED}
_LOSS_BY_COMMIT = "Its commit is proven: its marker is written, and consumers receive its data."
_IF_NOT_COMMITTED = "If it was not committed, consumers receive data that was aborted."
_RACE_S = 5.0  # a watch that has announced a marker writes it at once


@dataclass(frozen=True, slots=True)
class Decided:
    """The result row: the transaction, the decision, and what was done."""

    topic: str | None
    partition: int | None
    txn_start_offset: Offset | None
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    transactional_id: Name | None
    reason: str | None
    expected_outcome: str | None
    outcome_doubt: str | None
    result: str
    detail: Line


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse's private type
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "abort",
        help="end one hanging transaction, with a check before and after",
        description="Proves that a transaction hangs, shows the possible data loss, writes its marker, and reads the "
        "partition again.",
    )
    add_connection_flags(parser)
    add_foreign_flag(parser)
    add_owners_flag(parser)
    add_partition_flags(parser, is_required=True)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--start-offset", type=id64, metavar="OFFSET", help="first offset of the open transaction")
    which.add_argument("--producer-id", type=id64, metavar="ID", help="producer id of the open transaction")
    for flag in NOT_TAKEN:
        parser.add_argument(flag, nargs="?", action=_NotTaken, help=argparse.SUPPRESS)
    parser.add_argument(
        "--result", choices=("abort", "commit"), default="abort", help="the kind of marker (default: abort)"
    )
    parser.add_argument(
        LOSE_ACKNOWLEDGED,
        action="store_true",
        help="write an ABORT marker even if the commit is proven",
    )
    parser.add_argument(
        ACCEPT_UNKNOWN,
        action="store_true",
        help="with --yes, write the marker even if the outcome is unknown",
    )
    add_write_flags(parser, "show the decision, and write nothing")
    add_publishing_flags(parser)
    add_output_flags(parser)
    parser.set_defaults(run=run)


class _NotTaken(argparse.Action):
    """A flag of Kafka's tool that is not supported: raises an error with the reason."""

    def __call__(self, *_: object) -> None:
        flag = self.option_strings[0]
        raise ConfigError(f"abort {flag}: not supported, because the value is {NOT_TAKEN[flag]}. Leave it out")


def run(parsed: argparse.Namespace) -> int:
    """Ends the transaction; exit code 0 if the log shows that a marker of the requested kind closed it.

    5 if it was refused, by a rule or by the operator: no marker was written. Else 1. With --dry-run: 0 if the marker
    would be written, or is there.
    """
    target = ManualTarget(
        partition=TopicPartition(parsed.topic, parsed.partition),
        start_offset=parsed.start_offset,
        producer_id=parsed.producer_id,
        is_commit=parsed.result == "commit",
        may_lose=parsed.lose_acknowledged_data,
        may_be_unknown=parsed.accept_unknown_outcome or not parsed.yes,
    )
    with _abort_on_cluster(parsed, target) as (abort, publishing, blocked, closed_by):
        try:
            return _end(parsed, abort, publishing, blocked)
        except TxnwatchError as exc:
            over = closed_by(_RACE_S if isinstance(exc, SinkError) else 0.0)
            if over is None:
                raise
            _write(parsed, abort.origin.cluster_id, over)
            return CLEAN


def _end(
    parsed: argparse.Namespace,
    abort: ManualAbort,
    publishing: Publishing,
    blocked: Blocked,
) -> int:
    """Finds the transaction, decides, asks and ends it; returns the exit code.

    Raises:
        TxnwatchError: there is no such open transaction, or an answer is missing; no marker was written.
    """
    with naming_replicas(blocked):
        incident, evidence, confirmation = abort.find()
    said = said_about(incident, abort.origin.published().events) if _is_unknown(incident) else None
    decision = abort.decide(evidence, confirmation)
    decision = unless_published_otherwise(abort.target, said, evidence.outcome, decision)
    if isinstance(decision, Refused):
        return _refused(parsed, abort.origin, incident, decision)
    if why := because_of(blocked()):
        _show(parsed, incident, "refused", f"nothing was written{why}")
        return REFUSED
    loss = _loss(abort.origin, incident, is_commit=abort.target.is_commit)
    if parsed.dry_run:
        _show(parsed, incident, "dry_run", f"{_would(parsed, incident)}: {loss}")
        return CLEAN
    if not parsed.yes and not _is_confirmed(incident, f"{parsed.result}: {loss}", is_commit=abort.target.is_commit):
        _show(parsed, incident, "refused", "not confirmed: nothing was written")
        return REFUSED
    with publishing() as topic:
        result = abort.end(incident, evidence, topic)
    if isinstance(result, Refused):
        return _refused(parsed, abort.origin, incident, result)
    detail = result.detail or f"closed; last stable offset {result.stable_after}"
    _show(parsed, incident, result.result, f"{detail}{_was_unknown(incident)}")
    return CLEAN if result.result is ActionResult.VERIFIED else FAILURE


def _is_unknown(incident: IncidentEvent) -> bool:
    return incident.expected_outcome is ExpectedOutcome.UNKNOWN


def _would(parsed: argparse.Namespace, incident: IncidentEvent) -> str:
    """What the command does without --dry-run."""
    marker = f"write the {parsed.result.upper()} marker"
    is_asked = _is_unknown(incident) and not parsed.yes
    return f"would ask, and {marker} if the answer is yes" if is_asked else f"would {marker}"


def _is_confirmed(incident: IncidentEvent, loss: str, *, is_commit: bool) -> bool:
    words = outcome_words(incident)
    question = words.asks_commit if is_commit else words.asks
    instead = f"--yes {ACCEPT_UNKNOWN}" if _is_unknown(incident) else "--yes"
    return confirmed([*_about(incident), loss], question, instead)


def _was_unknown(incident: IncidentEvent) -> str:
    """What is said with the result about an outcome that the person has accepted."""
    return f". Its outcome was unknown: {incident.outcome_detail}" if _is_unknown(incident) else ""


def _loss(origin: Origin, incident: IncidentEvent, *, is_commit: bool) -> str:
    """What the marker does to the data, by the outcome."""
    if is_commit and not _is_unknown(incident):
        return _LOSS_BY_COMMIT
    said = sentences(tell_found(origin, incident).told, StatementKind.OUTCOME, StatementKind.SAFE)
    risk = [_IF_NOT_COMMITTED] if is_commit else []
    watchers = [f"{incident_of_a_watcher(incident.incident_id)}."] if _is_unknown(incident) else []
    return " ".join([*said.values(), *risk, *watchers])


def _refused(parsed: argparse.Namespace, origin: Origin, incident: IncidentEvent, refused: Refused) -> int:
    advice = RULE_OF_REFUSAL[refused.refusal].what_to_do
    if refused.refusal is Refusal.EPOCH_MAY_BE_REUSED and incident.transactional_id is not None:
        command = fence_owner(origin, incident, incident.transactional_id)
        advice = f"restart its application, or run: {command}"
    if (flag := _ALLOWED_BY.get(refused.refusal)) is not None:
        advice += f" ({flag} allows it)"
    _show(parsed, incident, f"refused ({refused.refusal})", f"{refused.detail}; {advice}")
    return REFUSED


def _show(parsed: argparse.Namespace, incident: IncidentEvent, result: str, detail: str) -> None:
    """Writes the result row, as text or JSON."""
    _write(parsed, incident.cluster_id, row_of(Decided, incident, result=result, detail=detail))


def _write(parsed: argparse.Namespace, cluster_id: str, row: Decided) -> None:
    write(CommandAnswer("abort", cluster_id, Decided, [row]), parsed.format, is_wide=parsed.wide)


def _about(incident: IncidentEvent) -> Iterator[str]:
    yield (
        f"{start_of(incident).place}: producer id {incident.producer_id}, epoch {incident.producer_epoch}, "
        f"transactional id {cut(incident.transactional_id or 'unknown')}, {incident.reason}, "
        f"expected outcome {incident.expected_outcome}"
    )
    if incident.owner is not None:
        yield f"owner: {incident.owner.whom_to_call}"
