"""The judge knows everything, and asks two questions: was something false told, and was a hang missed?

FALSE: a candidate was emitted although at no moment from the barrier's last answer for D to the end of its batch
the span was there without a marker being owed to it; if it is gone since, from the first question for D. (Not "at
the end": what changes after an answer is not the state's fault, the ledger's confirming read is for that. Not "at
T": a log may be cut between listing and reading, and then what was read is what is true.) MISSED: the cluster is
healed, several batches have run, and a span that no marker is owed to has no candidate. LEFT: a candidate whose
span has ended, or was taken in by a live transaction that then ended, was never said to be over. OPEN: a gap that
never closed. FALSE STRAY: a stray write was told of data that was all of one transaction and never hung.

Where there is no scan, a candidate rests on a census that may be as old as the batch before. What a batch said that
died before it was committed is judged as true or false, but not remembered: the ledger looks again at what it has
open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from simulation.reader import Said
from simulation.world import SpanId, World
from txnwatch.state.emitted import CoverInDoubt, SpanCandidate, SpanEnded, StrayWrite
from txnwatch.state.ids import TopicPartition

END = 1_000_000


@dataclass
class Judge:
    """What was told, and what is wrong with it."""

    world: World
    told: dict[tuple[TopicPartition, int], SpanId] = field(default_factory=dict)
    found: set[SpanId] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def hear(self, said: Said) -> None:
        """One attempt at a batch; only what was committed is remembered."""
        before, found = dict(self.told), set(self.found)
        for emitted in said.emitted:
            if isinstance(emitted, SpanCandidate):
                self._candidate(emitted, said)
            elif isinstance(emitted, CoverInDoubt):
                self._doubt(emitted.candidate)
            elif isinstance(emitted, StrayWrite):
                self._stray_write(emitted, said)
            elif isinstance(emitted, SpanEnded):
                self.world.seen[f"ended: {emitted.how}"] += 1
                self.world.note(f"over ({emitted.how}): {emitted.partition}@{emitted.span.start_offset}")
                self.told.pop((emitted.partition, emitted.producer_id), None)
        if not said.is_committed:
            self.told, self.found = before, found

    def _candidate(self, candidate: SpanCandidate, said: Said) -> None:
        span = candidate.span
        name = SpanId(candidate.partition, span.topic_id, candidate.producer_id, span.start_offset)
        self.world.seen["candidate"] += 1
        place = (candidate.partition, candidate.producer_id)
        if self.told.get(place) != name:
            barriers = f"barriers {candidate.first_barrier}, {said.barrier.number}"
            self.world.note(
                f"CANDIDATE {name.partition}@{name.start} of {name.producer_id} ({candidate.reason}), {barriers}"
            )
        self.told[place] = name
        if span.by_census:
            said = replace(said, since=said.before, data_listed=said.before)
        if not any(self._hung(real, said) for real in self._same(name)):
            self.problems.append(f"FALSE: {name} at barrier {said.barrier.number}")

    def _doubt(self, held: SpanCandidate) -> None:
        """The ledger asks the coordinator, and finds what the log's view covers."""
        self.world.seen["cover in doubt"] += 1
        name = SpanId(held.partition, held.span.topic_id, held.producer_id, held.span.start_offset)
        found = [real for real in self._same(name) if real in self.world.hanging]
        if found:
            self.world.note(f"DOUBT {name.partition}@{name.start} of {name.producer_id} is held only by our view")
            self.world.seen["hang behind a stale view"] += 1
        self.found.update(found)

    def _stray_write(self, stray: StrayWrite, said: Said) -> None:
        name = SpanId(stray.partition, stray.topic_id, stray.producer_id, stray.joined.start_offset)
        self.world.seen["stray write told"] += 1
        self.world.note(f"STRAY WRITE {name.partition}@{name.start} of {name.producer_id}: {stray.joined}")
        end = stray.joined.offset + 1 if stray.joined.offset >= 0 else END  # not told: the log was not read so far
        offsets = range(name.start, end)
        has_mixed = self.world.owners.is_mixed(stray.topic_id, stray.partition, stray.producer_id, offsets)
        if not has_mixed and not self._same(name):
            self.problems.append(f"FALSE STRAY: {name} at barrier {said.barrier.number}")

    def _hung(self, span: SpanId, said: Said) -> bool:
        if self.world.hanging.get(span, said.until + 1) <= said.until:
            return True
        since = {False: said.since, True: said.data_listed}
        return any(
            begun <= said.until and end > since[is_held] for begun, end, is_held in self.world.was_hanging.get(span, ())
        )

    def _same(self, name: SpanId) -> list[SpanId]:
        """The span as the truth knows it. It may begin earlier: its beginning was not read, or taken for over.

        The confirming read has the beginning from the leader; what counts here is that the data is part of the span.
        """
        known = (*self.world.hanging, *self.world.was_hanging)
        return [real for real in known if real[:3] == name[:3] and real.start <= name.start]

    def close(self, outstanding: Mapping[TopicPartition, int]) -> list[str]:
        """After everything has come to rest: what was missed, what was left, and which gaps never closed."""
        self.problems.extend(f"OPEN: the gap of {gap} never closed" for gap in outstanding)
        truth = set(self.world.hanging)
        found = set(self.found)
        for name in self.told.values():
            match = [real for real in self._same(name) if real in truth]
            found.update(match)
            if not match and not self._is_held(name):
                self.problems.append(f"LEFT: {name} is still a candidate")
        self.problems.extend(f"MISSED: {span}" for span in sorted(truth - found))
        return self.problems

    def _is_held(self, name: SpanId) -> bool:
        """Taken in by a transaction that is stuck in Prepare*: told, covered, and not over."""
        at = self.world.data.get(name.partition)
        if at is None or at.topic_id != name.topic_id:
            return False
        producer = at.producers.get(name.producer_id)
        is_open = producer is not None and producer.open_start is not None
        return is_open and self.world.coordinators.is_held(name.producer_id, name.partition)
