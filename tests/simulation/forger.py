"""A client of the simulated cluster that writes forged events to the events topic.

It writes between any two batches, and sometimes just before an event of the ledger, with the same sequence.

It knows everything and means harm. Its events claim that an open transaction has long been due for an abort, or that a
hang is over. It writes sequences, places and commands of its own. What it draws comes from its own source of
chance, so that a cluster does the same with it and without.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from simulation.world import World
from support.incidents import an_event, an_evidence
from support.shared_log import SharedLog, SharedLogSink
from txnwatch.state.incidents.abort_protocol import action
from txnwatch.state.model.incident import (
    Decision,
    EndedBy,
    EndKind,
    ExpectedOutcome,
    IncidentEvent,
    OutcomeDoubt,
    Resolution,
    resolved,
    span_incident_id,
)

EVIL = "sh -c 'rm -rf /'"
_OVER = Resolution(how=EndKind.ABORTED, by=EndedBy.COORDINATOR, marker_offset=3, at_ms=5)
_ENDS = (EndKind.ABORTED, EndKind.COMMITTED, EndKind.REFUTED, EndKind.NO_LONGER_OPEN, EndKind.ABSORBED)
_INT32 = 2**31 - 1
Change = Callable[[IncidentEvent, random.Random], IncidentEvent]


def _an_outcome(event: IncidentEvent, rng: random.Random) -> IncidentEvent:
    return replace(event, expected_outcome=ExpectedOutcome(rng.choice(("abort", "none", "commit"))), action=None)


def _a_time(event: IncidentEvent, _: random.Random) -> IncidentEvent:
    return replace(event, detected_at_ms=0, open_since_ms=0, time_ms=0)


def _an_end(event: IncidentEvent, _: random.Random) -> IncidentEvent:
    """An end of another kind for each sequence, some without the outcome."""
    how = _ENDS[event.sequence % len(_ENDS)]
    end = resolved(event, event.time_ms, replace(_OVER, how=how))
    if event.sequence % 2:
        return end
    return replace(end, expected_outcome=ExpectedOutcome.UNKNOWN, outcome_doubt=OutcomeDoubt.NO_RECORD)


def _a_sequence(event: IncidentEvent, rng: random.Random) -> IncidentEvent:
    return replace(event, sequence=rng.choice((_INT32, event.sequence + 1_000, 999_999)))


def _a_place(event: IncidentEvent, rng: random.Random) -> IncidentEvent:
    return replace(event, txn_start_offset=rng.randrange(50), producer_id=event.producer_id + rng.randrange(2))


def _data(event: IncidentEvent, rng: random.Random) -> IncidentEvent:
    evidence = replace(event.evidence, last_sequence=rng.randrange(50), end_before=rng.randrange(50))
    return replace(event, producer_epoch=rng.randrange(4), evidence=evidence)


def _an_announcement(event: IncidentEvent, rng: random.Random) -> IncidentEvent:
    return replace(event, action=action(Decision.ABORT, rng.choice(("simulated", "another")), 1))


def _a_command(event: IncidentEvent, _: random.Random) -> IncidentEvent:
    return replace(event, suggested_command=EVIL)


CHANGES: tuple[Change, ...] = (
    *(_an_outcome, _a_time, _an_end, _a_sequence, _a_place, _data, _an_announcement, _a_command),
)


class Forger:
    """Writes to a log that a ledger follows."""

    def __init__(self, world: World, log: SharedLog, seed: int, *, hides: bool = False) -> None:
        """`hides` lets it write records that are no events, too."""
        self._world, self._log = world, log
        self._rng = random.Random(seed)
        self._hides = random.Random(seed + 1) if hides else None
        self.is_over = False

    def write(self) -> None:
        """None, one or a few records."""
        if self.is_over:
            return
        if self._hides is not None and self._log.records and self._hides.random() < 0.2:
            self._log.overwrite(self._hides.choice(self._log.records).incident_id)
            self._world.seen["forged: no event"] += 1
        for _ in range(self._rng.choice((0, 0, 1, 1, 2, 4))):
            event = self._of_an_incident() if self._rng.random() < 0.7 else self._of_what_is_open()
            if event is None:
                continue
            for change in self._rng.sample(CHANGES, self._rng.choice((0, 1, 1, 2))):
                event = change(event, self._rng)
            self._log.records.append(event)
            self._world.seen["forged"] += 1

    def be_quicker(self, events: Sequence[IncidentEvent]) -> None:
        """Before some events of the ledger, a record with the same sequence: the first on the topic counts."""
        for event in () if self.is_over else events:
            if self._rng.random() < (0.1 if event.is_open else 0.5):
                forged = replace(event, status="updated", resolution=None, sequence=max(event.sequence, 1))
                self._log.records.append(_an_outcome(forged, self._rng))
                self._world.seen["forged just before"] += 1

    def _of_an_incident(self) -> IncidentEvent | None:
        last = list(self._log.compacted.values())[-20:]
        if not last:
            return None
        event = _an_outcome(self._rng.choice(last), self._rng)
        return replace(event, sequence=min(event.sequence + 1, _INT32), status="updated", resolution=None)

    def _of_what_is_open(self) -> IncidentEvent | None:
        """An event claims that it hangs and is due for an abort, whether it is healthy or not."""
        found = [(log, row) for log in self._world.data.values() for row in log.open_spans() if log.is_listable]
        if not found:
            return None
        log, (producer_id, start) = self._rng.choice(found)
        known = log.producers[producer_id]
        return an_event(
            span_incident_id("cluster", log.topic_id, log.partition.partition, producer_id, start),
            topic=log.partition.topic,
            partition=log.partition.partition,
            topic_id=log.topic_id,
            producer_id=producer_id,
            producer_epoch=known.epoch,
            transactional_id=None,
            txn_start_offset=start,
            detected_at_ms=0,
            evidence=an_evidence(),
            expected_outcome=self._rng.choice(("abort", "none")),
        )


class RacedSink(SharedLogSink):
    """The way of writing of a ledger before which a forger is sometimes quicker."""

    def __init__(self, log: SharedLog, forger: Forger) -> None:
        super().__init__(log)
        self._forger = forger

    def publish(self, events: Sequence[IncidentEvent]) -> None:
        """See EventsTopicWriter."""
        self._forger.be_quicker(events)
        super().publish(events)
