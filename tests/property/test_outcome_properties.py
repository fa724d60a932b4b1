"""An expected outcome against the truth: random lives of one transactional id, with markers lost on one partition.

The truth is who wrote the data that is open at the end, and which answer that client got. The outcome must be true of
every owner; `unknown` always is.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from unittest import mock

from support.facts import ORDERS, PAYMENTS, transaction
from txnwatch.state.detection import epoch_lineage as lineage
from txnwatch.state.detection.epoch_lineage import begun, follow
from txnwatch.state.evidence.outcome import expected_outcome
from txnwatch.state.model.ports import SpanHistory
from txnwatch.state.model.transaction import CoordinatorView, EpochUse, Marker, Span
from txnwatch.state.model.transaction import TransactionState as S

LIVES = 6_000


@dataclass
class Life:
    """One id on one partition; `owners` are the outcomes of those whose data is open, None for nobody's.

    `is_owed` is whether a marker has been lost there since the last: what was written after it looks like its own.
    """

    rng: random.Random
    epoch: int = -1
    now_ms: int = 0
    offset: int = 0
    records: int = 0
    view: CoordinatorView | None = None
    span: Span | None = None
    owners: set[str | None] = field(default_factory=set)
    last_marker: Marker | None = None
    had_marker: bool = False
    partition_epoch: int = -1
    missed: bool = False
    is_owed: bool = False

    def live(self) -> None:
        if self.rng.random() < 0.7:
            self.init()
        else:
            self.epoch = 0  # it was there before we looked
        for _ in range(1 + self.rng.randrange(4)):
            draw = self.rng.random()
            if draw < 0.15:
                self.init()
            elif draw < 0.25:
                self.stray()
            else:
                self.transact()

    def record(self, state: S, epoch: int, start_ms: int | None, *held: object) -> None:
        self.records += 1
        read = transaction(self.records, state, *held, producer_epoch=epoch, start_ms=start_ms).view  # type: ignore[arg-type]
        is_consecutive = self.rng.random() < 0.97
        is_seen = is_consecutive or self.rng.random() < 0.5
        if is_seen:
            self.view = follow(self.view, begun(read), is_consecutive=is_consecutive and not self.missed)
            self.missed = False
        else:
            self.missed = True

    def init(self) -> None:
        self.epoch += 1
        self.record(S.EMPTY, self.epoch, None)

    def stray(self) -> None:
        """By the client, or by one that has an epoch of before."""
        self.write(None, self.epoch if self.rng.random() < 0.6 else max(0, self.epoch - 1))

    def write(self, owner: str | None, epoch: int) -> None:
        if epoch < self.partition_epoch:
            return
        self.partition_epoch = epoch
        self.offset += 1
        if self.span is None:
            self.span = Span("orders-id", self.offset, epoch, epoch, self.offset, 0, 0, 1)
            self.owners = set()
        kept = self.span
        self.span = Span("orders-id", kept.start_offset, kept.start_epoch, epoch, self.offset, 0, 0, 1)
        self.owners.add(owner)

    def transact(self) -> None:
        version, commit = self.rng.choice((1, 1, 2)), self.rng.random() < 0.5
        held = [at for at in (ORDERS, PAYMENTS) if self.rng.random() < 0.7] or [ORDERS]
        self.now_ms += 1 + self.rng.randrange(3_000)
        start_ms, prepare, complete = (
            self.now_ms,
            S.PREPARE_COMMIT if commit else S.PREPARE_ABORT,
            S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT,
        )
        self.record(S.ONGOING, self.epoch, start_ms, *held)
        if ORDERS in held and self.rng.random() < 0.9:
            self.write("commit" if commit else "abort", self.epoch)
        is_fenced = not commit and self.rng.random() < 0.3
        end_epoch = self.epoch + 1 if version == 2 or is_fenced else self.epoch
        self.record(prepare, end_epoch, start_ms, *held)
        if ORDERS in held and self.rng.random() < 0.6:
            self.offset += 1
            self.last_marker = Marker(
                self.offset, end_epoch, commit, 0, self.now_ms + self.rng.randrange(-9_000, 9_000)
            )
            self.had_marker, self.span, self.partition_epoch, self.is_owed = True, None, end_epoch, False
        elif ORDERS in held:
            self.is_owed = True
        self.record(complete, end_epoch, start_ms)
        self.epoch = end_epoch
        if is_fenced:
            self.init()

    @property
    def stated(self) -> str:
        assert self.span is not None
        is_read, is_remembered = self.rng.random() < 0.8, self.had_marker and self.rng.random() < 0.7
        history = SpanHistory(
            self.span.start_epoch if self.rng.random() < 0.95 else None,
            self.last_marker if is_read else None,
            is_first=is_read and not self.had_marker,
        )
        return expected_outcome(ORDERS, self.span.epoch, self.view, history, 0 if is_remembered else None)


def false_outcomes(lives: int) -> tuple[list[str], Counter[str]]:
    false: list[str] = []
    counts: Counter[str] = Counter()
    for seed in range(lives):
        life = Life(random.Random(seed))
        life.live()
        if life.span is None:
            continue
        outcome = life.stated
        counts[outcome] += 1
        answered = {owner for owner in life.owners if owner is not None}
        is_wrong = not answered <= {outcome} or (outcome in {"commit", "abort"} and not life.is_owed)
        if outcome != "unknown" and is_wrong:
            false.append(f"seed {seed}: found {outcome}, its owners were answered {life.owners}")
    return false, counts


def test_a_known_outcome_is_true_for_every_possible_owner() -> None:
    false, counts = false_outcomes(LIVES)
    assert not false
    assert min(counts["commit"], counts["abort"], counts["none"]) > 100, counts


def test_a_careless_lineage_is_found_out() -> None:
    with mock.patch.object(lineage, "use_of", return_value=EpochUse.FIRST):
        assert false_outcomes(LIVES)[0]
    with mock.patch.object(lineage, "at_its_end", lambda view: view):
        assert false_outcomes(LIVES)[0]
    with mock.patch.object(lineage, "is_same_transaction", return_value=True):
        assert false_outcomes(LIVES)[0]
    with mock.patch.object(lineage, "ITS_OWN", frozenset(EpochUse)):
        assert false_outcomes(LIVES)[0]
