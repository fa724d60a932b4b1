"""The events topic, read back: to its end for the ledger's memory, and then what others add to it.

Law: a record that is no event comes as the error it raised, with its place; a record that cannot be decoded now (the
registry is away) is never passed over: it is kept and decoded later, and nothing behind it is handed out before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from txnwatch.sinks.encoding import from_bytes
from txnwatch.sinks.kafka import QUIET
from txnwatch.state.errors import BrokerError, RegistryAwayError, SinkError
from txnwatch.state.incident import IncidentEvent

_TIMEOUT_S = 10.0
_AT_A_TIME = 500
Decoder = Callable[[bytes], IncidentEvent]
Found = IncidentEvent | SinkError


class EventLog:
    """One reader of the topic, from its beginning; joins no group and commits nothing."""

    def __init__(self, client_config: Mapping[str, str], topic: str, decode: Decoder = from_bytes) -> None:
        """Connects.

        Raises:
            BrokerError: the topic is not there, or no broker answers.
        """
        self._topic = topic
        self._decode = decode
        self._undecoded: deque[Message] = deque()
        self._consumer = Consumer(
            {
                **client_config,
                **QUIET,
                "group.id": "txnwatch-events-reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        try:
            self._left = set(self._partitions())
            self._consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in self._left])
        except BaseException as exc:
            self._consumer.close()
            if isinstance(exc, KafkaException):
                raise BrokerError(f"events topic {topic!r}: {exc.args[0].str()}") from exc
            raise

    def close(self) -> None:
        """Lets go of the connections."""
        self._consumer.close()

    def history(self) -> Iterator[Found]:
        """Everything up to the end as it is now, in order.

        Raises:
            BrokerError: the topic cannot be read to its end, or the registry does not answer.
        """
        while self._left:
            message = self._consumer.poll(_TIMEOUT_S)
            if message is None:
                raise BrokerError(f"events topic {self._topic!r}: no answer while reading it")
            self._take(message)
            yield from self._decoded()

    def follow(self) -> Iterator[Found]:
        """What comes after `history`; waits for it, for ever.

        Raises:
            BrokerError: as `history`.
        """
        while True:
            message = self._consumer.poll(_TIMEOUT_S)
            if message is not None:
                self._take(message)
                yield from self._decoded()

    def news(self) -> Iterator[Found]:
        """What has come since, without waiting; brokers or a registry that are away make it shorter, not wrong."""
        try:
            for message in self._consumer.consume(_AT_A_TIME, timeout=0):
                if message.error() is None:
                    self._undecoded.append(message)
            yield from self._decoded()
        except (BrokerError, KafkaException):
            return

    def _partitions(self) -> list[int]:
        found = self._consumer.list_topics(self._topic, timeout=_TIMEOUT_S).topics[self._topic]
        if found.error is not None:
            told = f"{found.error.str()}: has `txnwatch run` been started here?"
            raise BrokerError(f"events topic {self._topic!r}: {told}")
        return list(found.partitions)

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is None:
            self._undecoded.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
            self._left.discard(message.partition() or 0)
        elif error.fatal() or not error.retriable():
            raise BrokerError(f"events topic {self._topic!r}: {error.str()}")

    def _decoded(self) -> Iterator[Found]:
        while self._undecoded:
            message = self._undecoded[0]
            value = message.value()
            try:
                found: Found | None = self._decode(value) if value is not None else None
            except RegistryAwayError as exc:
                raise BrokerError(str(exc)) from exc
            except SinkError as exc:
                found = SinkError(f"{message.topic()}-{message.partition()}@{message.offset()}: {exc}")
            self._undecoded.popleft()
            if found is not None:
                yield found


def read_events(
    client_config: Mapping[str, str], topic: str, *, follow: bool = False, decode: Decoder = from_bytes
) -> Iterator[Found]:
    """Everything the topic holds, in order, and with `follow` what comes; a bad record comes as the error it raised.

    Raises:
        BrokerError: the topic is not there, or cannot be read to its end.
    """
    log = EventLog(client_config, topic, decode)
    try:
        yield from log.history()
        if follow:
            yield from log.follow()
    finally:
        log.close()
