"""`txnwatch abort`: ends one hanging transaction by hand, with the same proof and rules as the automatic abort.

The difference: a person decides. So an unknown outcome is not refused; the command shows the possible loss and asks for
confirmation. A transaction whose commit was acknowledged is completed with `--result commit`, and aborted only with
`--lose-acknowledged-data`. As in the automatic abort, a live transaction is refused, and so is one whose epoch may be
used again.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

from txnwatch.cli.command_origin import origin_of
from txnwatch.cli.compose import searcher_of
from txnwatch.cli.events_access import add_publishing_flags, operator_name, publishing, topic_of
from txnwatch.cli.explain_replicas import because_of
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
from txnwatch.cli.output import REFUSED, CommandAnswer, Line, Name, row_of, write
from txnwatch.sinks.abort.run_abort import ManualAbort, OperatorsTopic
from txnwatch.state.abort.rules import RULE_OF_REFUSAL, Refused
from txnwatch.state.evidence.screening import Search
from txnwatch.state.incidents.by_hand import ManualTarget
from txnwatch.state.model.errors import ConfigError
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.incident import ActionResult, ExpectedOutcome, IncidentEvent, Refusal, start_of
from txnwatch.state.model.values import Offset, ProducerEpoch, ProducerId, TopicPartition
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.state.telling.commands import Origin, fence_owner
from txnwatch.state.telling.renderings import sentences
from txnwatch.state.telling.statements import StatementKind, tell
from txnwatch.state.text import cut
from txnwatch.streaming.admin.replicas import blocked_of
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.hidden_topics import why_not_shown

# Connects `txnwatch abort` to a cluster and to its events topic; state/incidents/by_hand.py has the abort.

_TIMEOUT_S = 10.0
_BETWEEN_READS_S = 1.0
Publishing = Callable[[], AbstractContextManager[OperatorsTopic]]


@contextlib.contextmanager
def _abort_on_cluster(
    parsed: argparse.Namespace, target: ManualTarget
) -> Iterator[tuple[ManualAbort, Publishing, Callable[[], str]]]:
    """Connects with the connection flags; also returns what opens the events topic, and what tells of its replicas."""
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
        yield (
            abort,
            partial(publishing, parsed, cluster, options, events, "abort"),
            lambda: because_of(blocked_of(cluster, [target.partition])),
        )


def _search(
    cluster: Cluster,
    foreign_topics: str | None,
    partition: TopicPartition,
    is_wanted: Callable[[SpanCandidate], bool],
) -> Search:
    cluster.refresh()
    # A hang has no threshold.
    return searcher_of(cluster, DetectionPolicy(), foreign_topics).search([partition], is_wanted)


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
_LOSS_BY_COMMIT = "Its commit is proven: its marker is written, and consumers receive its data."


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
    expected_outcome: str
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
        "--lose-acknowledged-data",
        action="store_true",
        help="write an ABORT marker even if the commit is proven",
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
    would be written.
    """
    target = ManualTarget(
        partition=TopicPartition(parsed.topic, parsed.partition),
        start_offset=parsed.start_offset,
        producer_id=parsed.producer_id,
        is_commit=parsed.result == "commit",
        may_lose=parsed.lose_acknowledged_data,
    )
    with _abort_on_cluster(parsed, target) as (abort, publishing, blocked):
        incident, evidence, confirmation = abort.find()
        decision = abort.decide(evidence, confirmation)
        if isinstance(decision, Refused):
            return _refused(parsed, abort.origin, incident, decision)
        why = blocked()
        if why:
            _show(parsed, incident, "refused", f"nothing was written{why}")
            return REFUSED
        loss = _LOSS_BY_COMMIT if target.is_commit else _loss(incident)
        if parsed.dry_run:
            _show(parsed, incident, "dry_run", f"would write the {parsed.result.upper()} marker: {loss}")
            return 0
        if not parsed.yes and not confirmed([*_about(incident), f"{parsed.result}: {loss}"], "Write the marker?"):
            _show(parsed, incident, "refused", "not confirmed: nothing was written")
            return REFUSED
        with publishing() as topic:
            result = abort.end(incident, evidence, topic)
        if isinstance(result, Refused):
            return _refused(parsed, abort.origin, incident, result)
        _show(parsed, incident, result.result, result.detail or f"closed; last stable offset {result.stable_after}")
        return 0 if result.result is ActionResult.VERIFIED else 1


def _loss(incident: IncidentEvent) -> str:
    """What an ABORT marker does to the data, by the outcome."""
    said = sentences(tell(incident), StatementKind.OUTCOME, StatementKind.SAFE)
    is_unknown = incident.expected_outcome is ExpectedOutcome.UNKNOWN
    return " ".join([*said.values(), *([f"{incident_of_a_watcher(incident.incident_id)}."] if is_unknown else [])])


def _refused(parsed: argparse.Namespace, origin: Origin, incident: IncidentEvent, refused: Refused) -> int:
    advice = RULE_OF_REFUSAL[refused.refusal].what_to_do
    if refused.refusal is Refusal.EPOCH_MAY_BE_REUSED and incident.transactional_id is not None:
        command = fence_owner(origin, incident, incident.transactional_id)
        advice = f"restart its application, or run: {command}"
    if refused.refusal is Refusal.OUTCOME_WAS_COMMIT:
        advice += " (--lose-acknowledged-data allows it)"
    _show(parsed, incident, f"refused ({refused.refusal})", f"{refused.detail}; {advice}")
    return REFUSED


def _show(parsed: argparse.Namespace, incident: IncidentEvent, result: str, detail: str) -> None:
    """Writes the result row, as text or JSON."""
    row = row_of(Decided, incident, result=result, detail=detail)
    write(CommandAnswer("abort", incident.cluster_id, Decided, [row]), parsed.format, is_wide=parsed.wide)


def _about(incident: IncidentEvent) -> Iterator[str]:
    yield (
        f"{start_of(incident).place}: producer id {incident.producer_id}, epoch {incident.producer_epoch}, "
        f"transactional id {cut(incident.transactional_id or 'unknown')}, {incident.reason}, "
        f"expected outcome {incident.expected_outcome}"
    )
    if incident.owner is not None:
        yield f"owner: {incident.owner.whom_to_call}"
