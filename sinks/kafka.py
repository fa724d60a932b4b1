"""The events topic: produced idempotently, keyed by incident, compacted, and so the ledger's memory as well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic  # type: ignore[attr-defined]

from txnwatch.sinks.encoding import FORMATS, cloud_event_headers, from_bytes
from txnwatch.state.errors import BrokerError, SinkError
from txnwatch.state.incident import IncidentEvent

_TIMEOUT_S = 10.0
_REPLICAS = 3
_QUIET = {"log_level": 2}  # what goes wrong comes back as an error, not as a line on stderr


class KafkaEventSink:
    """An EventSink over confluent-kafka; `deliver` returns when every replica in sync has the events."""

    def __init__(
        self, client_config: Mapping[str, str], topic: str, encoding: str = "json", *, timeout_s: float = _TIMEOUT_S
    ) -> None:
        self.topic = topic
        self._timeout_s = timeout_s
        self._encode, self._content_type = FORMATS[encoding]
        self._producer = Producer(
            {
                **client_config,
                **_QUIET,
                "client.id": "txnwatch-events",
                "enable.idempotence": True,
                "linger.ms": 0,
                # Never given up: produced again it would stand behind a later event, and compaction keep the older.
                "message.timeout.ms": 0,
            }
        )
        self._under_way: set[str] = set()
        self._acknowledged: set[str] = set()
        self._last_error = "no answer"

    @property
    def name(self) -> str:
        """For messages and metrics."""
        return f"topic {self.topic}"

    def deliver(self, events: Sequence[IncidentEvent]) -> None:
        """See EventSink. An event still under way from an earlier try is waited for, not produced again.

        Raises:
            SinkError: not all were acknowledged in time.
        """
        for event in events:
            if event.event_id not in self._under_way | self._acknowledged:
                self._produce(event)
        self._producer.flush(self._timeout_s)
        missing = [event for event in events if event.event_id not in self._acknowledged]
        if missing:
            raise SinkError(f"{self.name}: {len(missing)} of {len(events)} events not acknowledged: {self._last_error}")
        self._acknowledged.clear()

    def _produce(self, event: IncidentEvent) -> None:
        def delivered(error: KafkaError | None, _: Message) -> None:
            self._under_way.discard(event.event_id)
            if error is None:
                self._acknowledged.add(event.event_id)
            else:
                self._last_error = error.str()

        self._under_way.add(event.event_id)
        try:
            self._producer.produce(
                self.topic,
                key=event.incident_id,
                value=self._encode(event),
                headers=cloud_event_headers(event, self._content_type),
                on_delivery=delivered,
            )
        except (BufferError, KafkaException) as exc:
            self._under_way.discard(event.event_id)
            raise SinkError(f"{self.name}: {exc}") from exc

    def close(self) -> None:
        """Lets librdkafka send what it still has."""
        self._producer.flush(self._timeout_s)


def ensure_topic(client_config: Mapping[str, str], topic: str) -> str | None:
    """Creates the events topic, compacted, if it is not there.

    Returns a warning if it is there and not compacted: then it cannot be the ledger's memory for ever.

    Raises:
        BrokerError: the cluster does not answer, or does not let us create the topic.
    """
    admin = AdminClient({**client_config, **_QUIET, "client.id": "txnwatch-events"})
    try:
        known = admin.list_topics(timeout=_TIMEOUT_S)
        if topic in known.topics:
            return _compaction_warning(admin, topic)
        wanted = NewTopic(topic, 1, min(_REPLICAS, len(known.brokers)), config={"cleanup.policy": "compact"})
        admin.create_topics([wanted], operation_timeout=_TIMEOUT_S)[topic].result(_TIMEOUT_S)
    except KafkaException as exc:
        error = exc.args[0]
        if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return None
        raise BrokerError(f"events topic {topic!r}: expected to create it, found: {error.str()}") from exc
    return None


def _compaction_warning(admin: AdminClient, topic: str) -> str | None:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    try:
        found = admin.describe_configs([resource])[resource].result(_TIMEOUT_S)
    except KafkaException:
        return None  # without the right to ask there is nothing to warn of
    policy = str(found["cleanup.policy"].value)
    if "compact" in policy:
        return None
    return (
        f"events topic {topic!r} has cleanup.policy={policy}: expected compact; incidents older than its retention "
        "will be forgotten on a restart"
    )


def read_events(
    client_config: Mapping[str, str], topic: str, *, follow: bool = False
) -> Iterator[IncidentEvent | SinkError]:
    """Everything the topic holds, in order, and with `follow` what comes; a bad record comes as the error it raised.

    Raises:
        BrokerError: the topic is not there, or cannot be read to its end.
    """
    settings = {
        **client_config,
        **_QUIET,
        "group.id": "txnwatch-events-reader",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    with closing(Consumer(settings)) as consumer:
        try:
            partitions = _partitions(consumer, topic)
            consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
            left = set(partitions)
            while left or follow:
                message = consumer.poll(_TIMEOUT_S)
                if message is None and left:
                    raise BrokerError(f"events topic {topic!r}: no answer while reading it")
                if message is not None:
                    yield from _take(message, left)
        except KafkaException as exc:
            raise BrokerError(f"events topic {topic!r}: {exc.args[0].str()}") from exc


def _partitions(consumer: Consumer, topic: str) -> list[int]:
    found = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
    if found.error is not None:
        raise BrokerError(f"events topic {topic!r}: {found.error.str()}: has `txnwatch run` been started here?")
    return list(found.partitions)


def _take(message: Message, left: set[int]) -> Iterator[IncidentEvent | SinkError]:
    error = message.error()
    if error is None:
        if message.value() is not None:
            yield _event(message)
    elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
        left.discard(message.partition() or 0)
    elif error.fatal() or not error.retriable():
        raise BrokerError(f"events topic {message.topic()!r}: {error.str()}")


def _event(message: Message) -> IncidentEvent | SinkError:
    try:
        return from_bytes(message.value() or b"")
    except SinkError as exc:
        return SinkError(f"{message.topic()}-{message.partition()}@{message.offset()}: {exc}")
