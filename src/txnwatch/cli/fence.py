"""`txnwatch fence`: raises the producer epoch of a transactional id, so that a transaction that hangs can be ended.

An abort is refused while the id may still use the epoch of the data (`epoch_may_be_reused`). A restart of the
application raises the epoch; this command does the same where the application is gone. It shows what it ends, asks, and
reads the id again afterwards. It works from Kafka 2.5 on.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from txnwatch.cli.one_shot import add_connection_flags, add_output_flags, confirmed, epoch, id64, kafka_text, origin_of
from txnwatch.cli.output import CLEAN, FAILURE, REFUSED, CommandAnswer, Line, write
from txnwatch.cluster_connection import options_of
from txnwatch.owners.id_shapes import taken_apart
from txnwatch.state.abort.fencing import (
    FenceNext,
    FenceStep,
    ProducerIdentity,
    consequence,
    expected_in,
    identity_of,
    is_as_named,
    is_fenced,
    next_step,
    why_not,
)
from txnwatch.state.incidents.event_builder import Origin, explain_id
from txnwatch.state.incidents.naming import advice_about
from txnwatch.state.model.errors import BrokerError, TxnwatchError
from txnwatch.state.model.ownership import ADVICE_MEANS, Subject
from txnwatch.state.model.transaction import (
    DescribedTransaction,
    NotDescribed,
    TransactionDescription,
    TransactionState,
)
from txnwatch.state.model.values import BrokerId, ErrorCode, Problem, ProducerEpoch, ProducerId
from txnwatch.streaming.admin.transactions import ClusterAdmin, init_producer_id
from txnwatch.streaming.client.cluster import Cluster

_TIMEOUT_S = 10.0
_WAIT_S = 30.0  # a coordinator writes the markers of a transaction within milliseconds, if it can
_PAUSE_S = 0.25

# By the last step: the result, and the exit code. After the time for a fence has passed, the last step is to wait.
_RESULTS = {
    FenceStep.DONE: ("fenced", CLEAN),
    FenceStep.REFUSE: ("refused", REFUSED),
    FenceStep.WAIT: ("failed", FAILURE),
}


@dataclass(frozen=True, slots=True)
class FencedRow:
    """The result row: the id as it was found, the fence, and what the id has afterwards."""

    transactional_id: str
    coordinator_id: BrokerId
    transaction_state: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch | None
    result: str
    detail: Line


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse's private type
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "fence",
        help="fence the client of a transactional id, before an abort",
        description="Sends InitProducerId for a transactional id: its application can write nothing more until it "
        "starts again, and its open transaction is aborted. Shows what it ends, and asks.",
    )
    add_connection_flags(parser)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("id", nargs="?", type=kafka_text, metavar="ID", help="the id whose client is fenced")
    which.add_argument("--transactional-id", type=kafka_text, metavar="ID", help="the same, also if it begins with -")
    parser.add_argument("--producer-id", type=id64, metavar="ID", help="fence only this producer id of it")
    parser.add_argument(
        "--producer-epoch",
        type=epoch,
        metavar="EPOCH",
        help="fence only this epoch of it; with a higher one nothing is sent, and the exit code is 0",
    )
    parser.add_argument("--dry-run", action="store_true", help="show what a fence ends, and send nothing")
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    add_output_flags(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Fences the id; exit code 0 if it has a higher epoch and no open transaction of the one before.

    5 if it was refused: by the operator, by the coordinator, or because the id has changed. Else 1. With --dry-run: 0
    if InitProducerId would be sent.
    """
    options = options_of(parsed.bootstrap_server, parsed.command_config)
    with contextlib.closing(Cluster(options.bootstrap, options.security, timeout_s=_TIMEOUT_S)) as cluster:
        cluster.refresh()
        fence = Fence(cluster, parsed.id or parsed.transactional_id)
        found, before = fence.look()
        effect = consequence(found)
        if is_fenced(found, parsed.producer_id, parsed.producer_epoch):
            result, detail, code = "fenced_before", f"it has {before} already: nothing was sent", CLEAN
        elif not is_as_named(found, parsed.producer_epoch):
            expected = f"expected epoch {parsed.producer_epoch} or a higher one, found {before}"
            result, detail, code = "refused", f"{expected}: nothing was sent", REFUSED
        elif parsed.dry_run:
            result, detail, code = "dry_run", f"would send InitProducerId: {effect}", CLEAN
        elif not parsed.yes and not confirmed(what_it_ends(found, before, effect), "Fence it?"):
            result, detail, code = "refused", "not confirmed: nothing was sent", REFUSED
        else:
            ended = fence.carry_out(found, origin_of(cluster, parsed))
            result, code = _RESULTS[ended.step]
            detail = ended.why
        row = FencedRow(
            transactional_id=found.transactional_id,
            coordinator_id=found.coordinator,
            transaction_state=str(found.state),
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            result=result,
            detail=detail,
        )
        write(CommandAnswer("fence", cluster.known.cluster_id, FencedRow, [row]), parsed.format, is_wide=parsed.wide)
    return code


class Fence:
    """The fence of one id; state/abort/fencing.py decides each step."""

    def __init__(self, cluster: Cluster, transactional_id: str) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._admin = ClusterAdmin(cluster)

    def look(self) -> tuple[DescribedTransaction, ProducerIdentity]:
        """The id and what would be fenced.

        Raises:
            BrokerError: its coordinator does not describe it.
            TxnwatchError: there is nothing to fence.
        """
        found = self._described()
        why = why_not(found)
        if why is not None:
            error = BrokerError if isinstance(found, NotDescribed) else TxnwatchError
            raise error(f"transactional id {self._id!r}: {why}")
        assert isinstance(found, DescribedTransaction)
        before = identity_of(found)
        assert before is not None
        return found, before

    def carry_out(self, before: DescribedTransaction, origin: Origin) -> FenceNext:
        """Sends InitProducerId once, and waits until the id shows its effect; the last step, and why."""
        is_sent, problem = False, None
        until_s = time.monotonic() + _WAIT_S
        while True:
            now = self._described()
            step = next_step(before, now, is_sent=is_sent)
            if step.step is FenceStep.SEND and isinstance(now, DescribedTransaction):
                problem = init_producer_id(self._cluster, self._id, now.timeout_ms, expected_in(now))
                is_sent = True
                if problem is not None and _is_final(problem):
                    return FenceNext(FenceStep.REFUSE, f"its coordinator refuses InitProducerId: {problem}")
                continue
            if step.step in {FenceStep.DONE, FenceStep.REFUSE}:
                return step
            if time.monotonic() > until_s:
                answered = f"; InitProducerId was answered with: {problem}" if problem is not None else ""
                advice = f"see: {explain_id(origin, self._id)}"
                return step._replace(why=f"{step.why} after {_WAIT_S:.0f} s{answered}; {advice}")
            time.sleep(_PAUSE_S)

    def _described(self) -> TransactionDescription:
        return self._admin.describe_transactions([self._id])[self._id]


def _is_final(problem: Problem) -> bool:
    """Whether the coordinator has refused the request. Without its code it may have been carried out."""
    return problem.code is not None and problem.code != ErrorCode.CONCURRENT_TRANSACTIONS


def what_it_ends(found: DescribedTransaction, before: ProducerIdentity, effect: str) -> Iterator[str]:
    """The lines that are shown before the question."""
    yield f"transactional id {found.transactional_id}: {found.state}, {before}"
    yield f"fence: {effect}."
    topics = frozenset(partition.topic for partition in found.partitions)
    advice = advice_about(taken_apart(Subject(found.transactional_id, topics=topics)))
    if advice is not None and found.state is TransactionState.ONGOING:
        yield ADVICE_MEANS[advice]
