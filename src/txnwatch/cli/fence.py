"""`txnwatch fence`: raises the producer epoch of a transactional id, so that a transaction that hangs can be ended.

An abort is refused while the id may still use the epoch of the data (`epoch_may_be_reused`). A restart of the
application raises the epoch; this command does the same where the application is gone. It shows what it ends, asks, and
reads the id again afterwards. With `--start-offset` it does so only while that transaction hangs. The open incidents of
a watch about the id get the fence as their next event. It works from Kafka 2.5 on.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from txnwatch.cli.command_origin import origin_of
from txnwatch.cli.events_access import add_publishing_flags, operator_name, publishing, topic_of
from txnwatch.cli.explain_replicas import because_of, log_blocked
from txnwatch.cli.one_shot import (
    add_connection_flags,
    add_output_flags,
    add_partition_flags,
    add_write_flags,
    confirmed,
    epoch,
    id64,
    kafka_text,
    options_of,
)
from txnwatch.cli.output import CLEAN, FAILURE, REFUSED, CommandAnswer, Line, Name, write
from txnwatch.cli.past_ids import advice_by_log
from txnwatch.owners.id_shapes import taken_apart
from txnwatch.sinks.abort.run_abort import KafkaOperatorsTopic, NoTopic
from txnwatch.state.abort.fencing import (
    SHOW_MAXIMUM,
    FenceNext,
    FenceStep,
    consequence,
    expected_in,
    fenced,
    fencing,
    identity_of,
    is_about,
    is_as_named,
    is_fenced,
    is_over,
    is_too_long,
    last_door,
    next_step,
    timeout_means,
    timeouts_to_name,
    why_not,
)
from txnwatch.state.incidents.event_builder import advice_about
from txnwatch.state.model.errors import BrokerError, ConfigError, SinkError, TxnwatchError
from txnwatch.state.model.incident import updated
from txnwatch.state.model.ownership import Advice, Subject
from txnwatch.state.model.transaction import (
    DescribedTransaction,
    NotDescribed,
    ProducerIdentity,
    TransactionDescription,
    TransactionState,
    UnknownTransactionalId,
)
from txnwatch.state.model.values import (
    BrokerId,
    DurationMs,
    ErrorCode,
    Problem,
    ProducerEpoch,
    ProducerId,
    SpanStart,
    TopicPartition,
)
from txnwatch.state.model.verdicts import is_two_phase
from txnwatch.state.telling.commands import Origin, explain_id
from txnwatch.state.telling.moved_ids import fence_text
from txnwatch.state.telling.statements import MAY_BE_PREPARED
from txnwatch.state.text import cut, quoted
from txnwatch.streaming.admin.kafka_settings import longest_timeout
from txnwatch.streaming.admin.replicas import blocked_of
from txnwatch.streaming.admin.transactions import ClusterAdmin, init_producer_id
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.coordinator_log import log_of, read_records_anywhere
from txnwatch.streaming.log.moved_records import moved_of

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

    transactional_id: Name
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
    add_partition_flags(parser, "fence only while a transaction is open on this topic", is_required=False)
    parser.add_argument("--start-offset", type=id64, metavar="OFFSET", help="first offset of that open transaction")
    add_write_flags(parser, "show what a fence ends, and send nothing")
    add_publishing_flags(parser)
    add_output_flags(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Fences the id; exit code 0 if it has a higher epoch and no open transaction of the one before.

    5 if it was refused: by the operator, by the coordinator, because the id has changed, or because the transaction
    that hung has ended. Else 1. With --dry-run: 0 if InitProducerId would be sent.

    Raises:
        ConfigError: only some of the flags of a place are given.
    """
    options, events, data = options_of(parsed.bootstrap_server, parsed.command_config), topic_of(parsed), _data(parsed)
    with contextlib.closing(Cluster(options.bootstrap, options.security, timeout_s=_TIMEOUT_S)) as cluster:
        cluster.refresh()
        fence = Fence(cluster, parsed.id or parsed.transactional_id, data)
        description = fence.look()
        if isinstance(description, UnknownTransactionalId):
            ended: FenceResult | None = FenceResult(
                "fenced_before", CLEAN, f"{fence.why_not(description)}: nothing was sent"
            )
            of_it = "unknown", parsed.producer_id, parsed.producer_epoch
        else:
            effect = fence.effect(description)
            ended = _without_a_fence(parsed, fence, description, effect)
            of_it = str(description.state), description.producer_id, description.producer_epoch
            if ended is None:
                with publishing(parsed, cluster, options, events, "fence") as topic:
                    last = fence.tell_and_carry_out(description, origin_of(cluster, parsed), topic)
                why = f"{last.why}: {effect}" if last.step is FenceStep.DONE else last.why
                ended = FenceResult(*_RESULTS[last.step], why)
        assert ended is not None
        row = FencedRow(description.transactional_id, description.coordinator, *of_it, ended.result, ended.detail)
        write(CommandAnswer("fence", cluster.known.cluster_id, FencedRow, [row]), parsed.format, is_wide=parsed.wide)
    return ended.code


class FenceResult(NamedTuple):
    """How the command ends."""

    result: str
    code: int
    detail: str


def _without_a_fence(
    parsed: argparse.Namespace, fence: Fence, described: DescribedTransaction, effect: str
) -> FenceResult | None:
    """How the command ends without a request; None if InitProducerId is sent."""
    before = identity_of(described)
    assert before is not None  # see Fence.look
    if is_fenced(described, parsed.producer_id, parsed.producer_epoch):
        return FenceResult("fenced_before", CLEAN, f"it has {before} already: nothing was sent")
    if not is_as_named(described, parsed.producer_epoch):
        expected = f"expected epoch {parsed.producer_epoch} or a higher one, found {before}"
        return FenceResult("refused", REFUSED, f"{expected}: nothing was sent")
    useless = fence.useless(described)
    if useless is not None:
        return useless
    if parsed.dry_run:
        return FenceResult("dry_run", CLEAN, f"would send InitProducerId: {effect}")
    if not parsed.yes and not confirmed(what_it_ends(described, before, effect), "Fence it?"):
        return FenceResult("refused", REFUSED, "not confirmed: nothing was sent")
    return fence.useless(described)  # the operator may have waited


class Fence:
    """The fence of one id; state/abort/fencing.py decides each step."""

    def __init__(self, cluster: Cluster, transactional_id: str, data: SpanStart | None) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._data = data
        self._admin = ClusterAdmin(cluster)

    def look(self) -> DescribedTransaction | UnknownTransactionalId:
        """The id, which has an epoch. Without an id a hang can be ended: there is nothing to fence before it.

        Raises:
            BrokerError: its coordinator does not describe it.
            TxnwatchError: there is nothing to fence.
        """
        description = self._described()
        why = self.why_not(description)
        if isinstance(description, UnknownTransactionalId) and self._data is not None:
            return description
        if why is not None:
            if isinstance(description, NotDescribed):
                blocked = because_of(log_blocked(self._cluster, self._id))
                raise BrokerError(f"transactional id {quoted(self._id)}: {why}{blocked}")
            raise TxnwatchError(f"transactional id {quoted(self._id)}: {why}")
        assert isinstance(description, DescribedTransaction)
        return description

    def why_not(self, description: TransactionDescription) -> str | None:
        """Why the id cannot be fenced at all; None if it can be."""
        if isinstance(description, UnknownTransactionalId):
            records, _ = read_records_anywhere(self._cluster, self._id)
            moved = moved_of(self._cluster, self._id, records)
            if moved is not None:
                return fence_text(moved)
        return why_not(description)

    def effect(self, described: DescribedTransaction) -> str:
        """What the fence does to the id and to its application, and what to know before."""
        longest = longest_timeout(self._cluster, described.coordinator)
        said = effect_of(described, longest, lambda advice: advice_by_log(self._cluster, advice, described).text)
        return f"{said}{because_of(blocked_of(self._cluster, described.partitions))}".removesuffix(".")

    def useless(self, described: DescribedTransaction) -> FenceResult | None:
        """How the command ends if nothing is worth sending; None if InitProducerId may be sent.

        Raises:
            BrokerError: the partition of the hang could not be read.
        """
        if self._is_unneeded():
            detail = "the transaction that hung has ended: no fence is needed, and nothing was sent"
            return FenceResult("refused", REFUSED, detail)
        waits_for = set(described.partitions) if described.is_ending else set()  # a fence waits for their markers
        if self._data is not None:
            waits_for.add(self._data.partition)  # the abort that follows would be refused
        blocked = [*log_blocked(self._cluster, self._id), *blocked_of(self._cluster, waits_for)]
        return FenceResult("refused", REFUSED, f"nothing was sent{because_of(blocked)}") if blocked else None

    def _is_unneeded(self) -> bool:
        """Whether the transaction for which the id is fenced is no longer open."""
        if self._data is None:
            return False
        reading = self._admin.read_partitions([self._data.partition])[self._data.partition]
        if reading.problem is not None:
            blocked = because_of(blocked_of(self._cluster, [self._data.partition]))
            raise BrokerError(f"{self._data.partition}: {reading.problem}: nothing was sent{blocked}")
        return is_over(reading, self._data)

    def tell_and_carry_out(
        self, before: DescribedTransaction, origin: Origin, topic: KafkaOperatorsTopic | NoTopic
    ) -> FenceNext:
        """The fence, announced on the open incidents about the id, and its result as their next event.

        Raises:
            SinkError: the announcement could not be published; nothing was sent.
        """
        identity = identity_of(before)
        assert identity is not None
        begun = fencing(operator_name(), wall_clock_ms(), identity)
        told = [
            updated(replace(event, action=begun), begun.at_ms)
            for event in topic.open_incidents(lambda event: is_about(event, origin.cluster_id, self._id, identity))
        ]
        for event in told:
            topic.publish(event)
        ended = self.carry_out(before, origin)
        now_ms = wall_clock_ms()
        try:
            for event in told:
                topic.publish(updated(replace(event, action=fenced(begun, ended)), now_ms))
        except SinkError as exc:
            return ended._replace(why=f"{ended.why}; but the event could not be delivered: {exc}")
        return ended

    def carry_out(self, before: DescribedTransaction, origin: Origin) -> FenceNext:
        """Sends InitProducerId once, and waits until the id shows its effect; the last step, and why."""
        is_sent, problem = False, None
        until_s = time.monotonic() + _WAIT_S
        while True:
            now = self._described()
            step = next_step(before, now, is_sent=is_sent)
            if step.step is FenceStep.SEND and isinstance(now, DescribedTransaction):
                problem = self._send(now)
                is_sent = True
                if problem is not None and _is_final(problem):
                    advice = f"; {SHOW_MAXIMUM}" if is_too_long(problem) else ""
                    return FenceNext(FenceStep.REFUSE, f"its coordinator refuses InitProducerId: {problem}{advice}")
                continue
            if step.step in {FenceStep.DONE, FenceStep.REFUSE}:
                return step
            if time.monotonic() > until_s:
                answered = f"; InitProducerId was answered with: {problem}" if problem is not None else ""
                advice = f"see: {explain_id(origin, self._id)}"
                # The first answer for an open transaction is always this one: its abort begins, so it is in Prepare*.
                is_refused = problem is not None and problem.code == ErrorCode.CONCURRENT_TRANSACTIONS
                blocked = because_of(blocked_of(self._cluster, before.partitions))
                if is_refused and isinstance(now, DescribedTransaction) and not now.state.is_prepare and not blocked:
                    advice = f"{last_door(log_of(self._cluster, self._id), now.coordinator)}; {advice}"
                return step._replace(why=f"{step.why} after {_WAIT_S:.0f} s{answered}; {advice}{blocked}")
            time.sleep(_PAUSE_S)

    def _send(self, now: DescribedTransaction) -> Problem | None:
        """The answer of its coordinator, to a timeout that it accepts if there is one."""
        problem: Problem | None = None
        for timeout_ms in timeouts_to_name(now, longest_timeout(self._cluster, now.coordinator)):
            problem = init_producer_id(self._cluster, self._id, timeout_ms, expected_in(now))
            if not is_too_long(problem):
                break
        return problem

    def _described(self) -> TransactionDescription:
        return self._admin.describe_transactions([self._id])[self._id]


def _is_final(problem: Problem) -> bool:
    """Whether the coordinator has refused the request. Without its code it may have been carried out."""
    return problem.code is not None and problem.code != ErrorCode.CONCURRENT_TRANSACTIONS


def effect_of(described: DescribedTransaction, longest: DurationMs | Problem, advise: Callable[[Advice], str]) -> str:
    """What a fence does, and what to know before; `longest` is the maximum of timeouts, `advise` has the text."""
    said = [consequence(described), timeout_means(described, longest)]
    if described.state is TransactionState.ONGOING:
        topics = frozenset(partition.topic for partition in described.partitions)
        advice = advice_about(taken_apart(Subject(described.transactional_id, topics=topics)))
        said += [MAY_BE_PREPARED if is_two_phase(described) else None, advise(advice) if advice is not None else None]
    return ". ".join(part.removesuffix(".") for part in said if part is not None)


def what_it_ends(described: DescribedTransaction, before: ProducerIdentity, effect: str) -> Iterator[str]:
    """The lines that are shown before the question."""
    yield f"transactional id {cut(described.transactional_id)}: {described.state}, {before}"
    yield f"fence: {effect}."


def _data(parsed: argparse.Namespace) -> SpanStart | None:
    """The open transaction for which the id is fenced; None without the flags of a place."""
    flags = {name: getattr(parsed, name) for name in ("topic", "partition", "start_offset", "producer_id")}
    place = [flags[name] for name in ("topic", "partition", "start_offset")]
    if all(value is None for value in place):
        return None
    missing = [f"--{name.replace('_', '-')}" for name, value in flags.items() if value is None]
    if missing:
        raise ConfigError(f"fence: --topic, --partition and --start-offset also need {', '.join(missing)}")
    return SpanStart(TopicPartition(parsed.topic, parsed.partition), parsed.producer_id, parsed.start_offset)
