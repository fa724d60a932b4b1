"""A random life of one transactional id on one partition: markers get lost there, and elections lose unread records."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from support.facts import ORDERS, PAYMENTS, PRODUCER, transaction
from support.outcomes import said
from txnwatch.state.detection import view as lineage
from txnwatch.state.detection.view import after_record, begun
from txnwatch.state.evidence.outcome import expected_outcome
from txnwatch.state.model.facts import FirstDecision
from txnwatch.state.model.ports import SpanHistory
from txnwatch.state.model.transaction import CoordinatorView, EpochUse, Marker, ProducerState, Span, Witness
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TopicPartition

COMPLETE = {True: S.COMPLETE_COMMIT, False: S.COMPLETE_ABORT}
PREPARE = {True: S.PREPARE_COMMIT, False: S.PREPARE_ABORT}
Held = frozenset[TopicPartition]
NOTHING: Held = frozenset()


def outcome_of(*, commit: bool) -> str:
    return "commit" if commit else "abort"


def decision_with(
    decided: FirstDecision | None, record: CoordinatorView, prior: CoordinatorView | None, *, is_consecutive: bool
) -> FirstDecision | None:
    """What a range decides first, with another record of it, as the fold of a range keeps it."""
    if decided is not None:
        return lineage.decision_after(decided, record, record.producer_epoch, is_consecutive=is_consecutive)
    return lineage.decision_of(record, record.producer_epoch, is_first=prior is None and is_consecutive)


class LifeRecord(NamedTuple):
    """A record of the coordinators' log about the id; `by` is the leader epoch under which it was appended."""

    state: S
    epoch: int
    start_ms: int | None
    held: Held
    by: int


@dataclass(eq=False)
class LifeTransaction:
    """A transaction as its client sees it; `answer` is what the client was told about its end."""

    commit: bool
    version: int
    epoch: int
    added: Held = NOTHING
    answer: str | None = None


class Statement(NamedTuple):
    """What is said about the open data, and who wrote it; None stands for nobody."""

    outcome: str
    owners: frozenset[LifeTransaction | None]
    is_owed: bool


@dataclass
class IdLife:
    """One id, its client, its log and one partition, and a watcher that reads both now and then.

    `owners` are those whose data is open. `is_owed` is whether a marker has been lost there since the last: what was
    written after it looks like its own.
    """

    rng: random.Random
    loses_records: bool = True
    # the coordinator
    log: list[LifeRecord] = field(default_factory=list)
    leader: int = 0
    # the client
    epoch: int = 0
    now_ms: int = 0
    # the partition
    offset: int = 0
    span: Span | None = None
    began_after: int = 0
    owners: set[LifeTransaction | None] = field(default_factory=set)
    last_marker: Marker | None = None
    partition_epoch: int = -1
    is_owed: bool = False
    # the watcher
    view: CoordinatorView | None = None
    read_to: int = 0
    barrier: int = 0
    listed: int | None = None
    since: int = 0
    shown_at: int | None = None
    missed: bool = False
    reads: float = 0.0

    def live(self) -> Statement | None:
        """What is said in the middle of the life; the rest of it may still give answers."""
        self.leader = self.rng.choice((0, 0, 3))
        self.reads = self.rng.choice((0.05, 0.3, 0.6))
        for _ in range(self.rng.randrange(3)):
            self.read()
        self.log.append(LifeRecord(S.EMPTY, 0, None, NOTHING, self.leader))
        if self.rng.random() < 0.1:
            self.read_to = 1  # it was there before we looked
        if self.loses_records and self.rng.random() < 0.2:
            self.repeat_an_epoch()
            self.step()
        else:
            for _ in range(1 + self.rng.randrange(5)):
                self.step()
        unfinished = self.begin() if self.rng.random() < 0.15 else None
        self.meanwhile()
        self.read()
        found = self.stated()
        if unfinished is not None:
            self.end(unfinished)
        self.step()
        return found

    def repeat_an_epoch(self) -> None:
        """Nothing is left of the first transaction but its markers; its client gets an epoch that it had already."""
        reads, self.reads = self.reads, 0.0
        first = self.begin()
        if first is not None:
            self.end(first)
        self.elect()
        self.init()
        self.read()
        self.read()
        self.reads = reads

    def step(self) -> None:
        draw = self.rng.random()
        if draw < 0.15:
            self.init()
        elif draw < 0.27:
            self.init_again()
        elif draw < 0.35:
            self.stray()
        else:
            known = self.begin()
            self.meanwhile()
            if known is not None:
                self.end(known)
        self.meanwhile()

    def meanwhile(self) -> None:
        """The watcher reads, or the log has an election, or both in either order, or nothing happens."""
        for _ in range(self.rng.randrange(4)):
            draw = self.rng.random()
            if draw < self.reads:
                self.read()
            elif draw > 0.9 and self.loses_records:
                self.elect()

    # The client and its coordinator.

    def record(self, state: S, epoch: int, start_ms: int | None, held: Held = NOTHING) -> None:
        self.log.append(LifeRecord(state, epoch, start_ms, held, self.leader))

    def init(self) -> None:
        last = self.log[-1]
        if last.state is S.ONGOING:
            self.complete(last, commit=False, end_epoch=last.epoch + 1)
        self.epoch = self.log[-1].epoch + 1
        self.record(S.EMPTY, self.epoch, None)

    def init_again(self) -> None:
        """The request before was sent twice, and the second one is answered with the epoch of the first."""
        if self.log[-1].state is not S.ONGOING:
            self.epoch = self.log[-1].epoch
            self.record(S.EMPTY, self.epoch, None)

    def begin(self) -> LifeTransaction | None:
        """AddPartitionsToTxn and a batch; None if the coordinator refuses it."""
        self.now_ms += 1 + self.rng.randrange(3_000)
        commit, version = self.rng.random() < 0.5, self.rng.choice((1, 1, 2))
        held = frozenset(at for at in (ORDERS, PAYMENTS) if self.rng.random() < 0.7) or frozenset({ORDERS})
        mine = LifeTransaction(commit, version, self.epoch)
        if not self.add(mine, held):
            return None
        self.meanwhile()
        if ORDERS in held and self.rng.random() < 0.9:
            self.write(mine, mine.epoch)
        return mine

    def add(self, mine: LifeTransaction, held: Held) -> bool:
        last = self.log[-1]
        if last.epoch != mine.epoch:
            self.init()  # it is fenced, and begins anew
            return False
        mine.added |= held
        is_on = last.state is S.ONGOING
        if not (is_on and held <= last.held):
            start_ms = last.start_ms if is_on else self.now_ms
            self.record(S.ONGOING, mine.epoch, start_ms, held | (last.held if is_on else NOTHING))
        return True

    def end(self, mine: LifeTransaction) -> None:
        """More partitions perhaps, and EndTxn; its answer is the truth about the data of the transaction."""
        if self.rng.random() < 0.3:
            if not self.add(mine, frozenset({PAYMENTS})):
                return
            self.meanwhile()
        if self.log[-1].epoch != mine.epoch or self.epoch != mine.epoch:
            return  # refused: a producer that was fenced
        last = self.log[-1]
        if last.state is S.ONGOING:
            is_fenced = not mine.commit and self.rng.random() < 0.3
            is_raised = mine.version == 2 or is_fenced
            self.complete(last, commit=mine.commit, end_epoch=last.epoch + is_raised)
            mine.answer = outcome_of(commit=mine.commit)
            self.epoch = self.log[-1].epoch
            if is_fenced:
                self.init()
            elif is_raised and self.rng.random() < 0.3:
                self.init_again()  # with the epoch of before, which counts as the request that has raised it
        elif mine.version == 1 and last.state is COMPLETE[mine.commit]:
            mine.answer = outcome_of(commit=mine.commit)  # it counts as sent again
        elif mine.version == 2 and not mine.commit:
            self.now_ms += 1
            nothing = last._replace(held=NOTHING, start_ms=self.now_ms)
            self.complete(nothing, commit=False, end_epoch=last.epoch + 1)
            mine.answer = "abort"
            self.epoch = self.log[-1].epoch
        if ORDERS in mine.added and self.span is not None and mine in self.owners:
            self.is_owed = True

    def complete(self, last: LifeRecord, *, commit: bool, end_epoch: int) -> None:
        self.record(PREPARE[commit], end_epoch, last.start_ms, last.held)
        self.finish()

    def finish(self) -> None:
        """The markers of the Prepare* record in the log, and Complete*."""
        last = self.log[-1]
        commit = last.state is S.PREPARE_COMMIT
        if ORDERS in last.held and self.rng.random() < 0.6:
            self.offset += 1
            stamp_ms = self.now_ms + self.rng.randrange(-9_000, 9_000)
            self.last_marker = Marker(self.offset, last.epoch, commit, self.leader, stamp_ms)
            self.span, self.shown_at, self.partition_epoch, self.is_owed = None, None, last.epoch, False
        elif ORDERS in last.held:
            self.is_owed = True
        self.record(COMPLETE[commit], last.epoch, last.start_ms)

    def elect(self) -> None:
        """Another leader, which lacks some of the records that the watcher has not read."""
        self.leader += 1
        unread = len(self.log) - self.read_to
        lost = unread if self.rng.random() < 0.5 else self.rng.randrange(unread + 1)
        del self.log[max(1, len(self.log) - lost) :]  # without any record the id would get another producer id
        if self.log[-1].state.is_prepare:
            self.finish()

    # The partition.

    def stray(self) -> None:
        """By the client, or by one that has an epoch of before."""
        self.write(None, self.epoch if self.rng.random() < 0.6 else max(0, self.epoch - 1))

    def write(self, owner: LifeTransaction | None, epoch: int) -> None:
        if epoch < self.partition_epoch:
            return
        self.partition_epoch = epoch
        self.offset += 1
        if self.span is None:
            self.span = Span("orders-id", self.offset, epoch, epoch, self.offset, 0, 0, 1)
            self.owners, self.began_after = set(), self.barrier
        self.span = replace(self.span, epoch=epoch, last_offset=self.offset)
        self.owners.add(owner)

    # The watcher.

    def read(self) -> None:
        """A batch: the data first, then the log; some of it may not be readable for ever."""
        self.barrier += 1
        if self.listed != self.leader:
            self.listed, self.since = self.leader, self.barrier
        if self.span is not None and self.shown_at is None:
            self.shown_at = self.barrier
        known: CoordinatorView | None = None
        decided: FirstDecision | None = None
        follows = is_whole = True
        for number in range(self.read_to, len(self.log)):
            state, epoch, start_ms, held, by = self.log[number]
            is_consecutive = self.rng.random() < 0.97
            if not is_consecutive and self.rng.random() < 0.5:
                self.missed = True
                continue
            fact = transaction(number, state, *held, producer_epoch=epoch, start_ms=start_ms, coordinator_epoch=by)
            one, is_consecutive = begun(fact.view), is_consecutive and not self.missed
            is_whole = is_consecutive and (is_whole or decided is None)
            decided = decision_with(decided, fact.view, known, is_consecutive=is_whole)
            if known is None:
                known, follows = one, is_consecutive
            else:
                known = lineage.follow(known, one, is_consecutive=is_consecutive)
            self.missed = False
        self.read_to = len(self.log)
        if known is not None:
            self.take(known, decided, follows=follows)

    def take(self, known: CoordinatorView, decided: FirstDecision | None, *, follows: bool) -> None:
        spans = {}
        if self.span is not None and self.shown_at is not None:
            spans = {ORDERS: replace(self.span, eligible_from=self.shown_at)}
        before = ProducerState(PRODUCER, spans, self.view)
        self.view = after_record(before, known, self.barrier, decided, is_consecutive=follows).producer.view
        assert self.view is None or self.view.epoch_use not in {EpochUse.UNJUDGED, EpochUse.NEXT}, "the state decides"

    def witness(self) -> Witness | None:
        if self.view is None:
            return None
        return Witness(self.view, self.listed, is_begun_under_it=self.since < self.began_after)

    def marker(self) -> Marker | None:
        return self.last_marker

    def stated(self) -> Statement | None:
        if self.span is None or self.missed:
            return None  # nothing is proven before the log is read to its listed end
        is_read, is_remembered = self.rng.random() < 0.8, self.last_marker is not None and self.rng.random() < 0.7
        history = SpanHistory(
            self.span.start_epoch if self.rng.random() < 0.95 else None,
            self.marker() if is_read else None,
            is_first=is_read and self.last_marker is None,
        )
        known = self.last_marker.coordinator_epoch if self.last_marker is not None and is_remembered else None
        outcome = said(expected_outcome(ORDERS, self.span.epoch, self.witness(), history, known))
        return Statement(outcome, frozenset(self.owners), self.is_owed)
