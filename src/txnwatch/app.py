"""Composition root of `txnwatch run`: constructs the adapters and passes them to the streaming job and the sinks."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from txnwatch.client_properties import broker_properties, client_properties
from txnwatch.config import RunSettings
from txnwatch.config_providers import hidden_from_children
from txnwatch.librdkafka import events_keys, events_topic, librdkafka_config
from txnwatch.metrics.collector import Metrics
from txnwatch.metrics.server import MetricsServer
from txnwatch.metrics.web_config import read_web_config
from txnwatch.setting_sources import ENVIRONMENT_PREFIX
from txnwatch.sink_set import SinkSet
from txnwatch.sinks.delivery.skipped_records import SkippedRecords
from txnwatch.sinks.incidents.ledger import Ledger
from txnwatch.spark_output import output_to, text_since
from txnwatch.state.model.coordinator_access import CoordinatorAccess
from txnwatch.state.model.facts import NoticeKind
from txnwatch.state.model.findings import BucketCount, Finding, PartitionAlarm, ViewHealed
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.policy import DetectionPolicy
from txnwatch.state.model.ports import Log
from txnwatch.state.model.quantities import DurationMs
from txnwatch.state.text.redaction import redacted
from txnwatch.streaming.admin.broker_settings import scan_interval_warning
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.metadata import TopicInfo
from txnwatch.streaming.job.checkpoint import local_directory
from txnwatch.streaming.job.coordinator_view import ChosenView, longest_timeout
from txnwatch.streaming.job.failures import check_python, start_error
from txnwatch.streaming.job.preflight import check_cluster
from txnwatch.streaming.job.progress import Progress, read_progress
from txnwatch.streaming.job.side_files import SideFiles
from txnwatch.streaming.source.idle_barriers import next_barrier_due, write_next_barrier
from txnwatch.streaming.source.options import LATEST, parse_options
from txnwatch.streaming.source.reread_file import write_requests
from txnwatch.streaming.source.reread_requests import requests_after
from txnwatch.watch.certificate_files import CertificateFiles
from txnwatch.watch.coordinator_view_lines import view_lines
from txnwatch.watch.coverage import Coverage
from txnwatch.watch.event_listener import EventListener
from txnwatch.watch.throttling import Throttling

if TYPE_CHECKING:  # these imports take a second, and only `run` needs them
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass
class Watch:
    """One running detector: `txnwatch run` starts, supervises and stops it.

    Attributes:
        cluster_id, topics, access: known after `check`.
        log: receives the operational messages, which are not incident events.
        on_event: receives every incident event.
        is_stopping: whether no further micro-batch may begin.
        files: txnwatch's own files beside the checkpoint.
        certificates: the certificate files of the connection to Kafka.
        coverage: the partitions without evidence, and whether the watch is ready.
        counts: partition notices, view mismatches, confirmations by answer, and abort decisions.
    """

    settings: RunSettings
    log: Log
    on_event: Callable[[IncidentEvent], None]
    is_stopping: Callable[[], bool] = lambda: False
    cluster_id: str = ""
    topics: Sequence[TopicInfo] = ()
    access: CoordinatorAccess = CoordinatorAccess.LOG
    batches: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    _sinks: SinkSet | None = field(default=None, init=False)
    _query: StreamingQuery | None = field(default=None, init=False)
    _is_rebuilt: bool = field(default=False, init=False)
    _longest_timeout_ms: DurationMs | None = field(default=None, init=False)
    _in_use: threading.RLock = field(default_factory=threading.RLock, init=False)

    def __post_init__(self) -> None:
        directory = local_directory(self.settings.checkpoint)
        self.checkpoint = str(directory.absolute()) if directory is not None else self.settings.checkpoint
        self.files = SideFiles(self.checkpoint)
        properties = client_properties(self.settings.command_config)
        self._properties = broker_properties(properties)
        self._events = events_topic(
            self.settings.events_topic,
            self.settings.events_format,
            self.settings.schema_registry_url,
            properties,
            events_keys(self.settings.events_key_file, self.log.warning),
        )
        self._listening = EventListener(SkippedRecords(self.log.warning, wall_clock_ms))
        self.options = parse_options(self._source_options())
        self.certificates = CertificateFiles(self.options.security.tls)
        self.metrics = Metrics(wall_clock_ms)
        self.metrics.progress = self._progress
        self.coverage = Coverage(self.log, progress=self._progress, census_interval_ms=self.settings.census_interval_ms)
        self._throttling = Throttling(self.log)

    @property
    def instance(self) -> str:
        """The name of this watch in heartbeats and abort decisions: host name and checkpoint."""
        return f"{socket.gethostname()}:{redacted(self.checkpoint)}"

    @property
    def spark_log(self) -> Path:
        """The file that receives all output of Spark."""
        return self.files.spark_log

    def _source_options(self) -> dict[str, str]:
        return {
            **{f"kafka.{name}": value for name, value in self._properties.items()},
            "kafka.bootstrap.servers": self.settings.bootstrap_server,
            "subscribePattern": self.settings.topics,
            "censusPattern": self.settings.census_topics,
            "censusIntervalMs": str(self.settings.census_interval_ms),
            "healIntervalMs": str(self.settings.heal_interval_ms),
            **_if_set("foreignPattern", self.settings.foreign_topics),
            "coordinatorView": str(self.access),
            "startingOffsets": LATEST if self._is_rebuilt else self.settings.starting_offsets,
            "maxOffsetsPerTrigger": str(self.settings.max_offsets_per_trigger),
            "maxBytesPerTrigger": str(self.settings.max_bytes_per_trigger),
            **_if_set("maxBytesPerSecond", self.settings.max_bytes_per_second),
            "maxReadMsPerTrigger": str(self.settings.max_read_ms_per_trigger),
            "inputPartitions": str(self.settings.input_partitions),
            "controlFile": str(self.files.rereads),
            "nextBarrierFile": str(self.files.next_barrier),
        }

    def check(self) -> None:
        """Connects to the cluster and checks rights and checkpoint, before anything slow starts.

        Raises:
            TxnwatchError: a check fails; the message has the reason.
        """
        librdkafka_config(self.options)  # a keystore or a mechanism that it cannot use is an error now
        cluster = Cluster(self.options.bootstrap, self.options.security)
        with contextlib.closing(cluster):
            found = check_cluster(cluster, self.options, self.checkpoint, self.settings.coordinator_view)
            self._take_view(found.view, cluster)
            warning = scan_interval_warning(cluster)
        self.cluster_id, self.topics = found.cluster_id, found.topics
        if warning is not None and self.settings.coordinator_scan_interval_ms is None:
            self.log.warning(warning)
        self.metrics.cluster_id = self.cluster_id

    def _take_view(self, view: ChosenView, cluster: Cluster) -> None:
        """Takes the view of the coordinators, and reports what it does not detect."""
        self.access = self.coverage.access = view.access
        self.options = parse_options(self._source_options())
        self.metrics.take_access(view.access)
        limit_ms, problem = self.settings.max_transaction_timeout_ms, None
        if view.access is CoordinatorAccess.NONE and limit_ms is None:
            found = longest_timeout(cluster)
            limit_ms, problem = found.ms, found.problem
        self._longest_timeout_ms = limit_ms
        for line in view_lines(view, limit_ms, problem):
            self.log.warning(line)

    @property
    def _policy(self) -> DetectionPolicy:
        return replace(
            self.settings.policy,
            coordinator_access=self.access,
            coordinator_ask_ms=self.settings.census_interval_ms,
            longest_timeout_ms=self._longest_timeout_ms,
        )

    @contextlib.contextmanager
    def served_metrics(self) -> Iterator[MetricsServer | None]:
        """Serves metrics while the block runs, if `metrics_port` is set; yields the server.

        Raises:
            ConfigError: the port is in use, or the web configuration file is invalid.
        """
        port = self.settings.metrics_port
        if port is None:
            yield None
            return
        web = read_web_config(self.settings.metrics_web_config_file)
        host = self.settings.metrics_host
        server = MetricsServer(self.metrics.registry, host, port, lambda: self.metrics.is_judging, web)
        self.log.info(f"metrics at {server.url}/metrics")
        try:
            yield server
        finally:
            server.close()

    def _progress(self) -> Progress | None:
        query = self._query
        try:
            return read_progress(query.lastProgress) if query is not None else None
        except Exception:  # noqa: BLE001 - Spark is shutting down: the progress is unknown
            return None

    def open_ledger(self) -> Ledger:
        """Opens a ledger with its sinks and loads the published events; closes the previous ledger first.

        Raises:
            BrokerError: the events topic cannot be created, or cannot be read.
        """
        with self._in_use:
            self.close()
            self.certificates.use()
            self._sinks = SinkSet(
                settings=self.settings,
                options=self.options,
                cluster_id=self.cluster_id,
                instance=self.instance,
                events=self._events,
                listening=self._listening,
                evidence_file=self.files.evidence,
                coordinator_view=self.access,
                log=self.log,
                on_event=self._on_event,
                progress=self._progress,
                missing_evidence=lambda: self.coverage.evidence,
            )
            self._throttling.asked = self._sinks.cluster.take_throttled
            ledger = self._sinks.open()
            self.metrics.query_starts(ledger)
            return ledger

    def start_spark(self) -> SparkSession:
        """Starts the Spark session; the output of the JVM and its workers goes to `spark_log`.

        Raises:
            SparkError: Spark does not start.
        """
        from py4j.protocol import Py4JError  # noqa: PLC0415
        from pyspark.errors import PySparkException  # noqa: PLC0415

        from txnwatch.streaming.job.query import spark_session  # noqa: PLC0415

        check_python(os.environ.setdefault("PYSPARK_PYTHON", sys.executable))
        begin = self.spark_log.stat().st_size if self.spark_log.exists() else 0
        try:
            with output_to(self.spark_log) as output, hidden_from_children(ENVIRONMENT_PREFIX):
                return spark_session(
                    self.checkpoint,
                    master=self.settings.master or None,
                    state_partitions=self.settings.state_partitions,
                    output=output,
                )
        except (Py4JError, PySparkException, ImportError) as exc:
            raise start_error(exc, text_since(self.spark_log, begin), f"details: {self.spark_log}") from exc

    def start_query(self, session: SparkSession) -> StreamingQuery:
        """Starts the query; every micro-batch goes to `on_batch`.

        Raises:
            CheckpointError: an earlier checkpoint has to be moved aside, and cannot be.
        """
        from txnwatch.streaming.job.query import JobSettings, start  # noqa: PLC0415
        from txnwatch.streaming.job.set_aside import complete_move  # noqa: PLC0415

        self._is_rebuilt = complete_move(session, self.checkpoint)
        self._query = start(
            session,
            JobSettings(
                source_options=self._source_options(),
                checkpoint=self.checkpoint,
                trigger_ms=self.settings.trigger_ms,
                policy=self._policy,
            ),
            self.on_batch,
            self.is_stopping,
        )
        return self._query

    def _on_event(self, event: IncidentEvent) -> None:
        self.metrics.on_event(event)
        self.on_event(event)

    def on_batch(self, batch_id: int, emitted: list[Finding]) -> None:
        """Processes the output of one micro-batch, in the driver."""
        with self._in_use:
            self._process(batch_id, emitted)

    def _process(self, batch_id: int, emitted: list[Finding]) -> None:
        assert self._sinks is not None
        emitted = self._throttling.on_batch(emitted)
        for finding in emitted:
            self._report(finding)
        self.coverage.on_batch(emitted)
        self._sinks.on_batch(emitted)
        ledger = self._sinks.ledger
        write_requests(self.files.rereads, requests_after(emitted, ledger.doubted))
        self._write_next_barrier(emitted, ledger)
        self._sinks.beat(emitted, wall_clock_ms())
        self.metrics.take_passed_over(self._listening.passed_over.counts)
        self.metrics.on_batch(
            batch_id, emitted, ledger, is_ready=self.coverage.is_ready, evidence=self.coverage.evidence
        )
        self.batches += 1

    def _write_next_barrier(self, emitted: list[Finding], ledger: Ledger) -> None:
        """Writes the due time of the next barrier, if every bucket has counted its producers."""
        counts = [finding for finding in emitted if isinstance(finding, BucketCount)]
        due = next_barrier_due(counts, self.options.buckets, can_wait=ledger.can_wait)
        if due is not None:
            write_next_barrier(self.files.next_barrier, due)

    def _report(self, finding: Finding) -> None:
        """Reports a finding that an operator should know and that is not an incident event."""
        match finding:
            case PartitionAlarm(notice):
                self.counts[f"partitions {notice.kind}"] += 1
                where = "" if notice.kind is NoticeKind.HIDDEN else f" [{notice.from_offset}, {notice.to_offset})"
                self.log.warning(f"{notice.kind} {notice.partition}{where}: {notice.detail}")
            case ViewHealed():
                self.counts[f"view mismatches ({finding.mismatch})"] += 1
                self.log.warning(
                    f"producer id {finding.producer_id} on {finding.partition} from {finding.start_offset}: "
                    f"{finding.mismatch} at its leader, but not in our copy of the log; the leader is right"
                )

    def close(self) -> None:
        """Closes the ledger, with one last attempt to deliver the waiting events; waits for the current micro-batch."""
        with self._in_use:
            if self._sinks is not None:
                sinks, self._sinks = self._sinks, None
                self.counts.update(sinks.close())


def _if_set(option: str, value: object | None) -> dict[str, str]:
    return {option: str(value)} if value is not None else {}
