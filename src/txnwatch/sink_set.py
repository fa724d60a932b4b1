"""The ledger and its sinks, for one start of the query: composes them, passes each micro-batch on, and closes them.

Apart: it lives for one start of the query and app.py for the process, and both together would have more than 600 lines.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from txnwatch.config import RunSettings, events_flags
from txnwatch.librdkafka import EventsTopic, LibrdkafkaConfig, grantee_of, librdkafka_config
from txnwatch.push.targets import PushTargets
from txnwatch.sinks.abort.run_abort import RunningAbort
from txnwatch.sinks.delivery.event_log import EventLog
from txnwatch.sinks.delivery.events_topic import KafkaEventsTopic, ensure_topic
from txnwatch.sinks.delivery.outbox import (
    BackgroundMirror,
    MirrorOutbox,
    MirrorQueue,
    OpenList,
    TopicOutbox,
    failing_targets,
)
from txnwatch.sinks.delivery.redis_sink import RedisMirror
from txnwatch.sinks.incidents.evidence_file import EvidenceFile
from txnwatch.sinks.incidents.group_lease import GroupLease, SpeakerGate
from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.incidents.automatic_abort import OFF
from txnwatch.state.incidents.heartbeat import Heartbeat
from txnwatch.state.model.findings import Finding, OpenTransactions
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.ownership import OwnerLookup
from txnwatch.state.model.pauses import Every
from txnwatch.state.model.ports import Log, Mirror, OpenIncidentsView
from txnwatch.state.model.values import CoordinatorAccess, DurationMs, TimestampMs, lease_group, transactions_group
from txnwatch.state.telling.commands import Origin
from txnwatch.streaming.admin.groups import ClusterGroups
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.checks.preflight import check_events_rights
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.security import own_principal
from txnwatch.streaming.job.checkpoint import Progress
from txnwatch.streaming.log.coordinator_log import FormerOwnersReader
from txnwatch.streaming.source.options import SourceOptions
from txnwatch.watch.coverage import MissingEvidence
from txnwatch.watch.listening import EventListener, HeartbeatSender, HeartbeatTarget

_ADMIN_TIMEOUT_S = 2.0
_LAST_REQUESTS_S = 1.0
_REDIS_HEARTBEAT_MS = DurationMs(5_000)


@dataclass(slots=True)
class SinkSet:
    """The ledger, the events topic, the mirrors, the automatic abort and the heartbeats of one start of the query.

    Attributes:
        instance: the name of this watch in heartbeats and abort decisions.
        listening: reads the events of other writers.
        evidence_file: keeps what this process has proven.
        coordinator_view: how the coordinators' view is known; every event and heartbeat has it.
        owners: the table of owners.
        on_event: receives every incident event.
        on_record: receives what the ledger has stored of each record of another writer.
        progress: returns the progress of the running query.
        missing_evidence: returns the partitions without evidence.
        is_ready: returns whether the watch is ready.
        push: the targets that get every event over HTTP; they outlive a query.
        cluster: the connection of the ledger's own requests.
    """

    settings: RunSettings
    options: SourceOptions
    cluster_id: str
    instance: str
    events: EventsTopic
    listening: EventListener
    evidence_file: Path
    coordinator_view: CoordinatorAccess
    owners: OwnerLookup
    log: Log
    on_event: Callable[[IncidentEvent], None]
    on_record: Callable[[IncidentEvent], object]
    progress: Callable[[], Progress | None]
    missing_evidence: Callable[[], MissingEvidence]
    is_ready: Callable[[], bool]
    push: PushTargets
    cluster: Cluster = field(init=False)
    _ledger: RunningLedger | None = field(default=None, init=False)
    _event_log: EventLog | None = field(default=None, init=False)
    _abort: RunningAbort | None = field(default=None, init=False)
    _show_open: Callable[[list[Finding]], None] = field(default=lambda _: None, init=False)
    _heartbeats: HeartbeatSender | None = field(default=None, init=False)
    _bury: Callable[[list[str]], None] = field(default=lambda _: None, init=False)
    _closing: contextlib.ExitStack = field(default_factory=contextlib.ExitStack, init=False)
    _leases: contextlib.ExitStack = field(default_factory=contextlib.ExitStack, init=False)

    def __post_init__(self) -> None:
        self.cluster = Cluster(self.options.bootstrap, self.options.security, timeout_s=_ADMIN_TIMEOUT_S)

    @property
    def ledger(self) -> RunningLedger:
        """The ledger; `open` has been called."""
        assert self._ledger is not None
        return self._ledger

    def open(self) -> RunningLedger:
        """Composes the ledger and its sinks, and loads the published events. If it fails, `close` is still due.

        Raises:
            AuthorizationError: a right on the events topic is missing.
            BrokerError: the events topic cannot be created, or cannot be read.
        """
        config = librdkafka_config(self.options)
        self._ensure_topic(config)
        events, report = self.events, self.log.warning
        topic = KafkaEventsTopic(config, events.name, events.encoding, keys=events.keys, report=report)
        self._closing.callback(topic.close)
        self._bury = topic.bury
        pause_ms = self.settings.events_heartbeat_ms
        targets = [HeartbeatTarget(topic.beat, Every(pause_ms))] if pause_ms else []
        mirrors = self._mirrors(targets)
        self._heartbeats = self._sender(targets)
        log = self._event_log = EventLog(config, events.name, events.decode, events.keys, report=report)
        lease, gate = self._lease(config)
        ledger = RunningLedger(
            origin=self.origin,
            admin=ClusterAdmin(self.cluster),
            groups=ClusterGroups(self.cluster),
            topic=TopicOutbox(topic, self.log),
            mirrors=[*mirrors, *self.push.queues],
            now_ms=wall_clock_ms,
            new_records=lambda: self.listening.events_of(log.new_records()),
            has_read=lambda is_first: log.has_read(is_first=is_first),
            on_event=self.on_event,
            on_record=self.on_record,
            report=self.log.warning,
            retention_ms=self.settings.events_retention_ms,
            bury=topic.bury,
            evidence=EvidenceFile(self.evidence_file, self.log.warning),
            former_owners=FormerOwnersReader(self.cluster) if self.coordinator_view is CoordinatorAccess.LOG else None,
            role=gate.role,
            watch_of=self.options.watch_of,
            is_signed=events.keys is not None,
            decides=self.settings.auto_abort != OFF,
        )
        self.push.may_send = lambda: ledger.speaks
        ledger.remember(self.push.seen(self.listening.events_of(log.history(), is_history=True), self.origin))
        self._ledger = ledger
        self._abort = self._auto_abort(ledger, lease)
        return ledger

    def _ensure_topic(self, config: LibrdkafkaConfig) -> None:
        """Creates the events topic if it does not exist, and checks the rights on it before and after."""
        grantee = grantee_of(self.settings, self.options)
        check_events_rights(self.cluster, self.events.name, grantee)
        warning = ensure_topic(config, self.settings.events_topic)
        check_events_rights(self.cluster, self.events.name, grantee, is_created=True)
        if warning is not None:
            self.log.warning(warning)

    def _lease(self, config: LibrdkafkaConfig) -> tuple[GroupLease, SpeakerGate]:
        """The leases that decide what this instance publishes."""
        digest = self.options.topics_digest
        lease = GroupLease(config, self.events.name, lease_group(self.cluster_id, digest))
        self._leases.callback(lease.close)
        group = transactions_group(self.cluster_id)
        gate = SpeakerGate(lease, lambda: GroupLease(config, self.events.name, group), self.log.warning)
        self._leases.callback(gate.close)

        def hear(beat: Heartbeat) -> None:
            if beat.group == (self.cluster_id, digest) and beat.speaks and beat.instance != self.instance:
                gate.hear()

        self.listening.on_heartbeat = hear
        return lease, gate

    def _sender(self, targets: Sequence[HeartbeatTarget]) -> HeartbeatSender:
        return HeartbeatSender(
            self.instance,
            self.cluster_id,
            self.cluster,
            self.options,
            self.progress,
            targets,
            self.missing_evidence,
            self.is_ready,
            lambda: self.ledger.topic.waiting,
            lambda: self.ledger.undecided,
            lambda: failing_targets(self.ledger.outboxes),
            lambda: self.ledger.speaks,
        )

    def _mirrors(self, targets: list[HeartbeatTarget]) -> list[MirrorQueue]:
        """The destinations beside the events topic; those that take heartbeats are added to the targets."""
        return [self._redis(url, targets)] if (url := self.settings.redis_url) is not None else []

    def _background(self, name: str, mirror: Mirror, view: OpenIncidentsView | None = None) -> BackgroundMirror:
        """The queue and the thread of a destination."""
        background = BackgroundMirror(MirrorOutbox(name, mirror, self.log, view=view), wall_clock_ms, self.log)
        self._closing.callback(background.stop)
        return background

    def _redis(self, url: str, targets: list[HeartbeatTarget]) -> MirrorQueue:
        redis = RedisMirror(url, self.cluster_id, self.events.keys)
        self._closing.callback(redis.close)
        mirror = self._background(redis.name, redis, redis)
        open_list = OpenList(redis.show_open)

        def beat(heartbeat: Heartbeat) -> None:
            mirror.beat(functools.partial(redis.beat, heartbeat))

        def show_open(emitted: list[Finding]) -> None:
            if not self.ledger.speaks:
                return
            lists = [finding for finding in emitted if isinstance(finding, OpenTransactions)]
            mirror.offer("open", functools.partial(open_list.on_batch, lists, wall_clock_ms()))

        targets.append(HeartbeatTarget(beat, Every(_REDIS_HEARTBEAT_MS)))
        self._show_open = show_open
        return mirror

    @property
    def origin(self) -> Origin:
        """What the events and the commands of this watch share."""
        config = self.settings.command_config
        path = str(config.absolute()) if config is not None else None
        settings = self.settings
        flags = events_flags(
            settings.events_topic,
            settings.schema_registry_url,
            events_format=settings.events_format,
            key_file=settings.events_key_file,
        )
        view, name = self.coordinator_view, settings.cluster_name
        return Origin(
            *(self.cluster_id, settings.bootstrap_server, path, flags, view, self.owners, name),
            instance=self.instance,
        )

    def _auto_abort(self, ledger: RunningLedger, lease: GroupLease) -> RunningAbort:
        settings = self.settings
        return RunningAbort(
            mode=settings.auto_abort,
            policy=settings.abort_policy,
            cooldown_ms=settings.abort_breaker_cooldown_ms,
            ledger=ledger,
            lease=lease,
            instance=self.instance,
            now_ms=wall_clock_ms,
            log=self.log,
            principal=own_principal(self.options.security),
        )

    def on_batch(self, emitted: list[Finding]) -> None:
        """Passes the output of one micro-batch to the ledger, the automatic abort and the list in Redis."""
        assert self._abort is not None
        self._abort.recover()
        self.ledger.on_batch(emitted)
        self._abort.on_batch()
        self._show_open(emitted)

    def beat(self, emitted: list[Finding], now_ms: TimestampMs) -> None:
        """Writes the heartbeats that are due, and removes those of watchers that have ended."""
        if self._heartbeats is not None:
            self._heartbeats.on_batch(emitted, now_ms)
        self.listening.remove_expired_heartbeats(self.settings.events_retention_ms, now_ms, self._bury)

    def watched(self, now_ms: TimestampMs) -> tuple[int, int, int]:
        """The numbers of partitions that are scanned, that only a census watches, and of these, beyond the budget."""
        return self._heartbeats.watched(now_ms) if self._heartbeats is not None else (0, 0, 0)

    @property
    def counted(self) -> tuple[int, int] | None:
        """How many partitions may be scanned, and how many only a census watches, as they were counted last."""
        return self._heartbeats.counted if self._heartbeats is not None else None

    @property
    def topics(self) -> Mapping[str, int]:
        """How many partitions of each topic are watched; see `watched`."""
        return self._heartbeats.topics if self._heartbeats is not None else {}

    def close(self) -> Counter[str]:
        """Closes everything, with one last attempt to deliver the waiting events; returns what was counted.

        The lease is handed over once the events topic has its last event.
        """
        counts: Counter[str] = Counter()
        with contextlib.ExitStack() as closing:
            if self._event_log is not None:
                closing.callback(self._event_log.close)
            closing.push(self._closing)
            closing.push(self._leases)
            if self._abort is not None:
                counts.update(self._abort.counts)
            if self._ledger is not None:
                counts.update(self._ledger.counts)
                self._ledger.deliver_last(self._hand_over)
        return counts

    def _hand_over(self) -> None:
        """Leaves the groups of the leases: another instance speaks soon."""
        until_s = time.monotonic() + _LAST_REQUESTS_S
        self.push.may_send = lambda: time.monotonic() < until_s
        self._leases.close()
