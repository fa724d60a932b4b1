"""txnwatch's own code against the model: lister, planner, plans, folds, buckets, micro-batch by micro-batch.

Law: everything that decides anything is the product's. Ours is only what Spark and the network do: the offset
goes through its JSON, the facts come in any order and are spread over buckets, buckets and producers live in rows,
and a batch may die before it is committed and then runs again, with the same offsets, against a log that has moved
on. What a mutant changes is a method here, or a function of the product that it wraps.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from unittest import mock

from simulation.view import View
from simulation.world import World
from support.facts import DictStore
from txnwatch.state import bucket as buckets
from txnwatch.state.bucket import BucketState
from txnwatch.state.codec import decode_bucket, encode_bucket
from txnwatch.state.emitted import Emitted, OutstandingGap
from txnwatch.state.facts import Barrier, Fact
from txnwatch.state.ids import TopicPartition
from txnwatch.state.policy import DetectionPolicy
from txnwatch.streaming import lister as listing
from txnwatch.streaming import read_plan
from txnwatch.streaming.offsets import SourceOffset
from txnwatch.streaming.options import EARLIEST, LATEST, parse_options
from txnwatch.streaming.planner import Limits
from txnwatch.streaming.read_plan import ReadPlan, plan_reads

POLICY = DetectionPolicy()
_OPTIONS = parse_options(
    {"kafka.bootstrap.servers": "simulated:1", "subscribePattern": ".*", "metadataRefreshMs": "1", "buckets": "1"}
)
WHOLE = Limits().coordinator_chunk
_TASK_SIZE = 4  # offsets worth a task here: small worlds have several plans a batch, too


@dataclass(frozen=True, slots=True)
class Said:
    """What one attempt at a batch said, with the ticks of its listings and of its end."""

    emitted: list[Emitted]
    barrier: Barrier
    since: int
    data_listed: int
    until: int
    is_committed: bool = True


@dataclass(slots=True)
class Listing:
    """An offset that was planned, with the ticks of its first question and of the last answer for D."""

    end: SourceOffset
    since: int
    data_listed: int


class Reader:
    """One query over a world.

    Attributes:
        done: the offset committed last.
        wishes: what the driver has asked its source to read again.
        seen: what happened how often.
    """

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world = world
        self.rng = rng
        self.seen: Counter[str] = Counter()
        bucket_count = 1 + rng.randrange(3)
        self.view = self.new_view(world, rng)
        self.options = replace(
            _OPTIONS,
            metadata_refresh_s=0.0,
            buckets=bucket_count,
            starting_offsets=EARLIEST if rng.random() < 0.5 else LATEST,
        )
        self.lister = listing.Lister(self.options, self.view, self.now_ms)  # type: ignore[arg-type]
        data_limit = 1 + rng.randrange(8) if rng.random() < 0.4 else None
        chunk = 1 + rng.randrange(6) if rng.random() < 0.3 else WHOLE
        self.limits = Limits(data_limit, chunk)
        self.crashes = 0.15 * rng.random() if rng.random() < 0.5 else 0.0
        self.lateness = 0.1
        self.done = SourceOffset.beginning()
        self.wishes: dict[TopicPartition, int] = {}
        self.stores = [DictStore() for _ in range(bucket_count)]
        self.rows = [encode_bucket(BucketState()) for _ in range(bucket_count)]
        self.clock_ms = 0

    def new_view(self, world: World, rng: random.Random) -> View:
        return View(world, rng, rng.choice((0.0, 0.0, 0.05, 0.2)))

    def now_ms(self) -> int:
        """Our clock: the brokers' clock, and what has been waited."""
        return self.world.coordinators.now_ms + self.clock_ms

    def settle(self) -> None:
        """From now on nothing cuts a batch and every request is answered."""
        self.limits, self.crashes, self.lateness, self.view.unanswered = Limits(), 0.0, 0.0, 0.0

    def batch(self, heard: Callable[[Said], None]) -> bool:
        """One micro-batch, with as many attempts as it takes; whether there was one."""
        found = self.list_ends()
        if found is None:
            return False
        end = SourceOffset.from_json(json.loads(json.dumps(found.end.to_json())))
        found = replace(found, end=end)
        while True:
            kept = [dict(store.rows) for store in self.stores], list(self.rows), set(self.view.served)
            said = self.attempt(found)
            said = replace(said, is_committed=self.rng.random() >= self.crashes)
            heard(said)
            if said.is_committed:
                break
            self.seen["crash between batch and commit"] += 1
            self.world.note(f"batch {end.barrier} dies before it is committed")
            for store, rows in zip(self.stores, kept[0], strict=True):
                store.rows = rows
            self.rows, self.view.served = kept[1], kept[2]
            self.world.churn()
        self.done = end
        if self.rng.random() >= self.lateness:  # the file is written a moment late now and then
            gaps = (gap for gap in said.emitted if isinstance(gap, OutstandingGap))
            self.wishes = {gap.partition: gap.from_offset for gap in gaps}
        return True

    def list_ends(self) -> Listing | None:
        """D, then T, by the real lister; None if nobody answered."""
        world = self.world
        since = world.tick
        self.lister._limits = self.limits
        moments: list[int] = []

        def now_ms() -> int:
            moments.append(world.tick)
            return self.now_ms()

        self.lister._now_ms = now_ms
        with mock.patch.object(listing, "read_wishes", return_value=self.wishes):
            end = self.lister.next_offset(self.done)  # type: ignore[arg-type]
        if end is None:
            return None
        world.note(f"barrier {end.barrier} listed: {_ends(end)}")
        return Listing(end, since, moments[0])

    def attempt(self, found: Listing) -> Said:
        """Reads the ranges and runs the buckets, once."""
        with mock.patch.object(read_plan, "OFFSETS_WORTH_A_TASK", _TASK_SIZE):
            plans = plan_reads(self.done, found.end, self.options)
        facts = [fact for plan in plans for fact in self.read(plan)]
        self.rng.shuffle(facts)
        facts = self.facts(facts)
        barrier = next(fact for fact in facts if isinstance(fact, Barrier))
        emitted: list[Emitted] = []
        for number, store in enumerate(self.stores):
            self.world.churn()
            emitted.extend(self.process(number, store, facts))
        return Said(emitted, barrier, found.since, found.data_listed, self.world.tick)

    def read(self, plan: ReadPlan) -> list[Fact]:
        """One task."""
        reads = [read_plan._read(found, self.options) for found in plan.ranges]
        for read in reads:
            self.view.read(read)
        facts = list(read_plan._facts(plan, reads))
        for read in reads:
            for notice in read.notices:
                self.seen[f"notice {notice.kind}"] += 1
                self.world.note(f"notice {notice.kind} {notice.partition} from {notice.from_offset}: {notice.detail}")
        return facts

    def facts(self, facts: list[Fact]) -> list[Fact]:
        """What reaches the state; a mutant changes it on the way."""
        return facts

    def process(self, number: int, store: DictStore, facts: list[Fact]) -> list[Emitted]:
        """One bucket: the facts of its producer ids and those that concern everybody."""
        count = len(self.stores)
        mine = [fact for fact in facts if getattr(fact, "producer_id", number) % count == number]
        bucket = decode_bucket(self.rows[number])
        emitted = buckets.process(bucket, store, mine, POLICY, speaks_for_partitions=number == 0)
        self.rows[number] = encode_bucket(bucket)
        return emitted


def _ends(end: SourceOffset) -> str:
    marks = {True: "?", False: ""}
    return ", ".join(f"{p.topic[:7]}-{p.partition}:{at.offset}{marks[at.is_stale]}" for p, at in end.positions.items())
