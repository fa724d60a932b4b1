"""A cluster, a ledger and its sinks in memory; the state's side is played by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from support.facts import BucketRun, a_marker, seen, transaction
from support.fake_admin import FakeAdmin
from support.fake_groups import FakeGroups
from support.kept_evidence import KeptEvidence
from support.log_lines import LogLines
from support.recording_sink import RecordingMirror, RecordingTopic
from support.shared_log import SharedLog
from txnwatch.sinks.delivery.outbox import MirrorOutbox, MirrorQueue, TopicOutbox
from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.incidents.speaking import WHOLE, SpeakerRole
from txnwatch.state.model.clocks import Leader
from txnwatch.state.model.findings import Finding, SpanCandidate, SpanEnd, SpanEnded, TransactionCandidate
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.ports import FormerOwners, MarkerSpec
from txnwatch.state.model.transaction import EpochUse
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TopicPartition, log_numbered
from txnwatch.state.model.verdicts import Verdict
from txnwatch.state.telling.commands import Origin

ORIGIN = Origin("cluster", "broker:9092")
HOUR_MS = 3_600_000
WITHOUT_ELECTION = {log_numbered(0): Leader(1, 0)}  # the coordinators' log has its first leader


@dataclass
class LedgerWorld:
    """A cluster, a ledger and its sinks; the state's side is played by hand."""

    admin: FakeAdmin = field(default_factory=FakeAdmin)
    groups: FakeGroups = field(default_factory=FakeGroups)
    topic: RecordingTopic = field(default_factory=RecordingTopic)
    redis: RecordingMirror = field(default_factory=RecordingMirror)
    reports: LogLines = field(default_factory=LogLines)
    evidence: KeptEvidence = field(default_factory=KeptEvidence)
    origin: Origin = ORIGIN
    former_owners: FormerOwners | None = None

    def __post_init__(self) -> None:
        self.now_ms = self.admin.now_ms
        (self.partition,) = self.admin.create_topic("orders")
        self.ledger = self.a_ledger()

    def a_ledger(self, remembering: Iterable[IncidentEvent] = ()) -> RunningLedger:
        ledger = RunningLedger(
            *(self.origin, self.admin, self.groups, TopicOutbox(self.topic, self.reports), lambda: self.now_ms),
            mirrors=[self._mirror()],
            report=self.reports.append,
            evidence=self.evidence,
            former_owners=self.former_owners,
        )
        ledger.remember(remembering)
        return ledger

    def another(
        self,
        log: SharedLog,
        *,
        groups: FakeGroups | None = None,
        evidence: KeptEvidence | None = None,
        role: Callable[[], SpeakerRole] = lambda: WHOLE,
        name: str | None = None,
        mirrors: Sequence[MirrorQueue] | None = None,
        ahead_ms: int = 0,
    ) -> RunningLedger:
        """A ledger of another instance: it knows what the log holds, writes to it and follows it.

        `ahead_ms` says how far its clock is ahead.
        """
        ledger = RunningLedger(
            *(
                replace(self.origin, instance=name),
                self.admin,
                groups or self.groups,
                TopicOutbox(log.sink(), self.reports),
                lambda: self.now_ms + ahead_ms,
            ),
            mirrors=[self._mirror()] if mirrors is None else mirrors,
            new_records=log.reader(),
            has_read=lambda _: not log.is_away,
            report=self.reports.append,
            evidence=evidence,
            role=role,
        )
        ledger.remember(log.compacted.values())
        return ledger

    def _mirror(self) -> MirrorOutbox:
        return MirrorOutbox(self.redis.name, self.redis, self.reports, view=self.redis)

    def restart(self) -> None:
        self.ledger = self.a_ledger(self.topic.published)

    def batch(self, *emitted: Finding, after_ms: int = 500) -> None:
        self.now_ms += after_ms
        self.ledger.on_batch(emitted)

    def hang(self, name: str = "checkout-1") -> SpanCandidate:
        """A lost marker, and the candidate that the state emits."""
        owner = self.admin.begin(name, self.partition)
        self.admin.lose_markers(name, commit=False)
        return self.candidate(owner.producer_id, name)

    def candidate(self, producer_id: int, name: str | None = None) -> SpanCandidate:
        return self.candidate_on(self.partition, producer_id, name)

    def candidate_on(self, partition: TopicPartition, producer_id: int, name: str | None = None) -> SpanCandidate:
        run = BucketRun()
        row = self.admin.partitions[partition].producers[producer_id]
        topic_id = self.admin.partitions[partition].topic_id
        facts = (
            []
            if name is None
            else [
                transaction(
                    1,
                    S.COMPLETE_ABORT,
                    partition,
                    producer_id=producer_id,
                    transactional_id=name,
                    data_epoch=0,
                    epoch_use=EpochUse.FIRST,
                    coordinator_epoch=0,
                    start_ms=self.admin.transactions[name].start_ms,
                )
            ]
        )
        start = row.txn_start_offset
        data = seen(
            *(0, 10),
            data=start,
            epoch=row.producer_epoch,
            producer_id=producer_id,
            partition=partition,
            topic_id=topic_id,
            last_timestamp_ms=row.last_timestamp_ms,
        )
        run.batch(data, *facts, leaders=WITHOUT_ELECTION)
        (candidate,) = run.batch(leaders=WITHOUT_ELECTION)
        assert isinstance(candidate, SpanCandidate)
        return candidate

    def late(self, verdict: Verdict = Verdict.LATE) -> TransactionCandidate:
        """A candidate about a whole transaction, with which its coordinator agrees."""
        state = S.PREPARE_COMMIT if verdict is Verdict.STUCK_PREPARE else S.ONGOING
        owner = self.admin.begin("slow", self.partition)
        owner.state = state
        view = transaction(4, state, self.partition, producer_id=owner.producer_id, transactional_id="slow").view
        view = msgspec.structs.replace(view, start_ms=owner.start_ms)
        return TransactionCandidate(verdict, owner.producer_id, view, 1_500, 9, self.now_ms, self.now_ms)

    def ended(self, candidate: SpanCandidate) -> SpanEnded:
        """The finding that the state emits for a span that its last marker has ended."""
        marker = self.admin.partitions[candidate.partition].all_markers[candidate.producer_id][-1]
        return SpanEnded(candidate.producer_id, candidate.partition, candidate.span, SpanEnd.MARKER, marker)

    def abort(self, candidate: SpanCandidate) -> SpanEnded:
        self.admin.mark(MarkerSpec(candidate.partition, candidate.producer_id, 0, 0))
        return SpanEnded(candidate.producer_id, candidate.partition, candidate.span, SpanEnd.MARKER, a_marker(7))

    def published(self) -> list[tuple[str, int, str]]:
        return [(event.verdict, event.sequence, event.status) for event in self.topic.published]
