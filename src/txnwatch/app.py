"""Composition: the only place that constructs adapters and hands them to the streaming job and the sinks."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from txnwatch.clients import events_topic, librdkafka_config, told_at
from txnwatch.config import RunSettings, broker_properties, client_properties
from txnwatch.lasting import Lasting
from txnwatch.metrics import Metrics
from txnwatch.metrics_server import MetricsServer
from txnwatch.quiet import output_to
from txnwatch.sinks.abort import OFF, AutoAbort
from txnwatch.sinks.commands import Origin
from txnwatch.sinks.event_log import EventLog
from txnwatch.sinks.kafka import KafkaEventSink, ensure_topic
from txnwatch.sinks.lease import GroupLease
from txnwatch.sinks.ledger import Ledger
from txnwatch.sinks.open_list import OpenList
from txnwatch.sinks.outbox import Outbox
from txnwatch.sinks.redis import RedisEventSink
from txnwatch.state.emitted import CensusIncomplete, Emitted, PartitionAlarm, Unproven, ViewHealed
from txnwatch.state.errors import SinkError
from txnwatch.state.ids import TRANSACTION_STATE_TOPIC
from txnwatch.state.incident import IncidentEvent
from txnwatch.state.ports import EventSink
from txnwatch.streaming.admin import ClusterAdmin
from txnwatch.streaming.checkpoint import local_directory
from txnwatch.streaming.clock import wall_clock_ms
from txnwatch.streaming.cluster import Cluster
from txnwatch.streaming.control_file import wishes_of, write_wishes
from txnwatch.streaming.groups import ClusterGroups
from txnwatch.streaming.metadata import TopicInfo
from txnwatch.streaming.options import parse_options
from txnwatch.streaming.preflight import check_cluster
from txnwatch.streaming.progress import Progress, read_progress

if TYPE_CHECKING:  # a second of imports that only `run` needs
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Report = Callable[[str], None]
_ADMIN_TIMEOUT_S = 2.0
_WISHES_FILE = "txnwatch-wishes.json"
_SPARK_LOG = "spark.log"


@dataclass
class Watch:
    """One running txnwatch: what `txnwatch run` starts, watches and stops.

    Attributes:
        cluster_id, topics: known after `check`.
        report: gets one line for everything an operator should know that is no event.
        on_event: gets every event.
        is_ready: whether the coordinator's log has been read to its end once: before, nothing is proven.
        counts: what was told of partitions and views, and confirmations by answer.
    """

    settings: RunSettings
    report: Report
    on_event: Callable[[IncidentEvent], None]
    cluster_id: str = ""
    topics: Sequence[TopicInfo] = ()
    batches: int = 0
    is_ready: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    _ledger: Ledger | None = field(default=None, init=False)
    _log: EventLog | None = field(default=None, init=False)
    _abort: AutoAbort | None = field(default=None, init=False)
    _open_list: OpenList | None = field(default=None, init=False)
    _query: StreamingQuery | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        directory = local_directory(self.settings.checkpoint)
        self.checkpoint = str(directory.absolute()) if directory is not None else self.settings.checkpoint
        self._scratch = Path(self.checkpoint) if directory is not None else Path(tempfile.mkdtemp(prefix="txnwatch-"))
        properties = client_properties(self.settings.command_config)
        self._properties = broker_properties(properties)
        self._events = events_topic(
            self.settings.events_topic, self.settings.events_format, self.settings.schema_registry_url, properties
        )
        self.options = parse_options(self._source_options())
        self._undescribed = Lasting("not described by their leaders", self.report)
        self.metrics = Metrics(wall_clock_ms)
        self.metrics.progress = self._progress
        self._unproven = Lasting("not listed, or not read to their ends", self.report)

    @property
    def spark_log(self) -> Path:
        """Where everything that Spark prints goes."""
        return self._scratch / _SPARK_LOG

    def _source_options(self) -> dict[str, str]:
        return {
            **{f"kafka.{name}": value for name, value in self._properties.items()},
            "kafka.bootstrap.servers": self.settings.bootstrap_server,
            "subscribePattern": self.settings.topics,
            "censusPattern": self.settings.census_topics,
            "censusIntervalMs": str(self.settings.census_interval_ms),
            "healIntervalMs": str(self.settings.heal_interval_ms),
            **({"foreignPattern": self.settings.foreign_topics} if self.settings.foreign_topics is not None else {}),
            "startingOffsets": self.settings.starting_offsets,
            "maxOffsetsPerTrigger": str(self.settings.max_offsets_per_trigger),
            "controlFile": str(self._scratch / _WISHES_FILE),
        }

    def check(self) -> None:
        """Reaches the cluster and checks rights and checkpoint, before anything slow starts.

        Raises:
            TxnwatchError: something is in the way; the message says what.
        """
        cluster = Cluster(self.options.bootstrap, self.options.security)
        with contextlib.closing(cluster):
            self.cluster_id, self.topics = check_cluster(cluster, self.options, self.checkpoint)
        self.metrics.cluster_id = self.cluster_id

    @contextlib.contextmanager
    def served_metrics(self) -> Iterator[None]:
        """Serves metrics while the block runs, if there is a port for them.

        Raises:
            ConfigError: the port is taken.
        """
        port = self.settings.metrics_port
        if port is None:
            yield
            return
        server = MetricsServer(self.metrics.registry, self.settings.metrics_host, port, lambda: self.metrics.is_judging)
        self.report(f"metrics at {server.url}/metrics")
        try:
            yield
        finally:
            server.close()

    def _progress(self) -> Progress | None:
        query = self._query
        try:
            return read_progress(query.lastProgress) if query is not None else None
        except Exception:  # noqa: BLE001 - Spark is going away; what it could tell is absent
            return None

    def open_ledger(self) -> Ledger:
        """The ledger with its sinks, knowing what was published before; one that is open is closed.

        Raises:
            BrokerError: the events topic can be neither created nor read.
        """
        self.close()
        config = librdkafka_config(self.options)
        warning = ensure_topic(config, self.settings.events_topic)
        if warning is not None:
            self.report(f"warning: {warning}")
        sinks: list[EventSink] = [KafkaEventSink(config, self._events.name, self._events.encoding)]
        if self.settings.redis_url is not None:
            redis = RedisEventSink(self.settings.redis_url, self.cluster_id)
            sinks.append(redis)
            self._open_list = OpenList(redis.show_open)
        cluster = Cluster(self.options.bootstrap, self.options.security, timeout_s=_ADMIN_TIMEOUT_S)
        log = self._log = EventLog(config, self._events.name, self._events.decode)
        ledger = Ledger(
            origin=self._origin(),
            admin=ClusterAdmin(cluster),
            groups=ClusterGroups(cluster),
            outboxes=[Outbox(sink, lambda text: self.report(f"warning: {text}")) for sink in sinks],
            now_ms=wall_clock_ms,
            heard=lambda: self._heard(log.news()),
            on_event=self._on_event,
            report=lambda text: self.report(f"warning: {text}"),
        )
        ledger.remember(self._heard(log.history()))
        for outbox in ledger.outboxes[1:]:
            outbox.has_lost_everything()  # it is filled now in any case
        ledger.resend_to(ledger.outboxes[1:])
        self._ledger = ledger
        self._abort = self._auto_abort(ledger, config)
        self.metrics.query_starts(ledger)
        return ledger

    def _origin(self) -> Origin:
        config = self.settings.command_config
        path = str(config.absolute()) if config is not None else None
        return Origin(self.cluster_id, self.settings.bootstrap_server, path, told_at(self.settings))

    def _auto_abort(self, ledger: Ledger, config: dict[str, str]) -> AutoAbort:
        settings, is_off = self.settings, self.settings.auto_abort == OFF
        return AutoAbort(
            mode=settings.auto_abort,
            policy=settings.abort_policy,
            cooldown_ms=settings.abort_breaker_cooldown_ms,
            ledger=ledger,
            lease=None if is_off else GroupLease(config, settings.events_topic, self.cluster_id),
            instance=f"{socket.gethostname()}:{self.checkpoint}",
            now_ms=wall_clock_ms,
            report=self.report,
        )

    def _heard(self, found: Iterable[IncidentEvent | SinkError]) -> Iterator[IncidentEvent]:
        for one in found:
            if isinstance(one, SinkError):
                self.report(f"warning: passing over a record of the events topic: {one}")
            else:
                yield one

    def start_spark(self) -> SparkSession:
        """The Spark session; what the JVM and its workers print goes to the log file."""
        from txnwatch.streaming.job import spark_session  # noqa: PLC0415

        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        with output_to(self.spark_log):
            return spark_session(
                self.checkpoint,
                master=self.settings.master or None,
                state_partitions=self.settings.state_partitions,
            )

    def start_query(self, session: SparkSession) -> StreamingQuery:
        """Starts the query; every micro-batch goes to `on_batch`."""
        from txnwatch.streaming.job import JobSettings, start  # noqa: PLC0415

        self._query = start(
            session,
            JobSettings(
                source_options=self._source_options(),
                checkpoint=self.checkpoint,
                trigger_ms=self.settings.trigger_ms,
                policy=self.settings.policy,
            ),
            self.on_batch,
        )
        return self._query

    def _on_event(self, event: IncidentEvent) -> None:
        self.metrics.on_event(event)
        self.on_event(event)

    def on_batch(self, batch_id: int, emitted: list[Emitted]) -> None:
        """One micro-batch in the driver."""
        assert self._ledger is not None
        for said in emitted:
            self._tell(said)
        assert self._abort is not None
        self._abort.recover()
        self._ledger.on_batch(emitted)
        self._abort.on_batch()
        if self._open_list is not None:
            self._open_list.on_batch(emitted, wall_clock_ms())
        write_wishes(self._scratch / _WISHES_FILE, wishes_of(emitted, self._ledger.doubted))
        self.metrics.on_batch(batch_id, emitted, self._ledger, is_ready=self.is_ready)
        self.batches += 1

    def _tell(self, said: Emitted) -> None:
        """What an operator should know that is no event."""
        match said:
            case PartitionAlarm(notice):
                self.counts[f"partitions {notice.kind}"] += 1
                where = f"{notice.partition} [{notice.from_offset}, {notice.to_offset})"
                self.report(f"warning: {notice.kind} {where}: {notice.detail}")
            case ViewHealed():
                self.counts[f"view mismatches ({said.mismatch})"] += 1
                self.report(
                    f"warning: producer id {said.producer_id} on {said.partition} from {said.start_offset}: "
                    f"{said.mismatch} at its leader, otherwise in the log as we read it; the leader's word counts"
                )
            case CensusIncomplete(failed):
                self._undescribed.told(set(failed))
            case Unproven(partitions):
                self._unproven.told(set(partitions))
                if not any(partition.topic == TRANSACTION_STATE_TOPIC for partition in partitions):
                    self.is_ready = True

    def close(self) -> None:
        """A last try to deliver what waits."""
        if self._abort is not None:
            self.counts.update(self._abort.counts)
            self._abort.close()
            self._abort = None
        if self._ledger is not None:
            self.counts.update(self._ledger.counts)
            for outbox in self._ledger.outboxes:
                outbox.close(wall_clock_ms())
            self._ledger = None
        if self._log is not None:
            self._log.close()
            self._log = None
