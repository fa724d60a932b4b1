"""The lease of the instance that speaks, and that of the speaker that tells whole transactions.

A member of a consumer group has a lease: the one to which the group's coordinator has assigned partition 0 of the
events topic. The assignor is sticky, so a newcomer does not take the lease from a member that is well, if the topic has
one partition. Each choice of topics has a group of its own (`lease_group`). The speakers of a cluster have one more
(`transactions_group`).

Law: a member's own view may be outdated. A process that was stopped for a minute does not know that another member has
the partition now. So after a pause that is as long as the session, and right before a marker, it commits an offset: the
coordinator accepts that only from a member of the current generation. Until it has accepted one, who has the lease is
unknown.

Apart: sink_set.py composes the sinks, and is the only one that makes a lease.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Assigned

from txnwatch.state.incidents.speaking import SESSION_MS, SILENT, SpeakerRole, Speaking
from txnwatch.state.model.ports import Lease, LeaseView
from txnwatch.state.model.values import LEASE_CLIENT, TimestampMs
from txnwatch.state.text import Said

LONGEST_BATCH_MS: Final = 60_000  # a member that does not come for so long leaves the group
HEARTBEAT_MS: Final = 1_000  # a member learns with its next heartbeat that another one has left
_BACK_S: Final = 6.0  # a group without members waits for 3 s before it gives the lease to the first one
_MOST_POLLS: Final = 100


class GroupLease:
    """A Lease over a consumer group."""

    problem: str | None = None
    losses = 0

    def __init__(self, client_config: Mapping[str, Any], topic: str, group: str) -> None:
        self._topic, self._group = topic, group
        self._has_it = self._is_doubted = False
        self._polled_s = time.monotonic()
        self._consumer = Consumer(
            {
                **client_config,
                "log_level": 2,
                "client.id": LEASE_CLIENT,
                "group.id": self._group,
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "max.poll.interval.ms": LONGEST_BATCH_MS,
                "socket.timeout.ms": SESSION_MS,
                "partition.assignment.strategy": "cooperative-sticky",
            }
        )
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._gone, on_lost=self._gone)

    def view(self) -> LeaseView:
        """See Lease. It polls, to stay in the group; the records are ignored.

        After a micro-batch that took so long that this member has left the group, it waits for the lease once: else an
        instance whose micro-batches are all that long would never have it.
        """
        had_it, was_away = self._has_it, time.monotonic() - self._polled_s > SESSION_MS / 1000
        try:
            self._poll()
            until_s = time.monotonic() + _BACK_S
            while was_away and had_it and not self._has_it and time.monotonic() < until_s:
                self._poll(0.1)
            is_member = bool(self._consumer.memberid())
        except KafkaException:
            was_away, is_member = True, False
        self._polled_s = time.monotonic()
        self._is_doubted = self._has_it and (was_away or self._is_doubted) and not self.is_held_now()
        if self._is_doubted or not is_member:
            return LeaseView.UNKNOWN
        return LeaseView.HELD if self._has_it else LeaseView.ANOTHERS

    def _poll(self, timeout_s: float = 0.0) -> None:
        for _ in range(_MOST_POLLS):
            message = self._consumer.poll(timeout_s)
            if message is None:
                return
            self._see(message)

    def is_held_now(self) -> bool:
        """See Lease."""
        if not self._has_it:
            return False
        try:
            self._consumer.commit(offsets=[Assigned(self._topic, 0, 0)], asynchronous=False)
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

    def _assigned(self, consumer: Consumer, partitions: list[Assigned]) -> None:
        self.problem = None
        self._has_it = self._has_it or any(partition.partition == 0 for partition in partitions)
        consumer.incremental_assign(partitions)
        consumer.pause(partitions)

    def _gone(self, consumer: Consumer, partitions: list[Assigned]) -> None:
        if any(partition.partition == 0 for partition in partitions):
            self._has_it = False
            self.losses += 1
        consumer.incremental_unassign(partitions)


class SpeakerGate:
    """What this instance publishes now, for the ledger; it knows the time by a clock that is never set."""

    def __init__(
        self,
        lease: Lease,
        ask_for_transactions: Callable[[], Lease],
        report: Callable[[str], None],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`ask_for_transactions` joins the group of the speakers, and returns its lease."""
        self._lease, self._ask_for_transactions = lease, ask_for_transactions
        self._report, self._clock_s = report, clock_s
        self._speaking, self._said = Speaking(), Said[str]()
        self._telling: tuple[Lease, Speaking] | None = None
        self._past_losses = 0  # of the leases that are closed

    def role(self) -> SpeakerRole:
        """What this instance publishes now; to be asked before each publication."""
        speaks = self._look(self._lease, self._speaking, "events")
        if not speaks:
            self.close()
            return SILENT._replace(silences=self._speaking.silences)
        if self._telling is None:
            self._telling = self._ask_for_transactions(), Speaking()
        lease, telling = self._telling
        tells_transactions = self._look(lease, telling, "incidents about whole transactions")
        return SpeakerRole(
            speaks,
            tells_transactions,
            tenure=self._past_losses + self._lease.losses + lease.losses + self._speaking.doubts,
            is_alone=self._speaking.is_alone,
            is_only_teller=telling.is_alone,
            silences=self._speaking.silences,
        )

    def hear(self) -> None:
        """Takes that another instance with the same topics has just said that it speaks."""
        self._speaking.hear(self._now_ms())

    def close(self) -> None:
        """Leaves the group of the speakers."""
        if self._telling is not None:
            self._past_losses += self._telling[0].losses + 1
            self._telling[0].close()
            self._telling = None

    def _look(self, lease: Lease, speaking: Speaking, what: str) -> bool:
        speaks, problem = speaking.look(lease.view(), self._now_ms()), lease.problem
        if problem is None:
            self._said.is_over(what)
        elif self._said.is_new(what, problem):
            self._report(f"{problem}: this instance publishes {what} only while it hears no other one for a minute")
        return speaks

    def _now_ms(self) -> TimestampMs:
        return TimestampMs(int(self._clock_s() * 1000))
