"""The whole cluster: clients, coordinators, partitions, their faults, and the true state.

Law: one call of `step` is one thing that happens, chosen by the seed. A fault that is off is drawn and does nothing, so
a failing seed keeps failing while faults are taken away from it. The truth is recomputed after every step.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from simulation.client import Client
from simulation.clocks import WorldClocks
from simulation.coordinator import TIMEOUT_MS, TWO_PHASE_MS, Coordinators, MarkerOnItsWay
from simulation.encoding import Data, Mark
from simulation.failed_appends import FAILED_APPEND, fail_appends
from simulation.faults import FAULTS
from simulation.long_faults import begin_long_faults
from simulation.owners import Owners
from simulation.partition import DataPartition, PartitionLog, elect
from simulation.restarts import STARTS_AGAIN
from simulation.shared_ids import TWO_IDS, share_producer_ids
from simulation.span_id import SpanId
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition, log_numbered

MOST_CLIENTS, MOST_PARTITIONS, MOST_LOGS = 3, 3, 2
TOPICS = (TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("pay-ments", 0))


@dataclass(frozen=True, slots=True)
class Setting:
    """How large a world is, and what may go wrong in it; a shrinker makes it smaller.

    Attributes:
        batches: micro-batches of the reader while the world moves.
        steps: how many things happen at most; then the world stands still.
        rate: how many things happen, on average, between two steps of the reader; None lets the seed choose.
        head_start: how many things happen before the reader begins, besides a few that the seed draws.
        starts_at_stable: whether the reader begins at the last stable offsets, not at the start of each log.
        clocks_differ: whether brokers' clocks may differ, and whether what is read may be old.
        only_new_data_fails: whether only what was appended last to data, and mostly not read, becomes unreadable.
        has_times: whether each batch has a time of its own, and the first partition has offsets (lives.py).
        pause_ms: how much time passes at most between two batches.
        sharing: in how many worlds, of all, two transactional ids may have one producer id.
        keeping_epochs: in how many worlds, of all, a leader that restarts may have its leader epoch of before.
        returning: in how many worlds, of all, an old replica may return with its own log.
        failing: in how many worlds, of all, appends of coordinators may fail and stay in the log.
        id_length: how long transactional ids are; a longer one is filled up on both sides of its number.
    """

    clients: int = MOST_CLIENTS
    partitions: int = MOST_PARTITIONS
    logs: int = MOST_LOGS
    batches: int = 12
    steps: int = 10**6
    rate: float | None = None
    head_start: int = 0
    starts_at_stable: bool = False
    clocks_differ: bool = True
    only_new_data_fails: bool = False
    has_times: bool = False
    id_length: int = 0
    faults: frozenset[str] = frozenset({*FAULTS, TWO_IDS, FAILED_APPEND, STARTS_AGAIN})
    sharing: float = 0.15
    keeping_epochs: float = 0.3
    returning: float = 0.3
    failing: float = 0.15
    pause_ms: int = 300


@dataclass(slots=True)
class Unacknowledged:
    """A marker in a leader's log that is not committed yet."""

    marker: MarkerOnItsWay
    topic_id: str
    offset: int
    leader_epoch: int


@dataclass
class World:
    """The cluster.

    Attributes:
        tick: how many things have happened.
        hanging: spans that no marker is owed to now, with the tick since which.
        was_hanging: the same, over: (from, to, whether a transaction has taken it in; else it is gone).
        owners: which transactions data was written in.
        reopened: spans whose markers were lost with the tail of their log; the next transaction may take them in at
            once, and they never hang then.
        hidden, is_log_hidden: topics that the reader may not see; whether a proxy answers that the log is not there.
        forgotten: topics that were hidden when a driver started: what held them before that is not asked about.
        read_to: how far the reader has read each partition of the coordinators' log.
        read_whole_to: the same for those that were read to a listed end once, below the first offset that was not read.
        replaced: the topic ids that were replaced by a topic of the same name, with the tick of that.
        shared: producer ids that two transactional ids have had.
        keeps_epochs, returns_replicas: whether what `keeping_epochs` and `returning` are about may happen here.
        is_healing: whether no fault happens any more.
        seen: what happened how often, for those who want to know what a run was about.
        timeline: the same as text, kept only on request.
    """

    setting: Setting
    rng: random.Random
    timeline: list[str] | None = None
    tick: int = 0
    hanging: dict[SpanId, int] = field(default_factory=dict)
    was_hanging: dict[SpanId, list[tuple[int, int, bool]]] = field(default_factory=dict)
    owners: Owners = field(default_factory=Owners)
    reopened: set[SpanId] = field(default_factory=set)
    hidden: set[str] = field(default_factory=set)
    is_log_hidden: bool = False
    forgotten: set[str] = field(default_factory=set)
    read_to: dict[int, int] = field(default_factory=dict)
    read_whole_to: dict[int, int] = field(default_factory=dict)
    replaced: dict[str, int] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)
    shared: set[int] = field(init=False)
    keeps_epochs: bool = False
    returns_replicas: bool = False
    is_healing: bool = False

    def __post_init__(self) -> None:
        chance = random.Random(f"restarts {self.rng.getstate()[1][:8]}")  # of its own: other draws stay the same
        self.keeps_epochs = chance.random() < self.setting.keeping_epochs
        self.returns_replicas = chance.random() < self.setting.returning
        self.data: dict[TopicPartition, DataPartition] = {}
        self.topic_number = 0
        for name in dict.fromkeys(partition.topic for partition in TOPICS[: self.setting.partitions]):
            self.create_topic(name)
        self.logs: list[PartitionLog] = []
        self.log_number = 0
        self.clocks = WorldClocks.drawn(self.rng, differ=self.setting.clocks_differ)
        self.coordinators = Coordinators(self.logs, self.rng.choice((3, 5, 30)), self.clocks)
        self.create_log()
        self.clients = [self._client(number) for number in range(MOST_CLIENTS)]
        self.unacknowledged: list[Unacknowledged] = []
        self.shared = share_producer_ids(self)
        fail_appends(self)
        self._actions = _actions(self)
        begin_long_faults(self)

    def _client(self, number: int) -> Client:
        log = self.rng.randrange(MOST_LOGS) % self.setting.logs
        timeout_ms = TWO_PHASE_MS if self.rng.random() < 0.1 else TIMEOUT_MS
        return Client(f"app-{number}".center(self.setting.id_length, "x"), log, self.rng.randrange(3), timeout_ms)

    def create_topic(self, name: str) -> None:
        """A topic under an id of its own; over one of the same name if there was one."""
        self.topic_number += 1
        self.replaced.update({log.topic_id: self.tick for log in self.data.values() if log.partition.topic == name})
        for partition in TOPICS[: self.setting.partitions]:
            if partition.topic == name:
                has_offsets = self.setting.has_times and partition == TOPICS[0]
                topic_id = f"{name}-id-{self.topic_number}"
                self.data[partition] = DataPartition(partition, topic_id, has_offsets=has_offsets)

    def create_log(self) -> None:
        """The coordinators' log under an id of its own, and nothing in it; coordinators remember what it holds."""
        self.forget_log()
        self.logs[:] = [PartitionLog(log_numbered(at), f"log-id-{self.log_number}") for at in range(self.setting.logs)]
        self.coordinators.transactions.clear()
        self.coordinators.markers.clear()

    def forget_log(self) -> None:
        """The log that a reader reads from now on may be another one to it."""
        self.log_number += 1
        self.read_whole_to.clear()

    def note(self, text: str) -> None:
        """A line of the timeline."""
        if self.timeline is not None:
            self.timeline.append(f"{self.tick:5d} {text}")

    def wait(self, milliseconds: int) -> None:
        """Time passes and nothing happens."""
        self.clocks.now_ms += milliseconds

    def churn(self) -> None:
        """What happens between two steps of the reader."""
        rng, rate = self.rng, self.setting.rate or 0.0
        while rng.random() < rate / (1.0 + rate):
            self.step()

    def batch(self, producer_id: int, epoch: int, count: int) -> Data:
        """A batch that a client writes now."""
        if not self.setting.has_times:
            return Data(producer_id, epoch, count)
        self.clocks.now_ms += 1
        return Data(producer_id, epoch, count, self.clocks.now_ms)

    def replicate_all(self) -> None:
        """Every follower has caught up with its leader."""
        for log in (*self.data.values(), *self.logs):
            self.commit(log)
        self.look()

    @property
    def is_whole(self) -> bool:
        """Whether every part of the coordinators' log has a leader."""
        return all(log.has_leader for log in self.logs)

    def step(self) -> None:
        """One thing happens."""
        if self.tick >= self.setting.steps:
            return
        self.tick += 1
        self.clocks.now_ms += self.rng.randrange(40)
        self._actions[int(self.rng.random() * len(self._actions))]()
        self.clocks.look(self.logs)
        self.look()

    def lost_their_markers(self, log: PartitionLog, spans: Iterable[tuple[int, int]]) -> None:
        """Open again, as (producer id, start): the tail of the log is gone, with what had ended them."""
        self.reopened |= {SpanId(log.partition, log.topic_id, producer_id, start) for producer_id, start in spans}

    def look(self) -> None:
        """Brings the truth up to date."""
        now: set[SpanId] = set()
        held = self.coordinators.is_held
        for partition, log in self.data.items():
            for producer_id, start in log.open_spans():
                if not held(producer_id, partition):
                    now.add(SpanId(partition, log.topic_id, producer_id, start))
        if now == self.hanging.keys():
            return
        for span in now - self.hanging.keys():
            self.hanging[span] = self.tick
            self.seen["span hangs"] += 1
            self.note(f"  => {span.partition}@{span.start} of producer id {span.producer_id} is owed no marker")
        for span in self.hanging.keys() - now:
            is_held = held(span.producer_id, span.partition)
            self.was_hanging.setdefault(span, []).append((self.hanging.pop(span), self.tick, is_held))
            self.note(f"  => {span.partition}@{span.start} of producer id {span.producer_id} no longer hangs")

    def is_without_records(self, span: SpanId) -> bool:
        """Whether all records of a span were deleted: it may hide nothing, and then nothing stands."""
        log = self.data[span.partition]
        records = [one for one in log.entries if isinstance(one.body, Data) and one.next_offset > log.start]
        return not any(one.body.producer_id == span.producer_id and one.offset >= span.start for one in records)

    # What happens by itself in every cluster.

    def client_acts(self) -> None:
        index = self.rng.randrange(MOST_CLIENTS)
        if index < self.setting.clients:
            self.clients[index].act(self, self.rng)
        else:
            self.clients[index].act(None, self.rng)

    def replicate(self) -> None:
        everything: list[PartitionLog] = [*self.data.values(), *self.logs]
        log = everything[self.rng.randrange(len(everything))]
        if self.rng.random() < 0.2:
            log.copy()
        else:
            self.commit(log)

    def commit(self, log: PartitionLog) -> None:
        """The follower of a log catches up."""
        log.replicate()
        if log.partition.topic == TRANSACTION_STATE_TOPIC:
            self.coordinators.committed(log.partition.partition)
            return
        for waiting in list(self.unacknowledged):
            at = self.data.get(waiting.marker.partition)
            is_there = at is log and waiting.topic_id == log.topic_id and waiting.leader_epoch == log.epoch
            if is_there and log.high_watermark > waiting.offset:
                self.unacknowledged.remove(waiting)
                self.coordinators.acknowledge(waiting.marker)

    def deliver(self) -> None:
        draw = self.rng.random()
        if self.coordinators.markers:
            marker = self.coordinators.markers.pop(int(draw * len(self.coordinators.markers)))
            self.deliver_marker(marker)

    def deliver_marker(self, marker: MarkerOnItsWay) -> None:
        """A marker reaches its partition's leader: written, refused for good, or to be sent again."""
        at = self.data.get(marker.partition)
        if at is None:
            self.coordinators.acknowledge(marker)
        elif not at.has_leader:
            self.coordinators.markers.append(marker)
        else:
            body = Mark(marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.commit)
            offset = at.end
            written = at.mark(body, is_version_2=marker.version == 2)
            if written:
                self.unacknowledged.append(Unacknowledged(marker, at.topic_id, offset, at.epoch))
            self.seen["marker written" if written else "marker refused"] += 1
            self.note(f"{at.partition}@{offset}: {body} {'written' if written else 'refused'}")

    def complete(self) -> None:
        self._resend()
        self.coordinators.complete()

    def _resend(self) -> None:
        """Sends a marker again if the leader changed before the marker was committed."""
        for waiting in list(self.unacknowledged):
            at = self.data.get(waiting.marker.partition)
            if at is None or at.topic_id != waiting.topic_id or at.epoch != waiting.leader_epoch:
                self.unacknowledged.remove(waiting)
                self.coordinators.markers.append(waiting.marker)

    def expire(self) -> None:
        draw = self.rng.random()
        known = list(self.coordinators.transactions.values())
        if known and draw < 0.1:
            self.coordinators.expire(known[int(draw * 10 * len(known))])

    def time_out(self) -> None:
        draw = self.rng.random()
        known = list(self.coordinators.transactions.values())
        if known:
            chosen = known[int(draw * len(known))]
            if chosen.value is not None and chosen.value.transaction_timeout_ms != TWO_PHASE_MS:
                self.coordinators.fence(chosen)

    def leader_moves(self) -> None:
        """A clean failover, of data or of the coordinator's log; everything committed stays."""
        everything: list[PartitionLog] = [*self.data.values(), *self.logs]
        log = everything[self.rng.randrange(len(everything))]
        self.lost_their_markers(log, elect(log))
        self.seen["failover"] += 1
        self.note(f"{log.partition}: clean failover, epoch {log.epoch}, end {log.end}")
        self.after_failover(log)

    def restart_unseen(self, log: PartitionLog, end: int) -> None:
        """A power failure up to Kafka 3.9: a part of the coordinators' log loses its tail, and keeps its epoch."""
        log.lose_power(end)
        self.clocks.led_ms[log.partition.partition, log.epoch] = self.clocks.now_ms
        self.seen["tail lost under one leader epoch"] += 1
        self.note(f"{log.partition}: POWER FAILURE, epoch still {log.epoch}, end {log.end}")
        self.after_failover(log)
        self.coordinators.committed(log.partition.partition)

    def after_failover(self, log: PartitionLog) -> None:
        """What a new leader of the coordinator's log does first."""
        if log.partition.topic == TRANSACTION_STATE_TOPIC:
            self.coordinators.take_over(log.partition.partition)

    def heal(self) -> None:
        """Ends all faults: leaders return, clients end, and the coordinators complete what they can."""
        self.note("--- the cluster heals; what is lost on a disk of data stays so ---")
        self.is_healing = True
        self.hidden, self.is_log_hidden = set(), False
        for log in self.logs:
            log.unreadable.clear()
        for _ in range(200):
            for log in (*self.data.values(), *self.logs):
                log.has_leader = True
            self.replicate_all()
            for marker in [self.coordinators.markers.pop() for _ in range(len(self.coordinators.markers))]:
                self.deliver_marker(marker)
            for known in list(self.coordinators.transactions.values()):
                if known.transactional_id not in self.coordinators.abandoned:
                    self.coordinators.fence(known)
            self.complete()
            self.tick += 1
            self.look()
            if self._is_at_rest():
                return
        raise AssertionError("the model never comes to rest")

    def _is_at_rest(self) -> bool:
        busy = any(
            not known.is_free or (known.value is not None and known.value.state.value == "Ongoing")
            for known in self.coordinators.transactions.values()
            if known.transactional_id not in self.coordinators.abandoned
        )
        is_replicated = all(log.high_watermark == log.end for log in (*self.data.values(), *self.logs))
        return is_replicated and not (busy or self.coordinators.markers or self.unacknowledged)


def _actions(world: World) -> list[Callable[[], None]]:
    """What happens how often, of a hundred things."""
    usual: list[tuple[int, Callable[[], None]]] = [
        (38, world.client_acts),
        (24, world.replicate),
        (14, world.deliver),
        (12, world.complete),
        (1, world.expire),
        (2, world.time_out),
        (1, world.leader_moves),
    ]
    faulty = [(share, _fault(world, name, act)) for name, (share, act) in FAULTS.items()]
    return [act for share, act in (*usual, *faulty) for _ in range(share)]


def _fault(world: World, name: str, act: Callable[[World, float], bool]) -> Callable[[], None]:
    def happen() -> None:
        draw = world.rng.random()
        if name in world.setting.faults and act(world, draw):
            world.seen[name] += 1

    return happen
