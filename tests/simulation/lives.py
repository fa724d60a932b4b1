"""Random lives of one transactional id whose records can be lost before they are read, against the whole product.

In the worlds of run.py everything happens at once, and few outcomes are ever known. Here nothing happens by itself: a
life is a random list of what the client, the cluster and the reader do, so most outcomes are known, and a false one is
found soon. Each life ends with an operator's fence, the client's next transaction, and a hang of a new id: the outcome
of the new id must be known, whatever the log has been through.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from simulation.abort import AbortOracle, Actors
from simulation.coordinator import Transaction
from simulation.faults import compaction
from simulation.reader import BatchResult, ReaderListing, WorldReader
from simulation.truth import Truth, witnessed
from simulation.world import TOPICS, Setting, World
from txnwatch.state.model.incident import ExpectedOutcome
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.source.options import LATEST
from txnwatch.streaming.source.planner import Limits

A, B = TOPICS[0], TOPICS[1]
_HOUR_MS = 3_600_000
_SETTING = Setting(2, 2, 1, rate=0.0, clocks_differ=False, has_times=True, faults=frozenset())


@dataclass
class LifeOutcome:
    """The result of a life: what is wrong, how often what happened, and what was done in which order."""

    problems: list[str]
    seen: Counter[str]
    timeline: list[str] = field(default_factory=list)


class Life:
    """One world, its reader and its client; `step` does one thing."""

    def __init__(self, seed: int, truth: Truth, *, keeps_epochs: bool = False) -> None:
        """`keeps_epochs`: a leader of the coordinators' log that restarts has its leader epoch of before."""
        self.rng = random.Random(seed)
        setting = replace(_SETTING, keeping_epochs=float(keeps_epochs))
        self.world = World(setting, random.Random(seed), [])
        self.world.coordinators.max_epoch = 30
        self.oracle = AbortOracle(self.world, Actors(self.world, truth, 3))
        self.oracle.actors.admin.unread_share = 0.05
        self.reader = a_reader(self.world, seed)
        self.client = self.world.clients[0]
        self.client.log, self.client.version = 0, self.rng.choice((1, 2))
        self.client.timeout_ms = 60_000

    @property
    def problems(self) -> list[str]:
        """What is wrong so far."""
        return self.oracle.problems

    def batches(self, count: int) -> None:
        """The reader runs micro-batches."""
        for _ in range(count):
            self.world.wait(500)
            self.reader.batch(self.oracle.check)

    def step(self) -> None:
        """One thing happens."""
        actions: list[tuple[int, Callable[[], None]]] = [
            (9, self.read),
            (8, self.use_a_partition),
            (5, self.end),
            (3, self.start),
            (3, self.write_late),
            (2, self.lose_unread_records),
            (2, self.lose_what_is_new),
            (2, self.lose_what_is_listed),
            (1, self.elect),
            (1, self.fence),
            (1, self.compact),
            (1, self.lead_or_not),
        ]
        chosen = self.rng.choices([act for _, act in actions], [share for share, _ in actions])[0]
        chosen()
        self.settle()

    def read(self) -> None:
        self.batches(1 + self.rng.randrange(3))

    def use_a_partition(self) -> None:
        """The client adds a partition, if it believes that it has not, and writes to it now or later."""
        partition, client = self.add(), self.client
        if partition is not None and self.rng.random() < 0.7:
            client.write(self.world, partition, client.producer_id, client.producer_epoch, 1)

    def lose_what_is_new(self) -> None:
        """The client adds a partition, and that record is lost at once; it does not notice, and goes on."""
        self.read()
        if self.add() is not None:
            self.lose_unread_records()
            self.read()

    def lose_what_is_listed(self) -> None:
        """Records are listed, and lost before they are read; others may have their places then."""
        attempt = self.reader.attempt

        def lose_first(listed: ReaderListing) -> BatchResult:
            self.reader.attempt = attempt  # type: ignore[method-assign]
            self.lose_unread_records()
            self.start_another_id()
            return attempt(listed)

        self.reader.attempt = lose_first  # type: ignore[method-assign]
        self.batches(1)
        self.reader.attempt = attempt  # type: ignore[method-assign]

    def start_another_id(self) -> None:
        """The log grows by records of another id."""
        own, other = self.client, self.world.clients[2]
        self.client, other.log, other.version = other, 0, 1
        self.start()
        self.client = own

    def add(self) -> TopicPartition | None:
        """The client adds a partition, if it believes that it has not; None if it cannot now."""
        known, client = self._known(), self.client
        partition = self.rng.choice((A, A, B))
        if known is None or not self.world.data[partition].has_leader:
            return None
        if partition not in client.believed.added:
            self.world.coordinators.add(known, partition)
            self.settle()
            client.learn(self.world)
        return partition if partition in client.believed.added else None

    def end(self) -> None:
        """The client ends its transaction; of each marker it depends whether it is lost."""
        known, client = self._known(), self.client
        if known is None or client.believed.owner is None:
            return
        client.end(self.world, known, commit=self.rng.random() < 0.6)
        self.world.note(f"{client.transactional_id} asks for the end")
        if self.rng.random() < 0.9:
            self.finish()

    def finish(self, lost: float = 0.4) -> None:
        """Markers are delivered, or taken for written, and the coordinator completes."""
        self.settle()
        for marker in list(self.world.coordinators.markers):
            self.world.coordinators.markers.remove(marker)
            if self.rng.random() < lost or marker.partition not in self.world.data:
                self.world.coordinators.acknowledge(marker)
                self.world.note(f"the marker {marker} is taken for written")
            else:
                self.world.deliver_marker(marker)
        self.settle()
        self.world.complete()
        self.settle()
        self.client.learn(self.world)

    def start(self) -> None:
        """The client starts anew: InitProducerId."""
        self.client.is_initialising = True
        for _ in range(6):
            if not self.client.is_initialising:
                break
            self.client.initialise(self.world)
            self.finish()

    def write_late(self) -> None:
        """Data of no transaction, under the present identity or an earlier one."""
        client = self.client
        if client.producer_id < 0:
            return
        identity = self.rng.choice([(client.producer_id, client.producer_epoch), *client.former[-1:]])
        client.write(self.world, self.rng.choice((A, B)), *identity, 1)

    def lose_unread_records(self) -> None:
        """An election removes records of the log that the reader has not read."""
        log = self.world.logs[0]
        cuts = [end for end in log.boundaries() if end >= self.world.read_to.get(0, 0)]
        if cuts:
            self.world.seen["unread records are lost"] += 1
            self.lose_from(self.rng.choice(cuts))

    def lose_from(self, end: int) -> None:
        """The log loses its records from an offset on: by a power failure under one leader epoch, or by an election."""
        log = self.world.logs[0]
        if self.world.keeps_epochs:
            self.world.restart_unseen(log, end)
            self.settle()
            return
        log.fail_over_unclean(end)
        self.world.note(f"UNREAD records are lost: end {log.end}, epoch {log.epoch}")
        self._after_election()

    def elect(self) -> None:
        """A clean election of the log."""
        self.world.logs[0].fail_over()
        self.world.note("clean election of the log")
        self._after_election()

    def fence(self) -> None:
        """An operator fences the id, and its client does not know."""
        known = self.world.coordinators.transactions.get(self.client.transactional_id)
        if known is not None and known.is_free and known.is_idle:
            self.world.coordinators.init(known.transactional_id, 0, self.client.version, 60_000)
            self.world.note("an operator fences the id")
            self.world.seen["an operator fences"] += 1

    def compact(self) -> None:
        compaction(self.world, 0.0)

    def lead_or_not(self) -> None:
        """A data partition has no leader for a while."""
        log = self.world.data[A]
        log.has_leader = not log.has_leader
        self.world.note(f"{A}: {'a leader again' if log.has_leader else 'no leader'}")

    def settle(self) -> None:
        """Everything is replicated, and the truth is up to date."""
        self.world.tick += 1
        self.world.replicate_all()
        self.world.clocks.look(self.world.logs)

    def coda(self) -> None:
        """The id is fenced, goes on elsewhere, and a new id hangs: that one's outcome must be known."""
        for log in (*self.world.data.values(), *self.world.logs):
            log.has_leader = True
        self.batches(6)
        self.finish(lost=0.0)
        self.start()
        self.batches(4)
        self.client.learn(self.world)
        known = self._known()
        if known is not None:
            self.world.coordinators.add(known, B)
            self.settle()
        self.batches(6)
        self.world.wait(20 * _HOUR_MS)
        self.batches(3)
        self._hang_of_a_new_id()

    def _hang_of_a_new_id(self) -> None:
        self.client = new = self.world.clients[1]
        new.log, new.version = 0, self.rng.choice((1, 2))
        self.start()
        self.batches(2)
        known = self._known()
        assert known is not None
        self.world.coordinators.add(known, A)
        self.settle()
        new.learn(self.world)
        new.write(self.world, A, new.producer_id, new.producer_epoch, 1)
        self.settle()
        new.end(self.world, known, commit=False)
        producer_id = new.producer_id
        self.finish(lost=1.0)
        self.oracle.actors.admin.unread_share = 0.0  # a read that fails again and again switches nothing off
        self.batches(8)
        event = self.oracle.actors.published.get(producer_id)
        if event is None or event.expected_outcome != ExpectedOutcome.ABORT:
            doubt = event.outcome_detail if event is not None else "no incident"
            self.problems.append(f"SWITCHED OFF: the outcome of a new id is unknown: {doubt}")

    def _known(self) -> Transaction | None:
        """The id at its coordinator, if the client may go on with it now."""
        client = self.client
        known = self.world.coordinators.transactions.get(client.transactional_id)
        if known is None or known.value is None or client.is_initialising or not known.is_free:
            return None
        client.learn(self.world)
        is_its_own = (known.value.producer_id, known.value.producer_epoch) == (
            client.producer_id,
            client.producer_epoch,
        )
        return known if is_its_own and not known.value.state.is_prepare else None

    def _after_election(self) -> None:
        log = self.world.logs[0]
        self.world.after_failover(log)
        self.world.coordinators.committed(0)
        self.settle()


def a_reader(world: World, seed: int) -> WorldReader:
    """A reader that reads everything it lists."""
    reader = WorldReader(world, random.Random(seed))
    changed = {"pattern": ".*", "topics": (), "census_pattern": None, "starting_offsets": LATEST}
    reader.options = replace(reader.options, **changed)
    reader.lister.options = replace(reader.lister.options, **changed)
    reader.settle()
    reader.limits, reader.leaves_out = Limits(), False
    return reader


def live(seed: int, steps: int = 24, *, keeps_epochs: bool = False) -> LifeOutcome:
    """One life; equal seeds give equal lives."""
    with witnessed(Truth()) as truth:
        life = Life(seed, truth, keeps_epochs=keeps_epochs)
        life.batches(3)
        for _ in range(steps):
            life.step()
            if life.problems:
                break
        else:
            life.coda()
        return LifeOutcome(life.problems, life.world.seen, life.world.timeline or [])
