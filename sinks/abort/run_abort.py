"""The automatic abort of one watch: carries out its plans, and holds the lease that says which instance may act.

Apart: it needs the ledger and librdkafka, and sink_set.py composes it with what else a watch publishes.

The member of a consumer group that has partition 0 of the events topic may act. The group's coordinator assigns a
partition to one member. A member's own view may be outdated: a process that was stopped for a minute does not know that
another member has the partition now. So it commits an offset right before it acts: the coordinator accepts that only
from a member of the current generation.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.abort.case import AbortPolicy
from txnwatch.state.incidents.remediation import AutoAbort
from txnwatch.state.incidents.wanted import FreshReads, HoldLease, LeaseAnswer, Say, Wanted, Way
from txnwatch.state.model.ports import Lease, Log
from txnwatch.state.model.values import DurationMs, TimestampMs, lease_group

SESSION_MS = 10_000
_MOST_POLLS = 100


class GroupLease:
    """A Lease over a consumer group."""

    problem: str | None = None

    def __init__(self, client_config: Mapping[str, Any], topic: str, cluster_id: str) -> None:
        self._topic, self._group = topic, lease_group(cluster_id)
        self._has_it = False
        self._polled_s = 0.0
        self._consumer = Consumer(
            {
                **client_config,
                "log_level": 2,
                "client.id": "txnwatch-abort",
                "group.id": self._group,
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
                "session.timeout.ms": SESSION_MS,
                "socket.timeout.ms": SESSION_MS,
                "partition.assignment.strategy": "range",
            }
        )
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._gone, on_lost=self._gone)

    def is_held(self) -> bool:
        """See Lease. It also polls, to stay in the group; the records are ignored."""
        for _ in range(_MOST_POLLS):
            try:
                message = self._consumer.poll(0)
                if message is None:
                    break
                self._see(message)
            except KafkaException:
                self._has_it = False
                break
        was_away = self._polled_s and time.monotonic() - self._polled_s > SESSION_MS / 1000
        self._polled_s = time.monotonic()
        return self._has_it and not was_away

    def is_held_now(self) -> bool:
        """See Lease."""
        if not self._has_it:
            return False
        try:
            self._consumer.commit(offsets=[TopicPartition(self._topic, 0, 0)], asynchronous=False)
        except KafkaException:
            return False
        return self._has_it

    def close(self) -> None:
        """See Lease."""
        self._has_it = False
        self._consumer.close()

    def _see(self, message: Message) -> None:
        error = message.error()
        if error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            self.problem = f"the right READ on the group {self._group} is missing"

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.problem = None
        self._has_it = any(partition.partition == 0 for partition in partitions)
        consumer.assign(partitions)
        consumer.pause(partitions)

    def _gone(self, _: Consumer, __: list[TopicPartition]) -> None:
        self._has_it = False


_LOG = logging.getLogger("txnwatch.abort")


@dataclass(slots=True)
class RunningAbort:
    """The automatic abort of one watch.

    Attributes:
        lease: None if the mode is off.
        log: receives messages for the operator that are not events.
        abort: what decides.
    """

    mode: InitVar[str]
    policy: InitVar[AbortPolicy]
    cooldown_ms: InitVar[DurationMs]
    ledger: RunningLedger
    lease: Lease | None
    instance: InitVar[str]
    now_ms: Callable[[], TimestampMs]
    log: Log = _LOG
    abort: AutoAbort = field(init=False)
    _reads: FreshReads = field(init=False)

    def __post_init__(self, mode: str, policy: AbortPolicy, cooldown_ms: DurationMs, instance: str) -> None:
        self.abort = AutoAbort(mode, policy, cooldown_ms, self.ledger.ledger, instance)
        ways: dict[type[Wanted[Any]], Way] = {**self.ledger.ways(), HoldLease: self._held, Say: self._say}
        self._reads = FreshReads(self.ledger.admin, self.now_ms, ways)

    @property
    def counts(self) -> Counter[str]:
        """Decisions, for the metrics."""
        return self.abort.counts

    def recover(self) -> None:
        """Publishes the results of markers that were announced without one; before each batch of the ledger."""
        self._reads.run(self.abort.recover())

    def on_batch(self) -> None:
        """Decides about every open incident that is due; after each batch of the ledger."""
        self._reads.run(self.abort.on_batch())

    def close(self) -> None:
        """Releases the lease."""
        if self.lease is not None:
            self.lease.close()

    def _held(self, wanted: HoldLease) -> LeaseAnswer:
        if self.lease is None:
            return LeaseAnswer(is_held=False, problem=None)
        is_held = self.lease.is_held_now() if wanted.is_certain else self.lease.is_held()
        return LeaseAnswer(is_held, self.lease.problem)

    def _say(self, wanted: Say) -> None:
        if wanted.is_warning:
            self.log.warning(wanted.text)
        else:
            self.log.info(wanted.text)
