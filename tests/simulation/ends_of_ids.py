"""Past ends and their markers against the truth: what `explain` says about each transaction of a world, and by whom.

The world has clean failovers, appends that fail and stay, and brokers whose clocks differ by a little. A coordinator
that takes a log over sends its markers again. Nobody but coordinators writes a marker. Law: each transaction has one
end, with its true outcome; its cause allows who has ended it; and no marker is an administrator's, unless one
coordinator has sent it a second time behind late data.

A client with transaction.version 2 goes on under the epoch to which its coordinator has raised it (client.py), and a
client may start again before the timeout or after it. Coordinators abort at the timeout by their own clocks.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from simulation.coordinator import TWO_PHASE_MS, MarkerOnItsWay, Transaction
from simulation.encoding import LoggedValue, Mark
from simulation.end_oracle import OneTransaction, decision_in
from simulation.failed_appends import FAILED_APPEND
from simulation.partition import DataPartition
from simulation.world import Setting, World
from support.batches import a_marker
from txnwatch.state.evidence.past_ends import EndCause, PastEnd, ended_with, ends_on, past_ends
from txnwatch.state.model.incident import EndKind
from txnwatch.state.model.transaction import CoordinatorView, Marker, TransactionState
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.log.coordinator_log import LogRecord, history_of
from txnwatch.streaming.log.lookups import MarkersOfProducers
from txnwatch.streaming.wire.internal_topics import TransactionLogValue

CLIENT, TIMEOUT, FENCE = "its client", "the timeout", "an InitProducerId"
ALLOWS: dict[EndCause, set[str]] = {
    EndCause.CLIENT: {CLIENT},
    EndCause.CLIENT_ASKED: set(),  # no client of this world names its epoch
    EndCause.FENCE: {FENCE},
    EndCause.FENCE_UNANSWERED: {FENCE},
    EndCause.COORDINATOR: {TIMEOUT, FENCE},
    EndCause.TIMEOUT_OR_FENCE: {TIMEOUT, FENCE},
    EndCause.TIMEOUT_OR_ASKED: {TIMEOUT},
    EndCause.CLIENT_OR_TIMEOUT: {CLIENT, TIMEOUT, FENCE},
    EndCause.CLIENT_OR_FENCE: {CLIENT, FENCE},
    EndCause.CLIENT_OR_COORDINATOR: {CLIENT, TIMEOUT, FENCE},
    EndCause.UNKNOWN: {CLIENT, TIMEOUT, FENCE},
}
_STEPS, _LONG_MS, _APART_MS = 400, 61_000, (0, 4)
Past = Callable[[Sequence[CoordinatorView | None]], list[PastEnd]]
Ended = Callable[[Sequence[PastEnd], Marker, Sequence[Marker]], PastEnd | None]


@dataclass
class EndedWorld:
    """A world, and who has ended which of its transactions.

    Attributes:
        ended: the decisions that coordinators have in memory last, and whose they are.
        stamps_ms: the time of the leader's clock at each marker.
    """

    world: World
    past: Past
    ended: dict[OneTransaction, tuple[EndKind, str]] = field(default_factory=dict)
    stamps_ms: dict[tuple[TopicPartition, int], int] = field(default_factory=dict)
    _authors: dict[int, tuple[TransactionLogValue, str]] = field(default_factory=dict)
    _asking: str = TIMEOUT

    def __post_init__(self) -> None:
        world, coordinators = self.world, self.world.coordinators
        init, end, fence, enter, deliver = (
            coordinators.init,
            coordinators.end,
            coordinators.fence,
            coordinators.enter,
            world.deliver_marker,
        )

        def initialised(name: str, log: int, version: int, timeout_ms: int) -> None:
            self._asking = FENCE
            init(name, log, version, timeout_ms)
            self._asking = TIMEOUT

        def ended(known: Transaction, *, commit: bool) -> None:
            end(known, commit=commit)
            self._appended(known, CLIENT)

        def fenced(known: Transaction) -> None:
            if self._asking == FENCE or self._is_due(known):
                fence(known)
                self._appended(known, self._asking)

        def entered(known: Transaction, value: TransactionLogValue | None) -> None:
            decision = decision_in(known, value)
            if decision is not None:
                self.ended[decision[0]] = decision[1], self._authors[id(value)][1]
            enter(known, value)

        def delivered(marker: MarkerOnItsWay) -> None:
            at = world.data.get(marker.partition)
            offset = at.end if at is not None else -1
            deliver(marker)
            if at is not None and at.end > offset:
                self.stamps_ms[at.partition, offset] = world.clocks.stamp_ms(at)

        coordinators.init, coordinators.end, coordinators.fence = initialised, ended, fenced  # type: ignore[method-assign]
        coordinators.enter, world.deliver_marker = entered, delivered  # type: ignore[method-assign]

    def _appended(self, known: Transaction, by: str) -> None:
        value = known.pending.value if known.pending is not None else None
        if value is not None and decision_in(known, value) is not None:
            self._authors.setdefault(id(value), (value, by))

    def _is_due(self, known: Transaction) -> bool:
        """Whether the timeout has passed by the coordinator's own clock."""
        value = known.value
        if value is None or value.start_ms is None or value.transaction_timeout_ms == TWO_PHASE_MS:
            return False
        open_ms = self.world.clocks.stamp_ms(self.world.logs[known.log]) - value.start_ms
        return value.state is TransactionState.ONGOING and open_ms > value.transaction_timeout_ms

    def come_to_rest(self) -> None:
        """What is decided is completed; nothing else happens."""
        world = self.world
        world.is_healing = True
        for _ in range(20):
            world.replicate_all()
            for marker in [world.coordinators.markers.pop() for _ in range(len(world.coordinators.markers))]:
                world.deliver_marker(marker)
            world.complete()

    def history(self, name: str, log: int) -> list[PastEnd]:
        """What the log shows of an id."""
        found = [
            LogRecord(log, one.offset, one.body.timestamp_ms, name, one.body.value, one.leader_epoch)
            for one in self.world.logs[log].entries
            if isinstance(one.body, LoggedValue) and one.body.transactional_id == name
        ]
        return self.past(history_of(found))

    def markers(self, at: DataPartition) -> dict[int, list[Marker]]:
        """The markers of each producer on a partition, as `explain` reads them."""
        fold = MarkersOfProducers(0, at.end)
        for one in at.entries:
            body = one.body
            if not isinstance(body, Mark):
                fold.feed(one.encoded())
                continue
            fold.feed(
                a_marker(
                    one.offset,
                    commit=body.commit,
                    producer_id=body.producer_id,
                    producer_epoch=body.producer_epoch,
                    coordinator_epoch=body.coordinator_epoch,
                    leader_epoch=one.leader_epoch,
                    timestamp=self.stamps_ms[at.partition, one.offset],
                )
            )
        return fold.found


@dataclass
class EndsOutcome:
    """The result of a seed."""

    problems: list[str]
    seen: Counter[str]


def run_ends(seed: int, past: Past = past_ends, ended: Ended = ended_with) -> EndsOutcome:
    """Runs one world, and compares all that `explain` says about its ends with the truth."""
    rng = random.Random(seed)
    faults = frozenset(name for name in (FAILED_APPEND, "stray write") if rng.random() < 0.5)
    world = World(Setting(faults=faults, failing=1.0), random.Random(seed + 1))
    apart_ms = rng.choice(_APART_MS)
    world.clocks.ahead_ms = {broker: rng.randint(-apart_ms, apart_ms) for broker in world.clocks.ahead_ms}
    truth = EndedWorld(world, past)
    for _ in range(_STEPS):
        world.step()
        if rng.random() < 0.02:
            world.leader_moves()
        if rng.random() < 0.01:
            world.wait(_LONG_MS)
    truth.come_to_rest()
    problems = [*_false_ends(truth), *_markers_by_hand(truth, ended)]
    return EndsOutcome(problems, world.seen)


def _false_ends(truth: EndedWorld) -> Iterator[str]:
    shown: Counter[OneTransaction] = Counter()
    for client in truth.world.clients[: truth.world.setting.clients]:
        for end in truth.history(client.transactional_id, client.log):
            known = end.decided
            one = next((this for this in truth.ended if _is_end_of(end, this, client.transactional_id)), None)
            if one is None:
                if end.complete_ms is not None:
                    yield f"FALSE END: {known} has not ended"
                continue
            shown[one] += 1
            how, by = truth.ended[one]
            truth.world.seen[f"{end.cause} by {by}"] += 1
            if (how is EndKind.COMMITTED) is not end.is_commit or by not in ALLOWS[end.cause]:
                yield f"FALSE END: {one} was {how} by {by}, and not {known.state} by {end.cause}"
    yield from (f"FALSE END: {one} has {shown[one]} ends" for one in truth.ended if shown[one] != 1)


def _is_end_of(end: PastEnd, one: OneTransaction, name: str) -> bool:
    return (name, end.decided.start_ms) == (one.transactional_id, one.start_ms)


def _markers_by_hand(truth: EndedWorld, ended: Ended) -> Iterator[str]:
    histories = {
        client.transactional_id: truth.history(client.transactional_id, client.log) for client in truth.world.clients
    }
    names = {one.producer_id: one.transactional_id for one in truth.ended}
    for at in truth.world.data.values():
        for producer_id, markers in truth.markers(at).items():
            ends = ends_on(histories[names[producer_id]], at.partition)
            for count in range(1, len(markers) + 1):
                *earlier, marker = markers[:count]
                own = ended(ends, marker, earlier)
                truth.world.seen["marker of an end"] += own is not None
                if own is None and any(_looks_like(one, marker) for one in earlier):
                    truth.world.seen["marker that may be by hand"] += 1
                elif own is None:
                    yield f"NOBODY'S MARKER: the last of {markers[:count]} of {producer_id} on {at.partition}"


def _looks_like(earlier: Marker, marker: Marker) -> bool:
    """Whether an administrator would have written the same, behind late data: one coordinator has sent it twice."""
    return replace(earlier, offset=marker.offset, timestamp_ms=marker.timestamp_ms) == marker
