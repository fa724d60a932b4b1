"""A page with invented data, served as `run` serves it: what a micro-batch would have given to the store."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from prometheus_client import CollectorRegistry

from support.incidents import an_event, an_evidence
from txnwatch.owners.owner_table import owners_of
from txnwatch.page.knowledge import Knowledge
from txnwatch.page.served_page import PageSite
from txnwatch.page.shown_past import ShownPast
from txnwatch.page.store import KnownNow, PageStore, Reach, TargetRow, Watched
from txnwatch.state.incidents.event_builder import named
from txnwatch.state.incidents.past_incidents import IncidentHistory
from txnwatch.state.model.findings import (
    BucketCount,
    CensusOffsets,
    Finding,
    ListedOffsets,
    OpenSpan,
    OpenTransaction,
    OpenTransactions,
)
from txnwatch.state.model.incident import IncidentEvent, IncidentStatus
from txnwatch.state.model.values import (
    AT_ONCE,
    BarrierNumber,
    CoordinatorAccess,
    DurationMs,
    Offset,
    PartitionOffset,
    ProducerId,
    TimestampMs,
    TopicPartition,
)
from txnwatch.state.telling.commands import Origin, with_command
from txnwatch.watch.coverage import MissingEvidence
from txnwatch.web.server import Site, WebServer

CLUSTER = "Qk7rXf2mTtS9"
OWNERS = owners_of(
    {
        "owner": [
            {
                "team": "checkout",
                "name": "Checkout",
                "contact": "#checkout-oncall",
                "url": "https://teams.example/checkout",
                "transactional_ids": ["checkout-*", "refund-*"],
            },
            {"team": "data", "name": "Data platform", "contact": "+49 30 1234", "transactional_ids": ["dwh-*"]},
            {"team": "risk", "name": "Risk", "contact": "#risk", "groups": ["fraud-*"], "topics": ["clickstream"]},
        ]
    },
    "the table of the tests",
)
ORIGIN = Origin(CLUSTER, "kafka-1:9092", "/etc/txnwatch/client.properties", owners=OWNERS)
TOPICS = {
    "payments": 12,
    "orders": 20,
    "billing": 12,
    "inventory": 6,
    "clickstream": 32,
    "audit": 3,
    "metering": 40,
    "events": 1_000,
    "t": 512,
}


def now_ms() -> TimestampMs:
    return TimestampMs(int(time.time() * 1000))


def an_open(
    producer_id: int,
    name: str | None,
    age_s: float,
    *places: tuple[str, int, int],
    state: str = "Ongoing",
    prepared_s: float | None = None,
    timeout_s: int | None = 60,
) -> OpenTransaction:
    """An open transaction that began some seconds ago; `places` are topic, partition and start offset."""
    since_ms = TimestampMs(now_ms() - int(age_s * 1000))
    prepared_ms = TimestampMs(now_ms() - int(prepared_s * 1000)) if prepared_s is not None else None
    spans = tuple(OpenSpan(TopicPartition(topic, number), Offset(start), since_ms) for topic, number, start in places)
    timeout_ms = DurationMs(timeout_s * 1000) if timeout_s is not None else None
    return OpenTransaction(ProducerId(producer_id), name, state, since_ms, prepared_ms, spans, timeout_ms)


def a_count(
    states: Mapping[str, int], barrier: int = 7, at_ms: TimestampMs | None = None, behind: int = 0
) -> BucketCount:
    """The counts of the only bucket, 300 ms after the barrier was listed."""
    listed_ms = TimestampMs((now_ms() if at_ms is None else at_ms) - 300)
    return BucketCount(
        barrier=BarrierNumber(barrier),
        awaited=sum(states.values()),
        waiting=(),
        clocks=(),
        data_listed_ms=listed_ms,
        behind=behind,
        states=tuple(states.items()),
        oldest_open_ms=listed_ms,
        oldest_prepared_ms=None,
        due_ms=AT_ONCE,
        log_after_ms=DurationMs(40),
    )


def an_incident(name: str, age_s: float, **changes: Any) -> IncidentEvent:
    """An open incident about a transaction that began some seconds ago."""
    since_ms = now_ms() - int(age_s * 1000)
    times = {
        "open_since_ms": since_ms,
        "detected_at_ms": since_ms + 1_200,
        "time_ms": since_ms + 1_200,
        "last_write_ms": since_ms + 50,
        "detection_latency_ms": 1_100,
        "evidence": an_evidence(
            first_data_listed_ms=since_ms + 200,
            first_coordinator_listed_ms=since_ms + 240,
            data_listed_ms=since_ms + 700,
            coordinator_listed_ms=since_ms + 740,
            confirmed_ms=since_ms + 1_150,
            first_barrier=79_496,
            second_barrier=79_497,
            leader_epoch=31,
            end_before=18_210_641,
            end_after=18_210_668,
            coordinator_log="23@5210",
            coordinator_partitions=(),
        ),
    }
    return an_event(name, **{**times, **changes})


@dataclass
class PageWorld:
    """What the page is given: change the attributes, then call `batch`.

    Attributes:
        stands: the last stable offsets of the leaders that are not the lowest open starts.
        by_census: the last stable offset and the end of partitions that only a census watches.
        topics: how many partitions of each topic are watched; None if that is not known.
    """

    open: list[OpenTransaction] = field(default_factory=list)
    incidents: list[IncidentEvent] = field(default_factory=list)
    ends: dict[TopicPartition, Offset] = field(default_factory=dict)
    evidence: MissingEvidence = field(default_factory=lambda: MissingEvidence(is_log_read=True))
    is_ready: bool = True
    undelivered: int = 0
    targets: tuple[TargetRow, ...] = ()
    speaks: bool | None = True
    speaker: str | None = None
    watched: Watched = field(default_factory=lambda: Watched(900, 1_240))
    stands: dict[TopicPartition, Offset] = field(default_factory=dict)
    by_census: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    young: int = 40
    behind: int = 0
    barrier: int = 80_000
    access: CoordinatorAccess = CoordinatorAccess.LOG
    topics: dict[str, int] | None = field(default_factory=lambda: dict(TOPICS))

    def __post_init__(self) -> None:
        self.store = PageStore("watch-0:/var/lib/txnwatch", ORIGIN, self.access, is_of_ledger=True)
        self.past = IncidentHistory(OWNERS)
        self.store.history = ShownPast("txnwatch.events", self.past)
        self.site = PageSite(self.store, now_ms, lambda: self.ends)

    def seen(self) -> KnownNow:
        """The end of a micro-batch, beside its output."""
        return KnownNow(
            incidents=list(self.incidents),
            reach=Reach(self.evidence.unproven, is_log_read=self.evidence.is_log_read),
            is_ready=self.is_ready,
            watched=self.watched,
            undelivered=self.undelivered,
            targets=self.targets,
            speaks=self.speaks,
            speaker=self.speaker,
            topics=self.topics,
        )

    def knowledge(self) -> Knowledge:
        """What the page knows now."""
        return Knowledge(store=self.store, seen=self.store.seen, now_ms=now_ms(), ends=self.ends)

    def batch(self, at_ms: TimestampMs | None = None) -> None:
        """Makes a micro-batch."""
        self.barrier += 1
        lowest: dict[TopicPartition, Offset] = {}
        for partition, start, _ in (span for one in self.open for span in one.spans):
            if partition not in self.by_census:
                lowest[partition] = min(start, lowest.get(partition, start))
        blocked = tuple(PartitionOffset(at, offset) for at, offset in sorted({**lowest, **self.stands}.items()))
        emitted: list[Finding] = [
            a_count({"Ongoing": len(self.open) + self.young}, self.barrier, at_ms, self.behind),
            OpenTransactions(0, tuple(self.open), blocked),
        ]
        if self.by_census:
            offsets = (CensusOffsets(at, Offset(low), Offset(end)) for at, (low, end) in self.by_census.items())
            emitted.append(ListedOffsets(0, tuple(offsets), is_round=True))
        self.store.take(emitted, self.seen(), at_ms if at_ms is not None else now_ms())

    def tell(self, event: IncidentEvent) -> None:
        """Adds an incident, or its next event, as the ledger makes it."""
        if event.suggested_command == an_event().suggested_command:  # else the test has one of its own
            event = with_command(ORIGIN, event)
        event = named(event, OWNERS)
        self.incidents = [one for one in self.incidents if one.incident_id != event.incident_id] + [event]
        self.store.take_event(event)
        self.past.take(event)

    @contextlib.contextmanager
    def served(self) -> Iterator[str]:
        """Serves the page while the block runs; yields its address."""
        with served_site(self.site) as url:
            yield url


@contextlib.contextmanager
def served_site(site: Site) -> Iterator[str]:
    """Serves a site while the block runs; yields its address."""
    server = WebServer(CollectorRegistry(), "127.0.0.1", 0, lambda: True, site=site)
    try:
        yield server.url
    finally:
        server.close()


def ends_of(transactions: Iterable[OpenTransaction], hidden: int) -> dict[TopicPartition, Offset]:
    """Ends that hide so many records and more on each partition."""
    found: dict[TopicPartition, Offset] = {}
    for number, one in enumerate(transactions):
        for span in one.spans:
            found.setdefault(span.partition, Offset(span.start_offset + hidden * (number + 1)))
    return found


WHOLE = {
    "topic": None,
    "partition": None,
    "topic_id": None,
    "reason": None,
    "txn_start_offset": None,
    "cluster_id": CLUSTER,
    "hidden_records": None,
    "last_stable_offset": None,
    "cleanup_policy": None,
    "is_lso_blocker": None,
}  # an incident about a whole transaction
HANG = {
    "topic": "payments",
    "partition": 0,
    "producer_id": 4021,
    "producer_epoch": 12,
    "transactional_id": "checkout-7",
    "txn_start_offset": 18_210_442,
    "last_stable_offset": 18_210_442,
    "high_watermark": 18_258_554,
    "hidden_records": 48_112,
    "transaction_state": "CompleteCommit",
    "cluster_id": CLUSTER,
}
GROUPS = (
    {"group_id": "fraud-scoring", "state": "stopped", "committed_offset": 18_210_442, "hidden_lag": 48_112},
    {"group_id": "ledger-writer", "state": "stopped", "committed_offset": 18_210_440, "hidden_lag": 48_114},
    {"group_id": "audit-export", "state": "at_risk", "committed_offset": 18_100_000, "hidden_lag": 158_554},
)


def a_busy_cluster() -> PageWorld:
    """A hang, a stuck prepare, a late transaction, an early warning, and healthy ones."""
    markers = (("orders", 11, 88_120_004), ("orders", 14, 90_411_388))
    transactions = [
        an_open(4021, "checkout-7", 252, ("payments", 0, 18_210_442), state="unowned", timeout_s=None),
        an_open(4177, "refund-2", 11.6, ("payments", 0, 18_257_901)),
        an_open(4180, "checkout-9", 3.1, ("payments", 0, 18_258_330)),
        an_open(7102, "ledger-eos-7f3c2a10-3", 125, *markers, state="PrepareCommit", prepared_s=125),
        an_open(5150, "dwh-orders-4-1187", 974, ("orders", 4, 7_700_120), timeout_s=900),
        an_open(5151, "billing-sync-12", 757, ("billing", 7, 31_002), timeout_s=900),
        an_open(88_120, None, 2.6, ("inventory", 3, 410), state="unowned", timeout_s=None),
        an_open(9001, "sessionizer-3", 41, ("clickstream", 17, 99_000_100)),
        an_open(9002, "connect-audit-0", 8.2, ("audit", 0, 5_120)),
    ]
    world = PageWorld(open=transactions, ends=ends_of(transactions, 1_200), young=9_862)
    world.ends[TopicPartition("payments", 0)] = Offset(18_258_554)
    first = an_incident("hang", 252, expected_outcome="unknown", **HANG)
    later = an_incident("hang", 252, expected_outcome="commit", consumer_groups=GROUPS, sequence=2, **HANG)
    world.tell(first)
    world.tell(replace(later, status=IncidentStatus.UPDATED, time_ms=first.time_ms + 2_100))
    stuck = {"verdict": "stuck_prepare", "severity": "critical", "producer_id": 7102, "expected_outcome": "commit"}
    pending = ("orders-11", "orders-14")
    name = {"transactional_id": "ledger-eos-7f3c2a10-3", "transaction_state": "PrepareCommit"}
    world.tell(an_incident("stuck", 125, pending_partitions=pending, **{**WHOLE, **stuck, **name}))
    slow = {"expected_outcome": "unknown", "transaction_state": "Ongoing", "transaction_timeout_ms": 900_000}
    late = {"verdict": "late", "severity": "warning", "producer_id": 5150, "transactional_id": "dwh-orders-4-1187"}
    world.tell(an_incident("late", 974, **{**WHOLE, **slow, **late}))
    early = {"verdict": "long_running", "severity": "info", "producer_id": 5151, "transactional_id": "billing-sync-12"}
    world.tell(an_incident("early", 757, **{**WHOLE, **slow, **early}))
    world.batch()
    return world


def a_calm_cluster() -> PageWorld:
    """Healthy transactions only."""
    transactions = [
        an_open(9001, "sessionizer-3", 41, ("clickstream", 17, 99_000_100)),
        an_open(9003, "sessionizer-1", 38, ("clickstream", 2, 98_000_100)),
        an_open(9002, "connect-audit-0", 8.2, ("audit", 0, 5_120)),
        an_open(9004, "checkout-9", 3.1, ("payments", 0, 18_258_330)),
    ]
    world = PageWorld(open=transactions, ends=ends_of(transactions, 400), young=9_862)
    world.batch()
    return world


def a_storm(hangs: int) -> PageWorld:
    """A busy cluster with many hangs of one cause: each partition of a topic has one, of another writer."""
    world = a_busy_cluster()
    events = []
    for number in range(hangs):
        age_s = 30 + number % 50
        place = {"topic": "events", "partition": number, "producer_id": 50_000 + number, "txn_start_offset": 7}
        offsets = {"last_stable_offset": 7, "high_watermark": 100 + number, "hidden_records": 93 + number}
        changes = {**HANG, **place, **offsets, "transactional_id": f"loader-{number}", "expected_outcome": "abort"}
        event = named(with_command(ORIGIN, an_incident(f"storm-{number}", age_s, **changes)), OWNERS)
        events.append(event)
        world.store.take_event(event)
        world.past.take(event)
        span = ("events", number, 7)
        world.open.append(an_open(50_000 + number, f"loader-{number}", age_s, span, state="unowned", timeout_s=None))
        world.ends[TopicPartition("events", number)] = Offset(100 + number)
    world.incidents += events
    world.batch()
    return world
