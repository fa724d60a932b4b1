"""The judge knows everything, and asks two questions: was a candidate false, and was a hang missed?

FALSE: a candidate was emitted although at no moment from the barrier's last answer for D to the end of its batch
the span was there without a marker being owed to it; if it is gone since, from the first question for D. (Not "at
the end": what changes after an answer is not the state's fault, the ledger's confirming read is for that. Not "at
T": a log may be cut between listing and reading, and then what was read is what is true.) MISSED: the cluster is
healed, several batches have run, and a span that no marker is owed to has no candidate. LEFT: a candidate whose
span has ended, or was taken in by a live transaction that then ended, was never said to be over. OPEN: a gap that
never closed.

Three ends are not judged. A span none of whose data was ever there to be read, because retention was faster, cannot
be known from the log (a census would know it). A partition with a gap whose last stable offset hides behind the
log's start stays unproven, and says so in every batch, until a census heals it. What a batch said that died before
it was committed is judged as true or false, but not remembered: the ledger looks again at what it has open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from simulation.encoding import Data
from simulation.reader import Said
from simulation.view import View
from simulation.world import SpanId, World
from txnwatch.state.emitted import SpanCandidate, SpanEnded
from txnwatch.state.ids import TopicPartition

# A stray span is found uncovered, then a transaction of its producer takes the partition in and is complete again,
# all between two proven looks at T, its marker above the last D: the state sees no live transaction at either look.
# The facts tell the last record of a range only, not what was live in between. The confirming read refutes it.
TAKEN_IN_AND_DONE_IS_NOT_SEEN = True


@dataclass
class Judge:
    """What was told, and what is wrong with it."""

    world: World
    view: View
    told: dict[tuple[TopicPartition, int], SpanId] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def hear(self, said: Said) -> None:
        """One attempt at a batch; only what was committed is remembered."""
        before = dict(self.told)
        for emitted in said.emitted:
            if isinstance(emitted, SpanCandidate):
                self._candidate(emitted, said)
            elif isinstance(emitted, SpanEnded):
                self.world.seen[f"ended: {emitted.how}"] += 1
                self.world.note(f"over ({emitted.how}): {emitted.partition}@{emitted.span.start_offset}")
                self.told.pop((emitted.partition, emitted.producer_id), None)
        if not said.is_committed:
            self.told = before

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
        if not any(self._hung(real, said) for real in self._same(name)):
            self.problems.append(f"FALSE: {name} at barrier {said.barrier.number}")

    def _hung(self, span: SpanId, said: Said) -> bool:
        if self.world.hanging.get(span, said.until + 1) <= said.until:
            return True
        since = {False: said.since, True: said.data_listed}
        if TAKEN_IN_AND_DONE_IS_NOT_SEEN and not self.world.coordinators.is_held(span.producer_id, span.partition):
            since[True] = 0
        return any(
            begun <= said.until and end > since[is_held] for begun, end, is_held in self.world.was_hanging.get(span, ())
        )

    def _same(self, name: SpanId) -> list[SpanId]:
        """The span as the truth knows it: it may begin earlier, where its beginning could not be read."""
        known = (*self.world.hanging, *self.world.was_hanging)
        return [
            real for real in known if real == name or (real[:3] == name[:3] and self._is_beginning_unread(real, name))
        ]

    def _is_beginning_unread(self, real: SpanId, name: SpanId) -> bool:
        return real.start < name.start and (real.topic_id, real.partition, real.start) not in self.view.served

    def close(self, outstanding: Mapping[TopicPartition, int]) -> list[str]:
        """After everything has come to rest: what was missed, what was left, and which gaps never closed."""
        blind = {partition for partition in outstanding if self._waits_for_a_census(partition)}
        self.problems.extend(f"OPEN: the gap of {gap} never closed" for gap in outstanding if gap not in blind)
        truth = set(self.world.hanging)
        found: set[SpanId] = set()
        for name in self.told.values():
            match = [real for real in self._same(name) if real in truth]
            found.update(match)
            if not match and not self._is_held(name) and name.partition not in blind:
                self.problems.append(f"LEFT: {name} is still a candidate")
        self.problems.extend(
            f"MISSED: {span}"
            for span in sorted(truth - found)
            if self._was_served(span) and span.partition not in blind
        )
        return self.problems

    def _waits_for_a_census(self, partition: TopicPartition) -> bool:
        """Whether the last stable offset hides behind the log's start: then no reading can close a gap."""
        at = self.world.data.get(partition)
        return at is not None and at.start > 0 and at.last_stable_offset == at.start

    def _is_held(self, name: SpanId) -> bool:
        """Taken in by a transaction that is stuck in Prepare*: told, covered, and not over."""
        at = self.world.data.get(name.partition)
        if at is None or at.topic_id != name.topic_id:
            return False
        producer = at.producers.get(name.producer_id)
        is_open = producer is not None and producer.open_start is not None
        return is_open and self.world.coordinators.is_held(name.producer_id, name.partition)

    def _was_served(self, span: SpanId) -> bool:
        return any(
            (span.topic_id, span.partition, entry.offset) in self.view.served
            for entry in self.world.data[span.partition].entries
            if entry.offset >= span.start
            and isinstance(entry.body, Data)
            and entry.body.producer_id == span.producer_id
        )
