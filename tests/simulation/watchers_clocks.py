"""Two watchers whose machines have different clocks, of brokers whose clocks differ, too.

The clock of the second watcher's machine is behind or ahead. In every second world it has begun later, too: the age
that it can prove is smaller, so it finds no overdue transaction, and only reads of them on the events topic. No client
forges events here, and what a watcher finds is true (the other oracles check that). A problem begins with its kind:

FALSE REFUTATION: an incident about a transaction, or a hang that this watcher has found itself, ends as refuted.
"""

from __future__ import annotations

import random

from msgspec.structs import replace

from simulation.abort import run_with
from simulation.run import RunOutcome
from simulation.truth import Truth
from simulation.two_watchers import TwoWatchers
from simulation.world import Setting, World
from txnwatch.state.model.findings import (
    CoverInDoubt,
    Finding,
    OwnerInDoubt,
    SpanCandidate,
    SpanEnded,
    StrayWrite,
    TransactionCandidate,
    TransactionMoved,
)
from txnwatch.state.model.incident import EndKind, IncidentEvent
from txnwatch.state.model.values import NO_TIME, DurationMs

_APART_MS = (10_000, 600_000, 3_600_000)


class WatchersWithOwnClocks(TwoWatchers):
    """The clock of the first watcher is right; that of the second one is not."""

    def __init__(self, world: World, truth: Truth, seed: int) -> None:
        rng = random.Random(f"{seed} clocks")
        self.ahead_ms = {"first": NO_TIME, "second": DurationMs(rng.choice(_APART_MS) * rng.choice((-1, 1)))}
        self.begins_later = bool(rng.randrange(2))
        self.found: set[tuple[str, str]] = set()
        super().__init__(world, truth, seed, faulty=False)

    def seen_by(self, name: str, finding: Finding) -> Finding | None:
        """See TwoWatchers."""
        if name == "first":
            return finding
        if self.begins_later and isinstance(finding, TransactionCandidate | TransactionMoved):
            return None
        return _by_clock(super().seen_by(name, finding), self.ahead_ms[name])

    def look_at(self, name: str, event: IncidentEvent) -> None:
        """See TwoWatchers."""
        one = name, event.incident_id
        is_refuted = event.resolution is not None and event.resolution.how is EndKind.REFUTED
        if is_refuted and (event.topic is None or one in self.found):
            self.problems.append(f"FALSE REFUTATION: {event.subject} is {event.verdict}, and {name} refutes it")
        if event.is_open and self.aborts[name].ledger.ledger.book.is_found(event):
            self.found.add(one)
            self.world.seen[f"open, of {name}: {event.verdict}"] += 1


def _by_clock(finding: Finding | None, ahead_ms: DurationMs) -> Finding | None:
    """The times of a finding by a clock that is ahead."""
    match finding:
        case SpanCandidate():
            span = replace(finding.span, first_seen_ms=finding.span.first_seen_ms + ahead_ms)
            data_ms, log_ms = finding.data_listed_ms + ahead_ms, finding.coordinator_listed_ms + ahead_ms
            return replace(finding, span=span, data_listed_ms=data_ms, coordinator_listed_ms=log_ms)
        case CoverInDoubt() | OwnerInDoubt():
            return replace(finding, candidate=_by_clock(finding.candidate, ahead_ms))
        case SpanEnded():
            return replace(finding, span=replace(finding.span, first_seen_ms=finding.span.first_seen_ms + ahead_ms))
        case StrayWrite():
            return replace(finding, first_seen_ms=finding.first_seen_ms + ahead_ms)
        case TransactionCandidate():
            return replace(finding, coordinator_listed_ms=finding.coordinator_listed_ms + ahead_ms)
        case _:
            return finding


def run_with_own_clocks(seed: int, setting: Setting) -> RunOutcome:
    """One seed of two watchers whose clocks differ; equal arguments give equal outcomes."""
    return run_with(lambda world, truth: WatchersWithOwnClocks(world, truth, seed + 3), seed, setting)
