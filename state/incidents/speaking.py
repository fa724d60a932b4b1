"""Which of several instances speaks: the one that publishes events, to the topic, to Redis and by push. Pure.

The members of one consumer group share a lease (sinks/incidents/group_lease.py), and the one that has it speaks. All
others watch, keep what they find, serve the page and the metrics, and publish nothing.

Law:
  * What the group's coordinator answers decides. Heartbeats only decide while it does not answer.
  * While it does not answer, the last speaker goes on, and the others are silent as long as they hear a speaker. If an
    instance hears none for a minute, it speaks. So a fault of the coordinator silences nobody for longer than that, and
    two instances can speak only while it lasts.
  * An instance knows that another one has spoken if it has heard a speaker, and was silent for longer than the only
    instance can be. What the other one told need not be told again. Neither sign is enough: a heartbeat may be forged,
    and silence has other reasons.
  * An instance that was stopped for longer than the session of the group has lost the lease, whatever it knows itself.
    It speaks again once the coordinator has answered.
  * An incident about a whole transaction belongs to no partition: every watcher of a cluster finds it, whatever topics
    it watches. A second lease, for which only speakers ask, decides which of them tells it. Heartbeats decide nothing
    about it: while the coordinator of this lease does not answer, the last one goes on, and after a minute each tells.
  * All times are of a clock of this process that is never set (a monotonic one): no two clocks are compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from txnwatch.state.model.ports import LeaseView
from txnwatch.state.model.values import NO_TIME, DurationMs, TimestampMs

SESSION_MS: Final = DurationMs(7_000)  # with a rebalance and a micro-batch, nobody speaks for 10 s at most
UNHEARD_MS: Final = DurationMs(60_000)
LONGEST_SILENCE_MS: Final = DurationMs(UNHEARD_MS + SESSION_MS)  # of the only instance: it looks once in a session


class SpeakerRole(NamedTuple):
    """What an instance publishes now.

    Attributes:
        speaks: whether it publishes anything.
        tells_transactions: whether it publishes incidents about whole transactions, too.
        tenure: changes whenever another instance may have spoken in between.
        is_alone: whether the coordinator has said that no other instance speaks.
        is_only_teller: whether the coordinator has said that no other one publishes incidents about whole transactions.
        silences: it rises with each look while another instance speaks, and with the look after that.
    """

    speaks: bool
    tells_transactions: bool
    tenure: int = 0
    is_alone: bool = True
    is_only_teller: bool = True
    silences: int = 0


SILENT: Final = SpeakerRole(speaks=False, tells_transactions=False)
WHOLE: Final = SpeakerRole(speaks=True, tells_transactions=True)


@dataclass(slots=True)
class Speaking:
    """Whether this instance has one of the two leases, or acts as if it had.

    Attributes:
        speaks: the last answer.
        is_alone: whether that is what the coordinator has answered.
        doubts: how often it has answered again while this instance spoke.
        silences: see SpeakerRole.
    """

    speaks: bool = False
    is_alone: bool = True
    doubts: int = 0
    silences: int = 0
    _silent_ms: int = 0
    _has_heard: bool = False  # another speaker, since this instance fell silent
    _looked_ms: TimestampMs | None = None
    _heard_ms: TimestampMs | None = None

    def hear(self, now_ms: TimestampMs) -> None:
        """Takes that another instance, which asks for the same lease, has just said that it speaks."""
        self._heard_ms = now_ms
        self._has_heard = not self.speaks

    def look(self, lease: LeaseView, now_ms: TimestampMs) -> bool:
        """Whether this instance speaks now; to be asked before each publication, and at least once in a session.

        After a pause that is longer than a session, `lease` must be an answer to a request of this moment.
        """
        pause_ms = now_ms - self._looked_ms if self._looked_ms is not None else NO_TIME
        was_stopped = self._looked_ms is None or pause_ms > SESSION_MS
        # After a pause, one that spoke has lost the lease. One that was silent has looked too seldom to know more.
        self._silent_ms += pause_ms if self.speaks else min(pause_ms, SESSION_MS)
        self._looked_ms = now_ms
        was_in_doubt, self.is_alone = self.speaks and not self.is_alone, lease is not LeaseView.UNKNOWN
        self.doubts += self.is_alone and was_in_doubt
        if lease is not LeaseView.UNKNOWN:
            self.speaks, self._heard_ms = lease is LeaseView.HELD, now_ms
        elif was_stopped:
            self.speaks, self._heard_ms = False, now_ms
        elif not self.speaks:
            self.speaks = self._heard_ms is None or now_ms - self._heard_ms >= UNHEARD_MS
        self.silences += self._has_heard and self._silent_ms > LONGEST_SILENCE_MS
        if self.speaks:
            self._silent_ms, self._has_heard = 0, False
        return self.speaks
