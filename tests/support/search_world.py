"""A cluster in memory with two partitions, and one look at it, as `find-hanging` has it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from msgspec.structs import replace

from support.fake_admin import FakeAdmin
from support.one_look import a_searcher
from txnwatch.state.evidence.screening import OwnerViews, Search
from txnwatch.state.model.ports import LeaderStamp
from txnwatch.state.model.transaction import CoordinatorView
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TopicPartition, log_numbered

NAME = "checkout-1"


@dataclass
class SearchWorld:
    """A cluster in memory with two partitions, and one look at it."""

    admin: FakeAdmin = field(default_factory=FakeAdmin)
    views: dict[int, CoordinatorView] = field(default_factory=dict)
    log_problems: dict[str, str] = field(default_factory=dict)
    led: dict[TopicPartition, LeaderStamp] = field(default_factory=lambda: {log_numbered(0): LeaderStamp(1, 1)})
    epochs: dict[TopicPartition, int] = field(default_factory=lambda: {log_numbered(0): 0})
    behind_ms: int = 0
    silence: str | None = None

    def __post_init__(self) -> None:
        self.here, self.there = self.admin.create_topic("orders", 2)

    def read_log(self, producer_ids: Collection[int]) -> OwnerViews:
        views = {pid: view for pid, view in self.views.items() if pid in producer_ids}
        return OwnerViews(views, self.log_problems, self.led, self.epochs)

    def search(self, now_ms: int | None = None) -> Search:
        at_ms = self.admin.now_ms if now_ms is None else now_ms
        searcher = a_searcher(
            self.admin, lambda: at_ms, read_log=self.read_log, behind_ms=self.behind_ms, silence=self.silence
        )
        return searcher.search([self.here, self.there])

    def ongoing(self, timeout_ms: int) -> int:
        """Begins a transaction, and puts it into the log."""
        self.admin.init(NAME, timeout_ms=timeout_ms)
        owner = self.admin.begin(NAME, self.here)
        self.views[owner.producer_id] = replace(view(NAME, S.ONGOING), start_ms=owner.start_ms)
        return owner.start_ms

    def prepared(self, stamp_ms: int, *, coordinator_epoch: int = 0) -> None:
        """Begins a transaction, decides it, and puts the Prepare record into the log with this stamp."""
        owner = self.admin.begin(NAME, self.here)
        self.admin.prepare(NAME, commit=True)
        self.views[owner.producer_id] = replace(
            view(NAME, S.PREPARE_COMMIT, participants=[self.here]),
            record_timestamp_ms=stamp_ms,
            start_ms=owner.start_ms,
            coordinator_epoch=coordinator_epoch,
        )

    def hang(self) -> int:
        owner = self.admin.begin(NAME, self.here)
        self.admin.lose_markers(NAME, commit=True)
        return owner.producer_id


def view(name: str, state: S = S.COMPLETE_COMMIT, *, participants: Collection[TopicPartition] = ()) -> CoordinatorView:
    return CoordinatorView(name, 0, 7, state, 0, 60_000, 1, 1, 1, frozenset(participants), coordinator_epoch=0)
