"""The events topic: idempotent writes to a compacted topic, keyed by incident. `event_log.py` is its reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic  # type: ignore[attr-defined]

from txnwatch.sinks.delivery.encoding import (
    FORMATS,
    Encoding,
    Keys,
    cloud_event_headers,
    heartbeat_headers,
    topic_place,
    with_signature,
)
from txnwatch.state.incidents.heartbeat import Heartbeat, to_bytes
from txnwatch.state.model.errors import (
    BrokerError,
    ConfigError,
    SinkError,
)
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.text import Said

TIMEOUT_S = 10.0
_BURY_TIMEOUT_S = 2.0
_RENEW_TIMEOUT_S = 1.0
_REPLICAS = 3
# Heartbeats add a record every few seconds: new segments every hour and compaction within 6 h keep the topic small.
_CONFIG = {"cleanup.policy": "compact", "segment.ms": "3600000", "max.compaction.lag.ms": "21600000"}
_DENIED = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})
_FOLLOW_FROM_FATAL = frozenset({KafkaError._FATAL, KafkaError._PURGE_QUEUE})  # noqa: SLF001 - their public names
_NO_WRITE = "the right WRITE on the topic is missing (docs/rights.md)"
NO_CLIENT_LOG = {"log_level": 2}  # failures are returned as errors, not logged to stderr


class KafkaEventsTopic:
    """An EventsTopicWriter over confluent-kafka; `publish` returns when all in-sync replicas have the events."""

    def __init__(
        self,
        client_config: Mapping[str, Any],
        topic: str,
        encoding: Encoding = FORMATS["json"],
        *,
        keys: Keys | None = None,
        timeout_s: float = TIMEOUT_S,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Prepares the producer; `report` gets a line when heartbeats are refused, and when they are taken again."""
        self.topic = topic
        self._keys = keys
        self._place: str | None = None
        self._timeout_s = timeout_s
        self._encoding = encoding
        self._config: dict[str, Any] = {
            **client_config,
            **NO_CLIENT_LOG,
            "client.id": "txnwatch-events",
            "enable.idempotence": True,
            "linger.ms": 0,
            # No timeout: produced again, an event would follow a later one, and compaction would keep the older.
            "message.timeout.ms": 0,
            "error_cb": self._on_error,
        }
        self._report = report
        self._said = Said[str]()
        self._is_fatal = False
        self._producer = Producer(self._config)
        self._under_way: set[str] = set()
        self._acknowledged: set[str] = set()
        self._last_error = "no answer"
        self._is_heartbeat_under_way = False

    @property
    def name(self) -> str:
        """For messages and metrics."""
        return f"topic {self.topic}"

    def publish(self, events: Sequence[IncidentEvent]) -> None:
        """See EventsTopicWriter. An event in flight from an earlier try is awaited, not produced again.

        Raises:
            SinkError: not all were acknowledged in time, or an event cannot be encoded now.
        """
        self._renew()
        for event in events:
            if event.event_id not in self._under_way | self._acknowledged:
                self._produce(event)
        self._served(lambda: self._producer.flush(self._timeout_s))
        missing = [event for event in events if event.event_id not in self._acknowledged]
        if missing:
            raise SinkError(f"{self.name}: {len(missing)} of {len(events)} events not acknowledged: {self._last_error}")
        self._acknowledged.clear()

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._is_fatal = True
            self._take(error)

    def _take(self, error: KafkaError) -> None:
        """Keeps the reason of a failure; after a fatal error, every other failure only follows from it."""
        if error.code() not in _FOLLOW_FROM_FATAL:
            self._last_error = f"{_NO_WRITE}: {error.str()}" if error.code() in _DENIED else error.str()

    def _refusal(self, refused: BufferError | KafkaException) -> SinkError:
        """The error for a record that the client does not take."""
        if isinstance(refused, KafkaException):
            self._take(refused.args[0])
        else:
            self._last_error = str(refused)
        return SinkError(f"{self.name}: {self._last_error}")

    def _renew(self) -> None:
        """Replaces a producer that has had a fatal error: it takes no record any more.

        Raises:
            SinkError: a record is still in flight. Produced again, it could follow a later one.
        """
        self._served(lambda: self._producer.poll(0))
        if not self._is_fatal:
            return
        self._producer.purge(in_queue=True, in_flight=False, blocking=True)
        if self._served(lambda: self._producer.flush(_RENEW_TIMEOUT_S)) != 0:
            raise SinkError(f"{self.name}: {self._last_error}; waiting for records in flight")
        self._producer, self._is_fatal = Producer(self._config), False
        self._under_way.clear()  # a fatal error can come in place of the callback of a record
        self._is_heartbeat_under_way = False

    def _served(self, call: Callable[[], int]) -> int | None:
        """The result of a call that runs the callbacks of the client; None if the client has raised a fatal error.

        It can raise that error in place of calling `error_cb`. Another callback of the same call then fails with a
        SystemError, which has the fatal error as its cause.
        """
        try:
            return call()
        except (KafkaException, SystemError) as exc:
            error = exc if isinstance(exc, KafkaException) else exc.__cause__
            if not isinstance(error, KafkaException):
                raise
            self._is_fatal = self._is_fatal or error.args[0].fatal()
            self._take(error.args[0])
            return None

    def _produce(self, event: IncidentEvent) -> None:
        def delivered(error: KafkaError | None, _: Message) -> None:
            self._under_way.discard(event.event_id)
            if error is None:
                self._acknowledged.add(event.event_id)
            else:
                self._take(error)

        value = self._signed(event.incident_id, self._encoding.encode(event))
        headers = cloud_event_headers(event, self._encoding.content_type)
        self._under_way.add(event.event_id)
        try:
            self._producer.produce(
                self.topic,
                key=event.incident_id,
                value=value,
                headers=headers,
                on_delivery=delivered,
            )
        except (BufferError, KafkaException) as exc:
            self._under_way.discard(event.event_id)
            raise self._refusal(exc) from exc

    def _signed(self, key: str, value: bytes) -> bytes:
        """A record's value, signed if there are keys.

        Raises:
            SinkError: no broker answers with the cluster's id.
        """
        if self._keys is None:
            return value
        if self._place is None:
            try:
                cluster_id = self._producer.list_topics(self.topic, timeout=self._timeout_s).cluster_id
            except KafkaException as exc:
                raise SinkError(f"{self.name}: {exc.args[0].str()}") from exc
            self._place = topic_place(cluster_id or "", self.topic)
        return with_signature(value, self._keys.sign(self._place, key, value))

    def bury(self, keys: Sequence[str]) -> None:
        """Writes tombstones for these keys, so that compaction removes their records. Repeating this does no harm.

        Raises:
            SinkError: not all were acknowledged in time.
        """
        self._renew()
        left = set(keys)

        def delivered(error: KafkaError | None, message: Message) -> None:
            key = message.key()
            if error is None and key is not None:
                left.discard(key.decode() if isinstance(key, bytes) else key)

        try:
            for key in keys:
                self._producer.produce(self.topic, key=key, on_delivery=delivered)
        except (BufferError, KafkaException) as exc:
            raise self._refusal(exc) from exc
        self._served(lambda: self._producer.flush(_BURY_TIMEOUT_S))
        if left:
            raise SinkError(f"{self.name}: {len(left)} of {len(keys)} tombstones not acknowledged")

    def beat(self, heartbeat: Heartbeat) -> None:
        """Sends a heartbeat without waiting; none while the previous one is in flight.

        Raises:
            SinkError: it cannot be sent now.
        """
        self._renew()
        if self._is_heartbeat_under_way:
            return

        def delivered(error: KafkaError | None, _: Message) -> None:
            self._is_heartbeat_under_way = False
            if error is not None:
                self._take(error)
            self._report_heartbeat("" if error is None else self._last_error)

        value = self._signed(heartbeat.key, to_bytes(heartbeat))
        headers = heartbeat_headers(heartbeat)
        try:
            self._producer.produce(self.topic, key=heartbeat.key, value=value, headers=headers, on_delivery=delivered)
        except (BufferError, KafkaException) as exc:
            refusal = self._refusal(exc)
            self._report_heartbeat(self._last_error)
            raise refusal from exc
        self._is_heartbeat_under_way = True

    def _report_heartbeat(self, problem: str) -> None:
        """Reports a change: `status` shows a watcher without heartbeats as not active."""
        if problem and self._said.is_new("heartbeats"):
            self._report(f"{self.name}: heartbeats are refused: {problem}; the next one is tried")
        elif not problem and self._said.is_over("heartbeats"):
            self._report(f"{self.name}: heartbeats are taken again")

    def close(self) -> None:
        """Sends what librdkafka still has queued."""
        self._served(lambda: self._producer.flush(self._timeout_s))


def ensure_topic(client_config: Mapping[str, Any], topic: str, *, timeout_s: float = TIMEOUT_S) -> str | None:
    """Creates the events topic, compacted, if it does not exist.

    Returns a warning if it exists and is not compacted, because the ledger then loses incidents that are older than the
    retention; or if it has several partitions, because the assignor gives the lowest one to a member that joins.

    Raises:
        BrokerError: the cluster does not answer, or refuses to create the topic.
        ConfigError: the name is not valid for a topic.
    """
    admin = AdminClient({**client_config, **NO_CLIENT_LOG, "client.id": "txnwatch-events"})
    try:
        metadata = admin.list_topics(timeout=timeout_s)
        if topic in metadata.topics:
            count = len(metadata.topics[topic].partitions)
            return _compaction_warning(admin, topic, timeout_s) or _partitions_warning(topic, count)
        wanted = NewTopic(topic, 1, min(_REPLICAS, len(metadata.brokers)), config=_CONFIG)
        admin.create_topics([wanted], operation_timeout=timeout_s)[topic].result(timeout_s)
    except KafkaException as exc:
        error = exc.args[0]
        if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return None
        if error.code() == KafkaError.TOPIC_EXCEPTION:  # an invalid name: a retry does not help
            raise ConfigError(f"events topic {topic!r}: {error.str()}") from exc
        raise BrokerError(f"events topic {topic!r}: expected to create it, found: {error.str()}") from exc
    except TimeoutError as exc:
        raise BrokerError(f"events topic {topic!r}: no answer of the brokers within {timeout_s:.0f} s") from exc
    return None


def _partitions_warning(topic: str, count: int) -> str | None:
    if count <= 1:
        return None
    return (
        f"events topic {topic!r} has {count} partitions: expected 1; of two watchers, the one that is started later "
        "publishes the events, and not the one that has run longest"
    )


def _compaction_warning(admin: AdminClient, topic: str, timeout_s: float) -> str | None:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    try:
        settings = admin.describe_configs([resource])[resource].result(timeout_s)
    except KafkaException:
        return None  # no right to read the setting: no warning
    policy = str(settings["cleanup.policy"].value)
    if "compact" in policy:
        return None
    return (
        f"events topic {topic!r} has cleanup.policy={policy}: expected compact; incidents older than its retention "
        "are lost at a restart"
    )
