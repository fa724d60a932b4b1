"""Composition root of `txnwatch run`: constructs the adapters and passes them to the streaming job and the sinks.

The watch is first; then what it gives to its Spark source, and the certificate files that it looks at.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from txnwatch.config import RunSettings
from txnwatch.librdkafka import events_topic, grantee_of, librdkafka_config
from txnwatch.metrics.collector import Metrics
from txnwatch.named_files import NamedFiles
from txnwatch.owners.owner_table import read_owners
from txnwatch.page.shown_past import ShownPast
from txnwatch.page.store import KnownNow, PageStore, Reach, StartStep, TargetRow, Watched
from txnwatch.push.push_file import NO_TARGETS
from txnwatch.push.targets import PushTargets
from txnwatch.setting_sources import broker_properties
from txnwatch.sink_set import SinkSet
from txnwatch.sinks.delivery.event_log import SkippedRecords, read_events
from txnwatch.sinks.delivery.outbox import MirrorQueue, TopicOutbox
from txnwatch.sinks.delivery.redis_client import check_login
from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.spark_start import NextStart, SparkStart
from txnwatch.state.audit.exposure_rows import PeriodicAudit
from txnwatch.state.incidents.automatic_abort import OFF
from txnwatch.state.incidents.heartbeat import TopicRecord
from txnwatch.state.incidents.past_incidents import IncidentHistory
from txnwatch.state.model.errors import QueryError, TxnwatchError
from txnwatch.state.model.facts import DataRead
from txnwatch.state.model.findings import BucketCount, CensusReason, Finding
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.pauses import Every
from txnwatch.state.model.ports import Log
from txnwatch.state.model.values import CoordinatorAccess, Offset, TimestampMs, TopicPartition, lease_group
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.state.text import redacted, shown_place
from txnwatch.streaming.admin.kafka_settings import scan_interval_warning
from txnwatch.streaming.checks.preflight import (
    ChosenView,
    broker_timeouts,
    check_cluster,
    check_events_rights,
    left_by_abort,
)
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.metadata import TopicInfo
from txnwatch.streaming.client.tls import Tls
from txnwatch.streaming.job.checkpoint import Progress, SideFiles, absolute, read_progress
from txnwatch.streaming.job.checkpoint_lease import CheckpointLease, take_lease
from txnwatch.streaming.job.jvm import can_prepare
from txnwatch.streaming.job.query import BatchErrors, JobSettings, cores_of, start
from txnwatch.streaming.job.spark_conf import check_checkpoint_place, chosen_master, is_local
from txnwatch.streaming.job.state_directory import StateDirectories, check_local_states, state_name
from txnwatch.streaming.source.driver_file import DriverFile, next_barrier_due
from txnwatch.streaming.source.options import LATEST, parse_options
from txnwatch.streaming.source.planner import requests_after
from txnwatch.watch.alerts import ClockDifferences, FindingLines, SlowBatches, Throttling, report_view
from txnwatch.watch.coverage import Coverage, TimeoutLimit
from txnwatch.watch.hourly_audit import HourlyAudit
from txnwatch.watch.listening import EventListener

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# The watch.


@dataclass
class Watch:
    """One running watcher: `txnwatch run` starts, supervises and stops it.

    Attributes:
        named: what is read from the files that the settings name.
        cluster_id, topics, access: known after `check`.
        log: receives the operational messages, which are not incident events.
        on_event: receives every incident event.
        is_stopping: whether no further micro-batch may begin.
        files: txnwatch's own files beside the checkpoint.
        certificates: the certificate files of the connection to Kafka.
        timeout_limit: the longest timeout of a transaction, for the view `none`.
        coverage: the partitions without evidence, and whether the watch is ready.
        page: what the page shows.
        batch_errors: the error of txnwatch that has ended the query.
        owners: the table of owners; a reload replaces it before the query starts again.
        sinks: the ledger and what it publishes to, while the watch runs.
        counts: partition notices, view mismatches, confirmations by answer, and abort decisions.
    """

    settings: RunSettings
    named: NamedFiles
    log: Log
    on_event: Callable[[IncidentEvent], None]
    is_stopping: Callable[[], bool] = lambda: False
    cluster_id: str = ""
    topics: Sequence[TopicInfo] = ()
    access: CoordinatorAccess = CoordinatorAccess.LOG
    batches: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    batch_errors: BatchErrors = field(default_factory=BatchErrors, init=False)
    sinks: SinkSet | None = field(default=None, init=False)
    _query: StreamingQuery | None = field(default=None, init=False)
    _cores: int | None = field(default=None, init=False)
    _lease: CheckpointLease | None = field(default=None, init=False)
    _next_start: NextStart | None = field(default=None, init=False)
    _in_use: threading.RLock = field(default_factory=threading.RLock, init=False)

    def __post_init__(self) -> None:
        self._master = chosen_master(self.settings.master, os.environ)
        self.checkpoint = absolute(self.settings.checkpoint)
        self.files = SideFiles(self.checkpoint)
        properties = self.named.properties
        self._properties = broker_properties(properties)
        self._events = events_topic(
            self.settings.events_topic,
            self.settings.events_format,
            self.settings.schema_registry_url,
            properties,
            self.named.keys,
        )
        self.owners = read_owners(self.settings.owners_file)
        self._push = PushTargets(self.named.push or NO_TARGETS, self.files.directory, wall_clock_ms, self.log)
        self._source = SourceLink(self.files.driver_file)
        is_signed = self.named.keys is not None
        self._listening = EventListener(SkippedRecords(self.log.warning, wall_clock_ms), is_signed=is_signed)
        self.options = parse_options(self._source_options())
        self.certificates = CertificateFiles(self.options.security.tls)
        self.metrics = Metrics(wall_clock_ms)
        self.metrics.progress = self._progress
        self.page = PageStore(self.instance, is_of_ledger=True, topics_digest=self.options.topics_digest)
        self.coverage = Coverage(
            self.log,
            progress=self._progress,
            awaits_census=True,
            watched=lambda: self.sinks.counted if self.sinks is not None else None,
        )
        self._throttling = Throttling(self.log)
        self._slow_batches = SlowBatches(self.log)
        self._observers = (FindingLines(self.log, self.counts), self.coverage, ClockDifferences(self.log))
        self._audit = HourlyAudit(
            lambda: Cluster(self.options.bootstrap, self.options.security),
            self._published,
            lambda: self.owners,
            grantee_of(self.settings, self.options),
            self.log,
            self._take_audit,
        )
        self.timeout_limit = TimeoutLimit(self.settings.max_transaction_timeout_ms)

    @property
    def instance(self) -> str:
        """The name of this watch in heartbeats and abort decisions: host name and checkpoint."""
        return f"{socket.gethostname()}:{redacted(self.checkpoint)}"

    @property
    def _group(self) -> tuple[str, str]:
        """The cluster and the topics: of the instances with the same ones, one speaks."""
        return self.cluster_id, self.options.topics_digest

    @property
    def spark_log(self) -> Path:
        """The file that receives all output of Spark."""
        return self.files.spark_log

    def _source_options(self) -> dict[str, str]:
        """The options of the Spark source by name, as text; the number of cores is not known before Spark runs."""
        settings = self.settings
        return {
            **{f"kafka.{name}": value for name, value in self._properties.items()},
            "kafka.bootstrap.servers": settings.bootstrap_server,
            "subscribePattern": settings.topics,
            "censusPattern": settings.census_topics,
            "censusIntervalMs": str(settings.census_interval_ms),
            "healIntervalMs": str(settings.heal_interval_ms),
            **_if_set("foreignPattern", settings.foreign_topics),
            "coordinatorView": str(self.access),
            "startingOffsets": LATEST if self._source.is_rebuilt else settings.starting_offsets,
            "maxOffsetsPerTrigger": str(settings.max_offsets_per_trigger),
            **_if_set("maxBytesPerSecond", settings.max_bytes_per_second or None),
            **_if_set("firstPattern", settings.first_topics),
            "maxReadMsPerTrigger": str(settings.max_read_ms_per_trigger),
            "statePartitions": str(settings.state_partitions),
            **_if_set("inputPartitions", settings.input_partitions or self._cores),
            "driverFile": str(self.files.driver_file),
        }

    def check(self) -> None:
        """Connects to the cluster and checks rights and checkpoint, before anything slow starts.

        Raises:
            TxnwatchError: a check fails; the message has the reason.
        """
        check_checkpoint_place(self.checkpoint, self._master, is_shared=self.settings.checkpoint_is_shared)
        librdkafka_config(self.options)  # a keystore or a mechanism that it cannot use is an error now
        if (url := self.settings.redis_url) is not None:
            check_login(url, f"Redis {shown_place(url)}")
        cluster = Cluster(self.options.bootstrap, self.options.security)
        with contextlib.closing(cluster):
            checked = check_cluster(cluster, self.options, self.settings.coordinator_view, self.log)
            own = state_name(checked.view.access, self.settings.state_partitions)
            check_local_states(self.checkpoint, own, checked.cluster_id)
            check_events_rights(cluster, self._events.name, grantee_of(self.settings, self.options))
            self._take_view(checked.view, cluster)
            warning = scan_interval_warning(cluster)
            left = left_by_abort(cluster) if self.settings.auto_abort != OFF else None
        self.cluster_id, self.topics = checked.cluster_id, checked.topics
        if warning is not None and self.settings.coordinator_scan_interval_ms is None:
            self.log.warning(warning)
        if left is not None:
            self.log.warning(f"--auto-abort {self.settings.auto_abort}: {left}")
        self.metrics.cluster_id, self.metrics.cluster_name = self.cluster_id, self.settings.cluster_name
        self.metrics.lease_group = lease_group(*self._group)

    def _take_view(self, view: ChosenView, cluster: Cluster) -> None:
        """Takes the view of the coordinators, and reports what it does not detect."""
        self.access = self.coverage.access = self.page.access = view.access
        self.options = parse_options(self._source_options())
        self.metrics.take_access(view.access)
        if view.access is CoordinatorAccess.NONE:
            self.timeout_limit.read(functools.partial(broker_timeouts, cluster))
        report_view(self.log, view, self.timeout_limit.ms, self.timeout_limit.known.problem)

    @property
    def _policy(self) -> DetectionPolicy:
        policy = self.settings.policy
        return replace(
            policy,
            coordinator_access=self.access,
            coordinator_ask_ms=min(self.settings.census_interval_ms, policy.coordinator_ask_ms),
            longest_timeout_ms=self.timeout_limit.ms,
        )

    def _progress(self) -> Progress | None:
        query = self._query
        try:
            return read_progress(query.lastProgress) if query is not None else None
        except Exception:  # noqa: BLE001 - Spark is shutting down: the progress is unknown
            return None

    def ends(self) -> Mapping[TopicPartition, Offset]:
        """The ends of the scanned partitions; none while the progress of the query is not known."""
        progress = self._progress()
        return progress.ends if progress is not None else {}

    def open_ledger(self) -> RunningLedger:
        """Opens a ledger with its sinks and loads the published events; closes the previous ledger first.

        Raises:
            BrokerError: the events topic cannot be created, or cannot be read.
        """
        with self._in_use:
            self._close_sinks()
            self.certificates.use()
            self._push.start()
            self.sinks = SinkSet(
                settings=self.settings,
                options=self.options,
                cluster_id=self.cluster_id,
                instance=self.instance,
                events=self._events,
                listening=self._listening,
                evidence_file=self.files.evidence,
                coordinator_view=self.access,
                owners=self.owners,
                log=self.log,
                on_event=self._on_event,
                on_record=self.page.take_record,
                progress=self._progress,
                missing_evidence=lambda: self.coverage.evidence,
                is_ready=lambda: self.coverage.is_ready,
                push=self._push,
            )
            self.page.origin = self.sinks.origin
            self._throttling.asked = self.sinks.cluster.take_throttled
            has_page = self.settings.http_port is not None
            history = self._listening.history = IncidentHistory(self.owners) if has_page else None
            ledger = self.sinks.open()
            if history is not None:
                is_signed = self._events.keys is not None
                self.page.history = ShownPast(self._events.name, history, is_signed=is_signed)
            self.metrics.query_starts(ledger)
            return ledger

    def begin_archive(self) -> None:
        """Begins the archive of classes for the next start, once, if one would help here and there is none."""
        if self._next_start is None and is_local(self._master) and can_prepare():
            self._next_start = NextStart(self.log)
            self._next_start.begin()

    def end_archive(self) -> None:
        """Ends the process that makes the archive."""
        if self._next_start is not None:
            self._next_start.end()

    def start_spark(self, begun: SparkStart) -> SparkSession:
        """Makes the Spark session in the JVM that has begun: its output goes to `spark_log`.

        Raises:
            SparkError: Spark does not start.
        """
        self.page.step = StartStep.SPARK
        session = begun.session(self.spark_log)
        self.page.step = StartStep.PLAN
        self.metrics.jvm_pid = _pid_of_jvm(session)
        return session

    def take_lease(self, session: SparkSession, is_over: Callable[[], bool]) -> contextlib.AbstractContextManager[None]:
        """Takes the lease of a checkpoint that is not local; the context renews it, and releases it if all has ended.

        Raises:
            CheckpointError: another driver uses the checkpoint.
            SparkError: its file system cannot be reached.
        """
        self._lease = take_lease(session, self.checkpoint, self.log, f"details: {self.spark_log}")
        return self._lease.kept(is_over) if self._lease is not None else contextlib.nullcontext()

    def _may_no_batch_begin(self) -> bool:
        if self._lease is not None:
            self._lease.check()
        return self.is_stopping()

    def start_query(self, session: SparkSession) -> StreamingQuery:
        """Starts the query; every micro-batch goes to `on_batch`.

        Raises:
            CheckpointError: the checkpoint is of another cluster, or of another program.
        """
        if self.settings.input_partitions is None:
            self._cores = cores_of(session)
        own = state_name(self.access, self.settings.state_partitions)
        states = StateDirectories(session, self.checkpoint, own, self.log)
        self._source.begin(is_rebuilt=states.begin(self.cluster_id))
        self._query = start(
            session,
            JobSettings(
                source_options=self._source_options(),
                checkpoint=states.own,
                trigger_ms=self.settings.trigger_ms,
                policy=self._policy,
            ),
            self.on_batch,
            self._may_no_batch_begin,
            self.batch_errors,
        )
        self.page.step = StartStep.LOGS
        return self._query

    def _on_event(self, event: IncidentEvent) -> None:
        self.metrics.on_event(event)
        self.page.take_event(event)
        self.on_event(event)

    def on_batch(self, batch_id: int, emitted: list[Finding]) -> None:
        """Processes the output of one micro-batch, in the driver."""
        with self._in_use:
            self._process(batch_id, emitted)

    def _process(self, batch_id: int, emitted: list[Finding]) -> None:
        assert self.sinks is not None
        emitted = self._throttling.on_batch(emitted)
        for observer in self._observers:
            observer.on_batch(emitted)
        self.sinks.on_batch(emitted)
        ledger = self.sinks.ledger
        undescribed = self.coverage.evidence.undescribed
        wanted = {CensusReason.DOUBT: ledger.refuted, CensusReason.FAILED: undescribed}
        self._source.write(emitted, wanted, self.options.buckets, ledger.due_ms)
        self.metrics.take_passed_over(self._listening.passed_over.counts)
        is_ready, evidence = self.coverage.is_ready, self.coverage.evidence
        self.metrics.on_batch(batch_id, emitted, ledger, is_ready=is_ready, evidence=evidence)
        now_ms = wall_clock_ms()
        speaker = self.instance if ledger.speaks else self._listening.speaker(self._group, now_ms)
        seen = KnownNow(
            incidents=ledger.incidents,
            reach=Reach(evidence.unproven, is_log_read=evidence.is_log_read, undecided=ledger.undecided),
            is_ready=is_ready,
            watched=Watched(*self.sinks.watched(now_ms)),
            undelivered=ledger.lacking(has_speaker=speaker is not None),
            targets=[_target_row(outbox) for outbox in ledger.outboxes],
            speaks=ledger.speaks,
            speaker=speaker,
            topics=self.sinks.topics or {topic.name: len(topic.partitions) for topic in self.topics},
        )
        self.page.take(emitted, seen, now_ms)
        self.sinks.beat(emitted, now_ms)
        if self.access is CoordinatorAccess.NONE:
            self.timeout_limit.refresh(functools.partial(broker_timeouts, self.sinks.cluster), wall_clock_ms())
        if self.coverage.is_ready:
            self._audit.start()
            self._slow_batches.on_batch(emitted)
        self.batches += 1

    def _published(self) -> Iterator[TopicRecord]:
        """The records of the events topic."""
        events = self._events
        return read_events(librdkafka_config(self.options), events.name, decode=events.decode, keys=events.keys)

    def _take_audit(self, audit: PeriodicAudit) -> None:
        self.metrics.take_exposures(audit.counts)
        self.page.audited = audit
        self.page.on_change()

    def close(self) -> None:
        """Closes the ledger, with one last attempt to deliver the waiting events; waits for the current micro-batch."""
        with self._in_use:
            self._close_sinks()
            self._push.stop()
            self._audit.stop()

    def _close_sinks(self) -> None:
        if self.sinks is not None:
            sinks, self.sinks = self.sinks, None
            self.counts.update(sinks.close())


def _target_row(outbox: MirrorQueue | TopicOutbox) -> TargetRow:
    tally = outbox.tally
    return TargetRow(outbox.name, outbox.waiting, tally.oldest_ms, tally.error, tally.is_stopped)


def _pid_of_jvm(session: SparkSession) -> int:
    """The process id of the JVM of a session; the JVM runs on this machine, whoever has started it."""
    return int(session.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # noqa: SLF001 - as in failures.py


def _if_set(option: str, value: object | None) -> dict[str, str]:
    return {option: str(value)} if value is not None else {}


# What the source gets while the query runs.


class SourceLink:
    """What the driver tells the source.

    Attributes:
        is_rebuilt: whether the state has replaced that of another version. The setting of the starting offsets is for
            the first start only.
    """

    def __init__(self, path: Path) -> None:
        self._file = DriverFile(path)
        self.is_rebuilt = False

    def begin(self, *, is_rebuilt: bool) -> None:
        """Before the query starts.

        Raises:
            QueryError: the file cannot be written now.
        """
        self.is_rebuilt = is_rebuilt
        try:
            self._file.write()
        except OSError as exc:
            raise QueryError(f"{self._file.path} cannot be written: {exc.strerror}") from exc

    def write(
        self,
        emitted: Sequence[Finding],
        wanted: Mapping[CensusReason, Iterable[TopicPartition]],
        buckets: int,
        ledger_ms: TimestampMs,
    ) -> None:
        """After a micro-batch: what to read again and to describe, and when the next barrier is due.

        Args:
            emitted: the output of the micro-batch.
            wanted: partitions that the driver wants to be described.
            buckets: the number of buckets of the state.
            ledger_ms: when the ledger needs the next barrier.
        """
        counts = [finding for finding in emitted if isinstance(finding, BucketCount)]
        due = next_barrier_due(counts, buckets, ledger_ms)
        read = (finding for finding in emitted if isinstance(finding, DataRead))
        self._file.write(requests_after(emitted, wanted), due, read)


# The certificate files of the connection to Kafka: whether they were renewed since the clients were made.
#
# librdkafka reads certificates only when a client is made. Our own connections use renewed files anyway.

LOOK_S: Final = 5.0


class CertificateFiles:
    """The files of one watch; looks at them every few seconds."""

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self._used = tls.stamps
        self._looking = Every(LOOK_S)

    def use(self) -> None:
        """The clients are made now, with the files as they are."""
        self._used = self._tls.stamps

    def are_renewed(self) -> bool:
        """Whether the files have changed since, and can be used."""
        if not self._looking.take(time.monotonic()) or self._tls.stamps == self._used:
            return False
        try:
            self._tls.context()
        except TxnwatchError:  # somebody may be replacing the files at this moment
            return False
        return True
