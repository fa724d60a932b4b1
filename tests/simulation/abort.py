"""The real ledger and the real automatic abort in a simulated cluster, and the truth about whose data they end.

Between any two of their requests anything may happen: clients resume, begin, commit, are fenced; leaders move; faults.
HARM: a marker was taken, and the data it decided belongs, in part, to a transaction that its client was told had
committed, or that its coordinator still owned at that moment. LIE: an incident was opened with an expected outcome
that is not what the owners of its data were told. Whose a batch is, is known here and nowhere else: it is written
down when it is produced.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import NamedTuple
from unittest import mock

from simulation import run as running
from simulation.client import Client
from simulation.coordinator import Coordinators, Transaction
from simulation.encoding import Data, Mark
from simulation.faults import FAULTS
from simulation.judge import Judge
from simulation.partition import DataPartition
from simulation.reader import Said
from simulation.run import Outcome
from simulation.world import Setting, World
from support.fake_groups import FakeGroups
from support.fake_lease import FakeLease
from support.incidents import an_event, an_evidence
from support.recording_sink import RecordingSink
from txnwatch.sinks.abort import AutoAbort
from txnwatch.sinks.commands import Origin
from txnwatch.sinks.ledger import Ledger
from txnwatch.sinks.outbox import Outbox
from txnwatch.state.abort_case import AbortPolicy
from txnwatch.state.abort_plan import partition_of
from txnwatch.state.emitted import Emitted
from txnwatch.state.ids import TopicPartition
from txnwatch.state.incident import OPENED, IncidentEvent
from txnwatch.state.outcome import UNKNOWN
from txnwatch.state.ports import (
    ActiveProducer,
    ListedTransaction,
    MarkerSpec,
    PartitionReading,
    TransactionAdmin,
    TransactionDescription,
    TransactionListing,
)
from txnwatch.state.transaction import TransactionState as S
from txnwatch.state.verdict import Verdict
from txnwatch.streaming.wire.transaction_log import TransactionLogValue

EAGER = AbortPolicy(after_ms=0, budget_per_hour=None, breaker_incidents=None)
_BATCH_MS = 70_000  # so that every pause between two tries is over
_RACES, _AT_ONCE = 40, 2


class Owner(NamedTuple):
    """A transaction, by what stays the same from its beginning to its end."""

    transactional_id: str
    producer_id: int
    start_ms: int


class Truth:
    """Whose each batch is, and which transactions committed."""

    def __init__(self) -> None:
        self.owner: dict[tuple[str, TopicPartition, int, int], Owner] = {}
        self.committed: set[Owner] = set()

    def written(self, world: World, log: DataPartition, offset: int, producer_id: int, epoch: int) -> None:
        """A batch was appended."""
        for known in world.coordinators.transactions.values():
            value = known.value
            if value is None or log.partition not in known.held:
                continue
            if (value.producer_id, value.producer_epoch, value.state) == (producer_id, epoch, S.ONGOING):
                owner = Owner(known.transactional_id, producer_id, value.start_ms)
                self.owner[log.topic_id, log.partition, log.epoch, offset] = owner

    def decided(self, known: Transaction, value: TransactionLogValue | None) -> None:
        """A coordinator's record has taken effect; with PrepareCommit the client is told that it committed."""
        if value is not None and value.state is S.PREPARE_COMMIT:
            self.committed.add(Owner(known.transactional_id, value.producer_id, value.start_ms))

    def outcomes(self, log: DataPartition, producer_id: int, start: int) -> set[str]:
        """What became, or may still become, of the transactions that have data here; nothing for data of none."""
        found = {owner for owner in self._owners(log, producer_id, start) if owner is not None}
        return {"commit" if owner in self.committed else "abort" for owner in found}

    def _owners(self, log: DataPartition, producer_id: int, start: int) -> Iterator[Owner | None]:
        for entry in log.entries:
            if isinstance(entry.body, Data) and entry.body.producer_id == producer_id and entry.offset >= start:
                yield self.owner.get((log.topic_id, log.partition, entry.leader_epoch, entry.offset))

    def is_live(self, world: World, event: IncidentEvent) -> bool:
        """Whether a transaction with data in the incident's span is live, so that nobody knows how it will end."""
        log = world.data.get(partition_of(event))
        if log is None:
            return False
        live = {
            Owner(known.transactional_id, known.value.producer_id, known.value.start_ms)
            for known in world.coordinators.transactions.values()
            if known.value is not None and known.value.state.is_live
        }
        return not live.isdisjoint(self._owners(log, event.producer_id, event.txn_start_offset or 0))

    def harmed(self, world: World, log: DataPartition, producer_id: int, start: int) -> Iterator[str]:
        """Whom a marker that ends this open data would harm."""
        for owner in self._owners(log, producer_id, start):
            if owner is None:
                continue
            if owner in self.committed:
                yield f"{owner} was committed, and has data on {log.partition}"
            known = world.coordinators.transactions.get(owner.transactional_id)
            value = known.value if known is not None else None
            is_same = value is not None and value.start_ms == owner.start_ms
            # An abort of nothing keeps the start of the transaction before, and holds nothing.
            if value is not None and is_same and known is not None and log.partition in known.held:
                yield f"{owner} is {value.state}, and has data on {log.partition}"


def _data_of(log: DataPartition, producer_id: int) -> Iterator[int]:
    for entry in log.entries:
        if isinstance(entry.body, Data) and entry.body.producer_id == producer_id:
            yield entry.offset


class WorldAdmin:
    """A TransactionAdmin over the world, which goes on between its requests."""

    def __init__(self, world: World, truth: Truth, most_between: int) -> None:
        self.world, self.truth, self.most_between = world, truth, most_between
        self.harm: list[str] = []
        self.stands_still = False

    def _time_passes(self) -> None:
        if not self.stands_still:
            for _ in range(self.world.rng.randrange(self.most_between)):
                self.world.step()

    def within(self, _: int) -> nullcontext[None]:
        return nullcontext()

    def read_partitions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionReading]:
        self._time_passes()
        return {partition: self._reading(partition) for partition in partitions}

    def _reading(self, partition: TopicPartition) -> PartitionReading:
        log = self.world.data.get(partition)
        if log is None or not log.is_listable:
            return PartitionReading(partition, "no leader")
        rows = []
        for producer_id, known in log.producers.items():
            last = max(
                (e.offset for e in log.entries if isinstance(e.body, Data) and e.body[0] == producer_id), default=-1
            )
            start = known.open_start if known.open_start is not None else -1
            last = max(_data_of(log, producer_id), default=-1)
            rows.append(ActiveProducer(producer_id, known.epoch, last, 0, known.coordinator_epoch, start))
        return PartitionReading(
            partition, None, log.topic_id, 1, log.epoch, log.end, log.end, log.last_stable_offset, log.high_watermark,
            log.start, tuple(rows),
        )  # fmt: skip

    def list_transactions(self, producer_ids: Iterable[int]) -> TransactionListing:
        self._time_passes()
        if not all(log.has_leader for log in self.world.logs):
            return TransactionListing((), ("a coordinator is away",))
        wanted = set(producer_ids)
        return TransactionListing(
            tuple(
                ListedTransaction(known.transactional_id, known.value.producer_id, known.value.state, 1)
                for known in self.world.coordinators.transactions.values()
                if known.value is not None and known.value.producer_id in wanted
            )
        )

    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        self._time_passes()
        return {name: self._description(name) for name in transactional_ids}

    def _description(self, name: str) -> TransactionDescription:
        client = next(client for client in self.world.clients if client.transactional_id == name)
        if not self.world.logs[client.log].has_leader:
            return TransactionDescription(name, "its coordinator is away")
        known = self.world.coordinators.transactions.get(name)
        value = known.value if known is not None else None
        if known is None or value is None:
            return TransactionDescription(name)
        held = known.unmarked if value.state.is_prepare else known.held
        return TransactionDescription(
            name, None, value.state, value.producer_id, value.producer_epoch, 0, value.start_ms, frozenset(held), 1
        )

    def cleanup_policies(self, _: Iterable[str]) -> dict[str, str]:
        return {}

    def write_marker(self, marker: MarkerSpec) -> str | None:
        self._time_passes()
        log = self.world.data.get(marker.partition)
        if log is None or not log.has_leader:
            return "no leader"
        if log.epoch != marker.leader_epoch:
            return "the leader changed"
        known = log.producers.get(marker.producer_id)
        start = known.open_start if known is not None else None
        hurt = [] if start is None else list(self.truth.harmed(self.world, log, marker.producer_id, start))
        body = Mark(marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.commit)
        if not log.mark(body, is_version_2=False):
            self.world.seen["abort: refused by the leader"] += 1
            return "INVALID_PRODUCER_EPOCH"
        self.world.note(f"ABORT by txnwatch: {marker}")
        self.harm.extend(hurt)
        self.world.seen["abort: marker"] += 1
        self.world.commit(log)
        self.world.look()
        return None


class Actors:
    """The product's side: a ledger and the abort, over a world."""

    def __init__(self, world: World, truth: Truth, most_between: int) -> None:
        self.world, self.truth = world, truth
        self.admin = WorldAdmin(world, truth, most_between)
        self.calls = 0
        self.problems: list[str] = []
        outbox = Outbox(RecordingSink(), lambda _: None)
        admin: TransactionAdmin = self.admin  # type: ignore[assignment]
        self.ledger = Ledger(
            Origin("cluster", "simulated:1"), admin, FakeGroups(), [outbox], self.now_ms, on_event=self._opened
        )
        self.abort = AutoAbort("on", EAGER, 0, self.ledger, FakeLease(), "simulated", self.now_ms)

    def now_ms(self) -> int:
        """Later with each batch, so that every pause between two tries is over."""
        return self.world.coordinators.now_ms + self.calls * _BATCH_MS

    def batch(self, emitted: Sequence[Emitted]) -> list[str]:
        """One micro-batch; returns what is wrong."""
        self.calls += 1
        self.abort.recover()
        self.ledger.on_batch(emitted)
        self.abort.on_batch()
        self.world.seen.update(self.abort.counts)
        self.abort.counts.clear()
        problems = [*self.problems, *(f"HARM: {harm}" for harm in self.admin.harm)]
        self.problems.clear()
        self.admin.harm.clear()
        return problems

    def _opened(self, event: IncidentEvent) -> None:
        if event.status != OPENED or event.verdict != Verdict.HANGING or event.expected_outcome == UNKNOWN:
            return
        self.world.seen[f"outcome: {event.expected_outcome}"] += 1
        log = self.world.data.get(partition_of(event))
        if log is None or log.topic_id != event.topic_id:
            return
        owners = self.truth.outcomes(log, event.producer_id, event.txn_start_offset or 0)
        if not owners <= {event.expected_outcome}:
            self.problems.append(f"LIE: {event.subject} says {event.expected_outcome}, and its owners {owners}")


class AbortingJudge(Judge):
    """A judge behind whom the abort acts on every batch that was committed."""

    def __init__(self, world: World, truth: Truth) -> None:
        super().__init__(world)
        self.actors = Actors(world, truth, most_between=3)

    def hear(self, said: Said) -> None:
        """See Judge."""
        super().hear(said)
        self.actors.admin.stands_still = self.world.setting.rate == 0.0
        if said.is_committed and not self.problems:
            self.problems.extend(self.actors.batch(said.emitted))


@contextmanager
def _witnessed(truth: Truth) -> Iterator[Truth]:
    write, enter = Client.write, Coordinators._enter

    def writing(
        self: Client, world: World, partition: TopicPartition, producer_id: int, epoch: int, count: int
    ) -> bool:
        log = world.data[partition]
        offset = log.end
        accepted = write(self, world, partition, producer_id, epoch, count)
        if accepted:
            truth.written(world, log, offset, producer_id, epoch)
        return accepted

    def entering(self: Coordinators, known: Transaction, value: TransactionLogValue | None) -> None:
        truth.decided(known, value)
        enter(self, known, value)

    with (
        mock.patch.object(Client, "write", writing),
        mock.patch.object(Coordinators, "_enter", entering),
    ):
        yield truth


def run_with_abort(seed: int, setting: Setting) -> Outcome:
    """One seed of the whole product; equal arguments give equal outcomes."""
    with (
        _witnessed(Truth()) as truth,
        mock.patch.object(running, "Judge", lambda world: AbortingJudge(world, truth)),
    ):
        return running.run(seed, setting)


def run_race(seed: int) -> tuple[list[str], Counter[str]]:
    """Incidents about whatever is open, hanging or not, against clients that go on; what is wrong, what happened.

    The outcome an incident is given is the one its owners have been told so far, as it is when it is found by the
    state; for data of a live transaction it is a lie, and the incident lives for one decision only.
    """
    with _witnessed(Truth()) as truth:
        rng = random.Random(seed)
        # A coordinator that forgets what it has decided, between the last look and the marker, is beyond any look.
        usual = [name for name in FAULTS if name not in {"unclean failover of the log", "forgotten id"}]
        names = [name for name in usual if rng.random() < 0.3] + ["lost marker", "stray write"]
        world = World(Setting(clients=1 + rng.randrange(3), faults=frozenset(names)), random.Random(seed + 1))
        actors = Actors(world, truth, most_between=1 + rng.randrange(20))
        problems: list[str] = []
        for _ in range(_RACES):
            for _ in range(rng.randrange(30)):
                world.step()
            forged = _forged(world, truth, rng)
            is_lie = forged is not None and truth.is_live(world, forged)
            if forged is not None:
                actors.ledger.remember([forged])
                actors.ledger._look_again_ms = 2**62  # what is over is refused, not resolved
            found = actors.batch([])
            # With the lie goes that it cannot have committed yet: only whether it was live when it was ended counts.
            problems += [harm for harm in found if not (is_lie and "was committed" in harm)]
            known = actors.ledger._memory.known
            for one in [forged.incident_id] if forged is not None and is_lie else list(known)[:-_AT_ONCE]:
                del known[one]
            if problems:
                break
        return problems, world.seen


def _forged(world: World, truth: Truth, rng: random.Random) -> IncidentEvent | None:
    everything = [(log, row) for log in world.data.values() for row in log.open_spans() if log.is_listable]
    everything = [(log, row) for log, row in everything if log.producers[row[0]].open_start == row[1]]
    if not everything:
        return None
    log, (producer_id, start) = rng.choice(everything)
    reading = WorldAdmin(world, truth, 1)._reading(log.partition)
    row = reading.open_transaction(producer_id)
    assert row is not None
    told = truth.outcomes(log, producer_id, start)
    names = [c.transactional_id for c in world.clients if producer_id in {c.producer_id, *(p for p, _ in c.former)}]
    return an_event(
        f"{log.partition}{log.topic_id}@{start}/{producer_id}/{row.last_sequence}",
        topic=log.partition.topic,
        partition=log.partition.partition,
        topic_id=log.topic_id,
        producer_id=producer_id,
        producer_epoch=row.producer_epoch,
        transactional_id=names[0] if names else None,
        txn_start_offset=start,
        detected_at_ms=0,
        evidence={**an_evidence(), "last_sequence": row.last_sequence},
        expected_outcome="commit" if "commit" in told else "abort" if told else "none",
    )
