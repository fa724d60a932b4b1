"""txnwatch's own code against the model: lister, planner, plans, folds, buckets, micro-batch by micro-batch.

Law: everything that decides anything is the product's. Ours is only what Spark and the network do: the offset
goes through its JSON, the facts come in any order and are spread over buckets, buckets and producers live in rows,
and a batch may die before it is committed and then runs again, with the same offsets, against a log that has moved
on. What a mutant changes is a method here, or a function of the product that it wraps.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from unittest import mock

from simulation.restarts import SHARE_FORGETFUL, STARTS_AGAIN, start_again
from simulation.shared_ids import note_read
from simulation.view import View
from simulation.world import World
from support.facts import DictStore, decode_bucket, encode_bucket
from txnwatch.state.detection import bucket as buckets
from txnwatch.state.detection.bucket_state import BucketState
from txnwatch.state.detection.open_transactions import LastOpenLists
from txnwatch.state.model.facts import Barrier, CensusTaken, CompletionTimes, Fact, PartitionNotice, StandsAt
from txnwatch.state.model.findings import (
    BucketCount,
    CensusReason,
    CensusResult,
    Finding,
    OpenTransactions,
    OutstandingGap,
    ReadLimitReached,
    Unproven,
)
from txnwatch.state.model.values import TopicPartition
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.streaming.log.hidden_participants import hidden_participants
from txnwatch.streaming.log.transaction_fold import HeldBytes
from txnwatch.streaming.source import census_schedule as census
from txnwatch.streaming.source import lister as listing
from txnwatch.streaming.source import tasks
from txnwatch.streaming.source.driver_file import DriverRequests, NextBarrierDue
from txnwatch.streaming.source.lister import can_skip
from txnwatch.streaming.source.offsets import NotBegun, Position, SourceOffset
from txnwatch.streaming.source.options import EARLIEST, LATEST, parse_options
from txnwatch.streaming.source.planner import Limits, ListedPartition, RereadRequest, census_of, requests_after
from txnwatch.streaming.source.tasks import TaskPlan, plan_reads

POLICY = DetectionPolicy(unreadable_tries=2, unreadable_ms=0)
_OPTIONS = parse_options(
    {"kafka.bootstrap.servers": "simulated:1", "subscribePattern": ".*", "metadataRefreshMs": "1", "buckets": "1"}
)
_LOG_BYTES = 150  # about what a record of the coordinators' log has
_NEVER_S = 1e9  # the census of the beginning, and those that are asked for, must do
_SHARE_BY_CENSUS = 0.3
_SHARE_BEHIND = 0.4
_MUCH = 300
_SHARE_BY_LOOKS = 0.4  # no round of the census: only where a last stable offset stands is a leader asked
_SHARE_LEFT_OUT = 0.6
_IN_A_RACK = 0.3  # data is read from followers where this is safe
_SLOW_TASKS = 0.3  # tasks have older metadata than their plan now and then
_FIGURES = (BucketCount, OpenTransactions)
_NOTHING = (CensusResult(()),)
_TASK_SIZE = 4  # offsets worth a task here: small worlds have several plans a batch, too


def _nothing_happens() -> None:
    """In place of World.churn: a mock object takes a fifth of the time of a seed."""


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What one attempt at a batch emitted, with the ticks of its listings and of its end.

    Attributes:
        metadata: the tick of the Metadata answer that the listing for D has used.
        before: the tick the batch before it began at: as old may a census be that a candidate rests on.
    """

    emitted: list[Finding]
    barrier: Barrier
    since: int
    data_listed: int
    metadata: int
    until: int
    before: int = 0
    is_committed: bool = True


@dataclass(slots=True)
class ReaderListing:
    """An offset that was planned, with the ticks of its first question, of the last answer for D, and of Metadata."""

    end: SourceOffset
    since: int
    data_listed: int
    metadata: int


class WorldReader:
    """One query over a world.

    Attributes:
        done: the offset committed last.
        rereads: what the driver has asked its source to read, or to have described, again.
        problems: barriers that were left out and must not be.
        gaps: what the last batch could not read and no reading or census has made whole.
        seen: what happened how often.
    """

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world = world
        self.rng = rng
        self.seen: Counter[str] = Counter()
        self.spreads_the_log = False  # over the tasks of a batch, also after its first reading
        bucket_count = 1 + rng.randrange(3)
        self.view = self.new_view(world, rng)
        self.options = replace(
            _OPTIONS,
            metadata_refresh_s=0.0,
            buckets=bucket_count,
            state_partitions=1,
            starting_offsets=EARLIEST if rng.random() < 0.5 else LATEST,
            census_interval_s=0.0,
            heal_interval_s=rng.choice((0.0, _NEVER_S)),
        )
        if rng.random() < _SHARE_BY_CENSUS:
            topics = sorted({partition.topic for partition in world.data})
            scanned = tuple(topic for topic in topics if rng.random() < 0.5) or ("nothing",)
            self.options = replace(self.options, pattern=None, topics=scanned, census_pattern=".*")
        self.lister = listing.Lister(self.options, self.view, self.now_ms)  # type: ignore[arg-type]
        if self.options.heal_interval_s == _NEVER_S:
            self.lister.schedule.behind_due_s = math.inf  # nor does a census hide what a gap that is read again shows
        data_limit = 1 + rng.randrange(8) if rng.random() < 0.4 else None
        self.limits = Limits(data_limit)
        self.log_bytes, self.tasks = tasks.LOG_BYTES, 1
        self.data_bytes: int | None = None  # of data in a batch, of all tasks together
        if rng.random() < 0.3:
            self.log_bytes = (1 + rng.randrange(6)) * _LOG_BYTES
            self.options = replace(self.options, driver_file="driver")
        self.crashes, self.lateness = 0.15 * rng.random() if rng.random() < 0.5 else 0.0, 0.1
        self.done = SourceOffset.beginning()
        self.rereads: set[RereadRequest] = set()
        chance = random.Random(repr(rng.getstate()[1][:4]))  # of its own: the reader's draws stay the same
        self.leaves_out, self.has_rounds = chance.random() < _SHARE_LEFT_OUT, chance.random() < 1 - _SHARE_BY_LOOKS
        self.view.has_rack, self.view.has_slow_tasks = chance.random() < _IN_A_RACK, chance.random() < _SLOW_TASKS
        self.forgets = chance.random() < SHARE_FORGETFUL and STARTS_AGAIN in world.setting.faults
        if not self.has_rounds:
            self.options = replace(self.options, census_interval_s=_NEVER_S)
            self.lister.options = self.lister.schedule.options = self.options
            self.lister.schedule.behind_due_s = float("inf")
        self.starts_at_stable = world.setting.starts_at_stable
        if self.starts_at_stable:
            self.options = replace(self.options, starting_offsets=LATEST)
            self.lister.options = replace(self.lister.options, starting_offsets=LATEST)
        self.judged: NextBarrierDue | None = None
        self.remembered = LastOpenLists()
        self.unproven: list[Unproven] = []
        self.problems: list[str] = []
        self.gaps: dict[TopicPartition, int] = {}
        self.stores = [DictStore() for _ in range(bucket_count)]
        self.rows = [encode_bucket(BucketState()) for _ in range(bucket_count)]
        self.before = 0
        self.straggler: TopicPartition | None = None

    def new_view(self, world: World, rng: random.Random) -> View:
        return View(world, rng, rng.choice((0.0, 0.0, 0.05, 0.2)), rng.choice((0.0, 0.0, 0.3)))

    def now_ms(self) -> int:
        """Our clock, which is right."""
        return self.world.clocks.now_ms

    def fall_behind(self, rng: random.Random) -> None:
        """Perhaps: one partition gets far more than a batch may read, among what others do, and batches are cut."""
        if rng.random() >= _SHARE_BEHIND or not self.world.data:
            return
        log = self.world.data[rng.choice(sorted(self.world.data))]
        for _ in range(rng.choice((0, 3, 10))):
            self.world.step()
            log.write_much(rng.randrange(12))
        self.data_bytes, max_read_s = rng.choice((None, 100, 400, 1500)), rng.choice((None, 1.0, 3.0))
        self.options = replace(self.options, driver_file="driver", max_read_s=max_read_s)
        self.lister.schedule.behind_due_s = 0.0
        self.straggler = log.partition
        self.seen["a partition is far behind"] += 1

    def stay_behind(self) -> None:
        """From now on every request is answered, and next to nothing of the data is read."""
        self.crashes, self.lateness = 0.0, 0.0
        self.view.unanswered = self.view.throttled = 0.0
        self.limits, self.log_bytes = Limits(data_offsets=1), tasks.LOG_BYTES
        log = self.world.data.get(self.straggler) if self.straggler is not None else None
        if log is not None:
            log.write_much(_MUCH)
            self.world.commit(log)

    def settle(self) -> None:
        """From now on nothing cuts a batch and every request is answered."""
        self.limits, self.crashes, self.lateness = Limits(), 0.0, 0.0
        self.view.unanswered = self.view.throttled = 0.0
        self.view.has_slow_tasks, self.options = False, replace(self.options, driver_file=None)
        self.lister.schedule.options = replace(self.options, heal_interval_s=0.0)
        self.lister.schedule.heal_due_s = 0.0

    def batch(self, on_result: Callable[[BatchResult], None]) -> bool:
        """Runs one micro-batch, and repeats it until it is committed; returns whether there was one."""
        found = self.list_ends()
        if found is None:
            return False
        end = SourceOffset.from_json(json.loads(json.dumps(found.end.to_json())))
        found = replace(found, end=end)
        while True:
            kept = [dict(store.rows) for store in self.stores], list(self.rows)
            result = self.attempt(found)
            result = replace(result, is_committed=self.rng.random() >= self.crashes)
            on_result(result)
            if result.is_committed:
                break
            self.seen["crash between batch and commit"] += 1
            self.world.note(f"batch {end.barrier} dies before it is committed")
            for store, rows in zip(self.stores, kept[0], strict=True):
                store.rows = rows
            self.rows = kept[1]
            self.seen[STARTS_AGAIN] += self.forgets and start_again(self)
            self.world.churn()
        self.done, self.before = end, found.since
        self.unproven = [unproven for unproven in result.emitted if isinstance(unproven, Unproven)]
        if self.rng.random() >= self.lateness:  # the file is written a moment late now and then
            self.rereads = self.requests_after(self.remembered.whole(result.emitted))
            self.judged = NextBarrierDue(end.barrier, self.due_ms(result.emitted))
        unread = [gap for gap in result.emitted if isinstance(gap, OutstandingGap | ReadLimitReached)]
        self.gaps = {gap.partition: gap.gap if isinstance(gap, OutstandingGap) else gap.from_offset for gap in unread}
        note_read(self.world, end, result.barrier, self.gaps)
        return True

    def requests_after(self, emitted: list[Finding]) -> set[RereadRequest]:
        """What the driver asks its source for."""
        rereads = requests_after(emitted, {})
        standing = [at.partition for one in emitted if isinstance(one, OpenTransactions) for at in one.blocked]
        known = sum(census_of(partition, CensusReason.STANDING) not in rereads for partition in standing)
        self.seen["last stable offset stands, held by somebody known"] += known
        self.seen["last stable offset stands, held by nobody known"] += len(standing) - known
        return rereads

    def list_ends(self) -> ReaderListing | None:
        """Lists D, then T, with the real lister; None if no broker answered."""
        world = self.world
        since = world.tick
        self.lister.limits = self.limits
        moments: list[tuple[int, int]] = []

        def now_ms() -> int:
            moments.append((world.tick, self.view.refreshed))
            return self.now_ms()

        self.lister.now_ms = now_ms
        self.lister.idle_until_s = math.inf if self.leaves_out else 0.0  # the argument holds without an end
        requested = DriverRequests(frozenset(self.rereads), self.judged if self.leaves_out else None)

        def read_requests(_: str | None) -> DriverRequests:
            return requested

        with (
            mock.patch.object(listing, "read_driver_file", read_requests),
            mock.patch.object(listing, "can_skip", self.can_skip),
            mock.patch.object(self.lister, "look_where_it_stands", self.look_where_it_stands),
        ):
            end = self.lister.next_offset(self.done)  # type: ignore[arg-type]
        if end is None:
            return None
        world.note(f"barrier {end.barrier} listed: {_ends(end)}")
        self.seen["begins above the start of a log"] += sum(
            self.starts_at_stable and partition in self.world.data and start > 0
            for partition, start in end.begun.items()
        )
        return ReaderListing(end, since, *moments[0])

    def look_where_it_stands(
        self, previous: SourceOffset, answers: Mapping[TopicPartition, ListedPartition]
    ) -> dict[TopicPartition, StandsAt]:
        """The looks; where rounds show everything they take no time, so the other draws stay the same."""
        with mock.patch.object(self.view, "is_still", self.has_rounds):
            return listing.Lister.look_where_it_stands(self.lister, previous, answers)

    def due_ms(self, emitted: Iterable[Finding]) -> int:
        """When the next barrier has to be, as the driver works it out."""
        return min(finding.due_ms for finding in emitted if isinstance(finding, BucketCount))

    def is_left_out(self, previous: SourceOffset, following: SourceOffset, judged: NextBarrierDue | None) -> bool:
        """The rule of the source; a mutant has another one."""
        return can_skip(previous, following, judged)

    def can_skip(self, previous: SourceOffset, following: SourceOffset, judged: NextBarrierDue | None) -> bool:
        """The same, and a barrier that is left out is tried: it must emit nothing and change nothing."""
        if not self.is_left_out(previous, following, judged):
            return False
        self.seen["barrier left out"] += 1
        self.world.note(f"barrier {following.barrier} is left out")
        kept = [dict(store.rows) for store in self.stores], list(self.rows)
        with mock.patch.object(self.world, "churn", _nothing_happens):
            now = self.world.tick
            emitted = self.attempt(ReaderListing(following, now, now, self.view.refreshed)).emitted
        nothing = (*_NOTHING, *self.unproven)
        unexpected = [finding for finding in emitted if not isinstance(finding, _FIGURES) and finding not in nothing]
        unexpected += [finding for finding in emitted if isinstance(finding, OpenTransactions) and finding.blocked]
        changed = sorted({name for pair in zip(kept[1], self.rows, strict=True) for name in _changed_fields(*pair)})
        if kept[0] != [store.rows for store in self.stores]:
            changed.append("producers")
        if unexpected or changed:
            self.problems.append(f"LEFT OUT: barrier {following.barrier} emits {unexpected[:1]} and changes {changed}")
        for store, rows in zip(self.stores, kept[0], strict=True):
            store.rows = rows
        self.rows = kept[1]
        return True

    def attempt(self, found: ReaderListing) -> BatchResult:
        """Reads the ranges and runs the buckets, once."""
        log_size = _TASK_SIZE if self.spreads_the_log else tasks.LOG_OFFSETS_WORTH_A_TASK
        with mock.patch.multiple(tasks, OFFSETS_WORTH_A_TASK=_TASK_SIZE, LOG_OFFSETS_WORTH_A_TASK=log_size):
            plans = plan_reads(self.done, found.end, self.options, self.lister.census_of(found.end.barrier))
        self.tasks = len(plans)
        facts = [fact for plan in plans for fact in self.read(plan) if not isinstance(fact, CompletionTimes)]
        self.rng.shuffle(facts)
        facts = self.facts(facts)
        barrier = next(fact for fact in facts if isinstance(fact, Barrier))
        emitted: list[Finding] = []
        for number, store in enumerate(self.stores):
            self.world.churn()
            emitted.extend(self.process(number, store, facts))
        ticks = (found.since, found.data_listed, found.metadata, self.world.tick, self.before)
        return BatchResult(emitted, barrier, *ticks)

    def read(self, plan: TaskPlan) -> list[Fact]:
        """One task."""
        room = HeldBytes(self.log_bytes)
        reads = [tasks.reading_of_range(found, self.options, room) for found in plan.ranges]
        with mock.patch.multiple(tasks, LOG_BYTES=self.log_bytes, LOG_BYTES_AT_FIRST=self.log_bytes):
            budgets = tasks.budgets(plan, reads, self.options, 0.0)
        if budgets and self.data_bytes is not None:
            budgets[0] = replace(budgets[0], max_bytes=self.data_bytes // self.tasks)
        if budgets:
            self.view.read_within(reads, budgets)
        else:
            for read in reads:
                self.view.read(read)
        facts = [*tasks.plan_facts(plan, reads), *self.census(plan)]
        if plan.end is not None:
            facts += hidden_participants(facts, plan.end.positions, self.options.wants, self.view)  # type: ignore[arg-type]
        for notice in facts:
            if isinstance(notice, PartitionNotice):
                self.seen[f"notice {notice.kind}"] += 1
                self.world.note(f"notice {notice.kind} {notice.partition} from {notice.from_offset}: {notice.detail}")
        return facts

    def census(self, plan: TaskPlan) -> list[Fact]:
        """The census of the batch, if this task runs it."""
        if plan.census is None:
            return []
        with mock.patch.object(census, "describe_producers", lambda view, partitions: view.describe(partitions)):
            facts = list(census.take_census(self.view, plan.census))  # type: ignore[arg-type]
        (taken,) = [fact for fact in facts if isinstance(fact, CensusTaken)]
        shown = ", ".join(f"{f.partition}@{f.start_offset} of {f.producer_id}" for f in facts if f is not taken)
        self.world.note(f"census of {', '.join(map(str, taken.taken))}: open {shown or 'nothing'}")
        self.seen["census whole"] += len(taken.taken)
        self.seen["census failed"] += len(taken.failed)
        return facts

    def facts(self, facts: list[Fact]) -> list[Fact]:
        """What reaches the state; a mutant changes it on the way."""
        return facts

    def process(self, number: int, store: DictStore, facts: list[Fact]) -> list[Finding]:
        """One bucket: the facts of its producer ids and those that concern everybody."""
        count = len(self.stores)
        mine = [fact for fact in facts if getattr(fact, "producer_id", number) % count == number]
        bucket = decode_bucket(self.rows[number])
        bucket.number = number  # the driver remembers the open list of each bucket
        emitted = buckets.process(bucket, store, mine, POLICY, reports_partitions=number == 0)
        self.rows[number] = encode_bucket(bucket)
        return emitted


def _changed_fields(before: bytes, after: bytes) -> list[str]:
    """The stored fields of a bucket that differ, without the digest of the open list, which `decode_bucket` drops.

    A transaction joins that list when it is old enough. It is a figure, like those in `_FIGURES`.
    """
    was, now = decode_bucket(before), decode_bucket(after)
    return [one.name for one in fields(BucketState) if one.compare and getattr(was, one.name) != getattr(now, one.name)]


def _ends(end: SourceOffset) -> str:
    return ", ".join(f"{p.topic[:7]}-{p.partition}:{_shown(at)}" for p, at in end.positions.items())


def _shown(at: Position | NotBegun) -> str:
    return "not begun" if isinstance(at, NotBegun) else f"{at.offset}{'?' if at.is_stale else ''}"
