"""Compares the reports with the true state of the simulated cluster: is a report false, and is a hang missed?

A problem begins with its kind:

FALSE: a candidate was emitted, but at no time in its window was the span open without an outstanding marker. The window
begins with the last answer for D of the barrier, or with the first request for D if the span has ended since. It ends
with the batch. (It does not begin at the end of the batch: the state cannot know what changes after an answer, and the
fresh read of the ledger checks that. It does not begin at T: the log can be truncated between listing and reading, and
then the data that was read counts.) If two ids have the producer id, the fresh read must not confirm it while a
coordinator owes the marker. If the topic was replaced between Metadata and D, the fresh read must refute it:
ListOffsets has no topic id, so the end of the new log can be taken for that of the old one.
MISSED: the faults have ended, several batches have run, and a span without an outstanding marker has no candidate.
MISSED WHILE BEHIND: the same on a partition that is still behind; a census must have shown the hang.
NOT ENDED: the span of a candidate has ended, or a live transaction included it and has ended; this was never reported.
FALSE END: the end of a hang by a marker was reported, and the span hung continuously; or its partition is reported as
deleted, and it is there.
FALSE STRAY: a stray write was reported, but all data belongs to one transaction, never hung and never lost its marker.
GAP: a gap never closed.
UNTOLD HANG: nothing moves any more, or a part of the log has no leader. The owner of a true hang can be asked, and the
fresh read does not confirm its candidate.
UNREPORTED HANG, UNREPORTED PARTITION: nothing moves any more, and a hang or a hidden partition was not reported.

`time_oracle.py` checks the verdicts that depend on time, and `end_oracle.py` how their transactions end.

On a topic that is not scanned, a candidate depends on a census that may be as old as the previous batch. The findings
of a batch that failed before its commit are checked, but not remembered: the ledger reads its open incidents again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from simulation.end_oracle import EndOracle
from simulation.reader import BatchResult
from simulation.time_oracle import TimeOracle
from simulation.truth import Truth
from simulation.world import SpanId, World
from simulation.world_admin import WorldAdmin
from support.plans import run_reads
from txnwatch.state.evidence.confirmation import Answer
from txnwatch.state.incidents.confirm import confirm_contradicted, confirm_spans
from txnwatch.state.model.facts import Barrier
from txnwatch.state.model.findings import (
    CensusResult,
    CoverInDoubt,
    OwnerInDoubt,
    PartitionAlarm,
    SpanCandidate,
    SpanEnd,
    SpanEnded,
    StrayWrite,
    TransactionCandidate,
    TransactionMoved,
)
from txnwatch.state.model.values import TopicPartition, log_numbered

END = 1_000_000
TOLD_WITHOUT = "told while a part of the log has no leader"


@dataclass
class Oracle:
    """The reports so far, and the problems in them.

    Attributes:
        candidates: the last candidate of each reported span.
        undecided: hangs that were asked about while a part of the log was away, where a second owner could be.
        undescribed: partitions that a census has failed to describe, and none has described since.
        hanging: what hung when the last batch had emitted its findings; an abort after it is not read any more.
    """

    world: World
    reported: dict[tuple[TopicPartition, int], SpanId] = field(default_factory=dict)
    found: set[SpanId] = field(default_factory=set)
    undecided: set[SpanId] = field(default_factory=set)
    undescribed: set[TopicPartition] = field(default_factory=set)
    hanging: frozenset[SpanId] = frozenset()
    candidates: dict[SpanId, SpanCandidate] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    time: TimeOracle = field(init=False)
    ends: EndOracle = field(init=False)

    def __post_init__(self) -> None:
        self.time = TimeOracle(self.world)
        self.ends = EndOracle(self.world)

    def check(self, result: BatchResult) -> None:
        """One attempt at a batch; only what was committed is remembered."""
        before, found, reported = dict(self.reported), set(self.found), set(self.time.reported)
        for emitted in result.emitted:
            if isinstance(emitted, SpanCandidate):
                self._candidate(emitted, result)
            elif isinstance(emitted, CoverInDoubt):
                self._doubt(emitted.candidate)
            elif isinstance(emitted, OwnerInDoubt):
                self._ask(emitted.candidate)
            elif isinstance(emitted, StrayWrite):
                self._stray_write(emitted, result)
            elif isinstance(emitted, TransactionCandidate | TransactionMoved):
                self.problems.extend(self._about_transaction(emitted, result.barrier))
            elif isinstance(emitted, PartitionAlarm):
                self.world.seen["given up"] += emitted.notice.detail.startswith("given up")
            elif isinstance(emitted, SpanEnded):
                self.world.seen[f"ended: {emitted.how}"] += 1
                self.world.note(f"over ({emitted.how}): {emitted.partition}@{emitted.span.start_offset}")
                self._ended(emitted, result)
        if not result.is_committed:
            self.reported, self.found, self.time.reported = before, found, reported
        else:
            self._take_census(result)
        self.hanging = frozenset(self.world.hanging)

    def _about_transaction(self, emitted: TransactionCandidate | TransactionMoved, barrier: Barrier) -> Iterator[str]:
        if isinstance(emitted, TransactionMoved):
            return self.ends.check(emitted)
        return self.time.check(emitted, barrier)

    def _ended(self, ended: SpanEnded, result: BatchResult) -> None:
        """A marker that was read cannot end a span that hung before and after the batch."""
        name = self.reported.pop((ended.partition, ended.producer_id), None)
        log = self.world.data.get(ended.partition)
        if ended.how is SpanEnd.PARTITION_GONE and log is not None and log.topic_id == ended.span.topic_id:
            self.problems.append(f"FALSE END: {ended.partition} is not deleted at barrier {result.barrier.number}")
        if ended.how is SpanEnd.MARKER and name is not None and self.world.hanging.get(name, END) <= result.before:
            self.problems.append(f"FALSE END: {name} at barrier {result.barrier.number}")

    def _take_census(self, result: BatchResult) -> None:
        """Remembers what is not described, as a watch does (watch/coverage.py)."""
        for taken in result.emitted:
            if isinstance(taken, CensusResult):
                kept = set[TopicPartition]() if taken.is_round else self.undescribed.difference(taken.described)
                self.undescribed = kept.union(taken.failed)

    def _candidate(self, candidate: SpanCandidate, result: BatchResult) -> None:
        span = candidate.span
        name = SpanId(candidate.partition, span.topic_id, candidate.producer_id, span.start_offset)
        self.world.seen["candidate"] += 1
        place = (candidate.partition, candidate.producer_id)
        if self.reported.get(place) != name:
            barriers = f"barriers {candidate.first_barrier}, {result.barrier.number}"
            self.world.note(f"CANDIDATE {name.partition}@{name.start} of {name.producer_id}, {barriers}")
        self.reported[place] = name
        self.candidates[name] = candidate
        if not self.world.is_whole:
            self.problems.extend(self._untold(name))
        is_seen_now = span.seen_at is not None and span.seen_at >= result.barrier.number - 1
        if span.by_census or is_seen_now:
            result = replace(result, since=result.before, data_listed=result.before)
        if candidate.producer_id in self.world.shared:
            self._ask_about_two(candidate)
        elif not any(self._hung(real, result) for real in self._same(name)) and not self._is_refuted(candidate, result):
            self.problems.append(f"FALSE: {name} at barrier {result.barrier.number}")

    def _is_refuted(self, candidate: SpanCandidate, result: BatchResult) -> bool:
        """Whether the partition has another log that no listing can show, and the fresh read of the ledger says so.

        The topic was replaced between Metadata and D; or an old replica leads again, whose log ends where our reading
        ended (decision 0049).
        """
        log, replaced = self.world.data.get(candidate.partition), self.world.replaced.get(candidate.span.topic_id)
        is_replaced = replaced is not None and result.metadata <= replaced <= result.data_listed
        if not is_replaced and not (log is not None and log.has_returned):
            return False
        self.world.seen["candidate of a replaced topic" if is_replaced else "candidate of a log that was replaced"] += 1
        found = run_reads(confirm_spans([candidate]), self._admin())  # type: ignore[arg-type]
        return all(one.answer is Answer.REFUTED for _, one in found)

    def _ask_about_two(self, candidate: SpanCandidate) -> None:
        """Two ids have the producer id, so the fresh read decides; what it confirms must be true now."""
        for _, found in run_reads(confirm_spans([candidate]), self._admin()):  # type: ignore[arg-type]
            self.world.seen[f"two ids, candidate {found.answer}"] += 1
            is_owed = self.world.coordinators.owes(candidate.producer_id, candidate.partition)
            if found.answer is Answer.CONFIRMED and is_owed:
                self.problems.append(f"FALSE: a marker is owed to {candidate.partition} of {candidate.producer_id}")

    def _doubt(self, held: SpanCandidate) -> None:
        """The ledger asks the coordinator, and so finds a hang that the view of the log hides."""
        self.world.seen["cover in doubt"] += 1
        name = SpanId(held.partition, held.span.topic_id, held.producer_id, held.span.start_offset)
        found = [real for real in self._same(name) if real in self.world.hanging]
        if found:
            self.world.note(f"DOUBT {name.partition}@{name.start} of {name.producer_id} is held only by our view")
            self.world.seen["hang behind a stale view"] += 1
        self.found.update(found)
        for _, answer in run_reads(confirm_contradicted([held]), self._admin()):  # type: ignore[arg-type]
            if answer.answer is Answer.CONFIRMED and self.world.coordinators.owes(held.producer_id, held.partition):
                self.problems.append(f"FALSE: {name} was confirmed, and its coordinator will end it")

    def _ask(self, candidate: SpanCandidate) -> None:
        """The ledger asks the coordinators twice; a hang that it derives from their answers must be true now."""
        self.world.seen["owner in doubt"] += 1
        for _, found in run_reads(confirm_contradicted([candidate]), self._admin()):  # type: ignore[arg-type]
            if found.answer is Answer.CONFIRMED and found.producer is not None:
                # The reported span begins where its leader has it: the state's span may be over, and another one open.
                start = found.producer.txn_start_offset
                name = SpanId(candidate.partition, candidate.span.topic_id, candidate.producer_id, start)
                real = [span for span in self._same(name) if span in self.world.hanging]
                self.world.note(
                    f"CONFIRMED {name.partition}@{name.start} of {name.producer_id}, whose owner was unread"
                )
                self.world.seen["owner found"] += 1
                self.found.update(real)
                if not real and self.world.coordinators.owes(candidate.producer_id, candidate.partition):
                    self.problems.append(f"FALSE: {name} was confirmed by the coordinators that answer")
            elif found.answer is Answer.UNKNOWN and not all(log.has_leader for log in self.world.logs):
                self.undecided.update(self._same_as(candidate))

    def _same_as(self, candidate: SpanCandidate) -> list[SpanId]:
        start = candidate.span.start_offset
        return self._same(SpanId(candidate.partition, candidate.span.topic_id, candidate.producer_id, start))

    def _admin(self) -> WorldAdmin:
        admin = WorldAdmin(self.world, Truth(), 0)
        admin.stands_still = True
        return admin

    def check_at_rest(self, last: BatchResult, unread: Collection[TopicPartition]) -> None:
        """While brokers or topics are missing and nothing moves: hidden partitions and provable hangs are reported.

        `unread` has the partitions that were not read in one of the last batches.
        """
        world, barrier = self.world, last.barrier
        failed, hidden = self.undescribed, world.hidden - world.forgotten
        read = {
            known.log: known
            for known in world.coordinators.transactions.values()
            if world.logs[known.log].is_listable and not world.is_log_hidden
        }
        for known in world.coordinators.transactions.values():
            if known.log in read and log_numbered(known.log) not in {*barrier.stale_coordinator, *unread}:
                unreported = {at for at in known.held if at.topic in hidden} - barrier.stale_data - failed
                self.problems.extend(
                    f"UNREPORTED PARTITION: {at} is hidden, and {known.transactional_id} holds it" for at in unreported
                )
        reported = self.found | {real for name in self.reported.values() for real in self._same(name)}
        owners = {
            known.value.producer_id
            for known in world.coordinators.transactions.values()
            if known.log in read and known.value is not None
            if log_numbered(known.log) not in unread  # what it was last seen to hold counts
        }
        is_log_away = not all(log.has_leader for log in world.logs)
        for span in world.hanging.keys() - reported - (self.undecided if is_log_away else set()):
            log = world.data.get(span.partition)
            is_read = log is not None and log.is_listable and span.partition.topic not in world.hidden
            is_read = is_read and span.partition not in {*barrier.stale_data, *unread, *failed}
            is_read = is_read and span.producer_id not in world.shared  # nobody can know which id has written it
            if is_read and span.producer_id in owners and not self._is_held(span):
                self.problems.append(f"UNREPORTED HANG: {span}, whose owner is in a part of the log that can be read")

        for name in sorted({*self.reported.values()}):
            self.problems.extend(self._untold(name))

    def _untold(self, name: SpanId) -> Iterator[str]:
        """The fresh read confirms a hang of an id whose part of the log has a leader, whichever other part has none.

        It needs that each part of the log was read to an end once, and that nobody else has the producer id. A log that
        was re-created counts as read only once all its parts are read at one barrier. An id that has moved needs two
        leaders: of the part with its record, and of the part of its present coordinator. A marker that the leader of
        the data has appended ends the hang for it, though it is not replicated yet.
        """
        world, candidate, at = self.world, self.candidates[name], self.world.data.get(name.partition)
        is_first_log = world.is_whole or world.log_number == 1
        is_read = world.read_whole_to.keys() == set(range(len(world.logs))) and is_first_log and not world.is_log_hidden
        view, moved = candidate.view, world.coordinators.moved
        places = {view.log_partition, moved.get(view.transactional_id, view.log_partition)} if view is not None else ()
        is_readable = at is not None and at.is_listable and name.partition.topic not in world.hidden
        is_real = any(real in world.hanging for real in self._same(name)) and self._is_open(name)
        is_real = is_real and name.producer_id not in world.shared
        is_led = bool(places) and all(world.logs[place].is_listable for place in places)
        if not (is_led and is_read and is_readable and is_real):
            return
        ((_, found),) = run_reads(confirm_spans([candidate]), self._admin())  # type: ignore[arg-type]
        world.seen["told" if world.is_whole else TOLD_WITHOUT] += 1
        if found.answer is not Answer.CONFIRMED:
            yield f"UNTOLD HANG: {name}: {found.why}"

    def _stray_write(self, stray: StrayWrite, result: BatchResult) -> None:
        name = SpanId(stray.partition, stray.topic_id, stray.producer_id, stray.joined.start_offset)
        self.world.seen["stray write reported"] += 1
        self.world.note(f"STRAY WRITE {name.partition}@{name.start} of {name.producer_id}: {stray.joined}")
        joined_at = stray.joined.offset
        end = joined_at + 1 if joined_at is not None else END  # not known: the log was not read so far
        offsets = range(name.start, end)
        has_mixed = self.world.owners.is_mixed(stray.topic_id, stray.partition, stray.producer_id, offsets)
        if not has_mixed and not self._same(name) and not any(map(name.is_part_of, self.world.reopened)):
            self.problems.append(f"FALSE STRAY: {name} at barrier {result.barrier.number}")

    def _hung(self, span: SpanId, result: BatchResult) -> bool:
        if self.world.hanging.get(span, result.until + 1) <= result.until:
            return True
        since = {False: result.since, True: result.data_listed}
        return any(
            begun <= result.until and end > since[is_held]
            for begun, end, is_held in self.world.was_hanging.get(span, ())
        )

    def _same(self, name: SpanId) -> list[SpanId]:
        """The true spans that contain the span. They may begin earlier: their beginning was not read, or is over.

        The fresh read gets the beginning from the leader; here it only matters that the data is part of the span.
        """
        known = (*self.world.hanging, *self.world.was_hanging)
        return [real for real in known if name.is_part_of(real)]

    def check_while_behind(self) -> list[str]:
        """While nothing moves and much is not read: every hang must be reported, by a census."""
        reported = {real for name in self.reported.values() for real in self._same(name)}
        self.problems.extend(
            f"MISSED WHILE BEHIND: {span}" for span in sorted(self.world.hanging.keys() - reported - self.found)
        )
        return self.problems

    def close(self, outstanding: Mapping[TopicPartition, int]) -> list[str]:
        """After the last batch: missed hangs, candidates whose end was not reported, and gaps that never closed."""
        self.problems.extend(f"GAP: the gap of {gap} never closed" for gap in outstanding)
        truth, found = self.hanging & self.world.hanging.keys(), set(self.found)  # the last batch may be long ago
        for name in self.reported.values():
            match = [real for real in self._same(name) if real in truth]
            found.update(match)
            if not match and not self._is_held(name):
                self.problems.append(f"NOT ENDED: {name} is still a candidate")
        self.problems.extend(f"MISSED: {span}" for span in sorted(truth - found))
        self.problems.extend(self.time.close())
        return self.problems

    def _is_held(self, name: SpanId) -> bool:
        """Whether a transaction that is stuck in Prepare* holds the span: it was reported, and has not ended."""
        return self._is_open(name) and self.world.coordinators.is_held(name.producer_id, name.partition)

    def _is_open(self, name: SpanId) -> bool:
        """Whether the leader of the partition has the span open."""
        at = self.world.data.get(name.partition)
        if at is None or at.topic_id != name.topic_id:
            return False
        producer = at.producers.get(name.producer_id)
        return producer is not None and producer.open_start is not None and producer.open_start <= name.start
