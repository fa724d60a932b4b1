"""Reads the events topic: its history for the incident store, then new records.

Law: an invalid record is returned as its error, with its position. A topic that begins anew has lost every event. A
record that cannot be decoded now (the registry does not answer) is never skipped: it is kept and decoded later, and no
later record is returned before it. Anyone who may write the topic can write anything. So a record is an event only if
its key is its incident's id, its values are valid for an event and, where there are keys, its signature is valid. The
reader uses read_uncommitted: our events are in no transaction, and an open transaction on the topic would hide all
later events from read_committed.
"""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from txnwatch.sinks.delivery.encoding import Keys, from_bytes, topic_place, without_signature
from txnwatch.sinks.delivery.events_topic import NO_CLIENT_LOG, TIMEOUT_S
from txnwatch.state.incidents import heartbeat
from txnwatch.state.incidents.heartbeat import TopicRecord
from txnwatch.state.model.errors import BadEventError, BrokerError, RegistryUnavailableError, SkipReason
from txnwatch.state.model.incident import IncidentEvent, Overwritten, is_incident_id
from txnwatch.state.model.pauses import Attempts
from txnwatch.state.model.values import DurationMs, TimestampMs
from txnwatch.state.text import Said, protocol_doubt

_END_TIMEOUT_S = 3.0
# librdkafka looks up the coordinator of a group that it does not use.
_NO_PROBLEM = frozenset({KafkaError._PARTITION_EOF, KafkaError.GROUP_AUTHORIZATION_FAILED})  # noqa: SLF001 - their public names
_AT_A_TIME, _MOST_PARTS = 500, 20
_CLOSED = "Broken pipe", "Connection reset", "Disconnected"
_NO_READ = "the right READ on the topic is missing (docs/rights.md)"
Decoder = Callable[[bytes], IncidentEvent]


class EventLog:
    """Reads the topic from its beginning. It joins no group and commits nothing."""

    _is_refused = False
    _connection_error = _place = ""
    _ends: Mapping[int, int] = {}

    def __init__(
        self,
        client_config: Mapping[str, Any],
        topic: str,
        decode: Decoder = from_bytes,
        keys: Keys | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Connects; `report` gets a line when new records are refused, and one when they can be read again.

        Raises:
            BrokerError: the topic does not exist, or no broker answers.
        """
        self._topic, self._decode, self._keys = topic, decode, keys
        self._timeout_s, self._report = timeout_s, report
        self._said = Said[str]()
        self._undecoded: deque[Message | None] = deque()  # None is where the topic begins anew
        self._next: dict[int, int] = {}
        self._consumer = Consumer(
            {
                **client_config,
                **NO_CLIENT_LOG,
                "error_cb": self._on_error,
                "group.id": "txnwatch-events-reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_uncommitted",
                "enable.partition.eof": True,
            }
        )
        try:
            self._numbers = self._partitions()
            self._left = set(self._numbers)
            self._consumer.assign(self._beginnings(self._numbers))
        except BaseException as exc:
            self._consumer.poll(0)  # it calls `error_cb`, which has the reason
            self._consumer.close()
            if isinstance(exc, KafkaException):
                raise self._unreachable(exc, client_config.get("security.protocol", "plaintext")) from exc
            raise

    def _unreachable(self, exc: KafkaException, protocol: str) -> BrokerError:
        """The error with the reason.

        If a listener closes a connection of another protocol, librdkafka gives none, or what it did at that moment.
        """
        why = self._connection_error or exc.args[0].str()
        is_closed = not self._connection_error or any(sign in why for sign in _CLOSED)
        doubt = protocol_doubt(protocol.upper()) if is_closed else ""
        return BrokerError(f"events topic {self._topic!r}: {why}{doubt}")

    def close(self) -> None:
        """Closes the connections."""
        self._consumer.close()

    def history(self) -> Iterator[TopicRecord]:
        """All records up to the current end, in order.

        Raises:
            BrokerError: the topic cannot be read to its end, or the registry does not answer.
        """
        while self._left:
            message = self._consumer.poll(self._timeout_s)
            if message is None:
                raise BrokerError(f"events topic {self._topic!r}: {self._connection_error or 'no answer'}")
            self._take(message)
            yield from self._decoded()

    def follow(self) -> Iterator[TopicRecord]:
        """Records after `history`. It waits for them, forever.

        Raises:
            BrokerError: as `history`.
        """
        while True:
            message = self._consumer.poll(self._timeout_s)
            if message is not None:
                self._take(message)
                yield from self._decoded()

    def new_records(self) -> Iterator[TopicRecord]:
        """New records, without waiting. If brokers or the registry do not answer, the rest comes with a later call."""
        try:
            for _ in range(_MOST_PARTS):
                for message in (messages := self._consumer.consume(_AT_A_TIME, timeout=0)):
                    self._note_place(message)
                    self._note_right(message.error())
                yield from self._decoded()
                if len(messages) < _AT_A_TIME:
                    return
        except (BrokerError, KafkaException):
            return

    def has_read(self, *, is_first: bool = True) -> bool:
        """Whether all has been returned that was on the topic at the first of several calls.

        So it gets true, however fast others write; at once if it may not be read. What does not answer is left out.
        The first call finds partitions that were added since the start, and reads them from their beginning.
        """
        if self._is_refused:
            return True
        if is_first or not self._ends:
            self._add_partitions()
            self._ends = dict(self._listed_ends())
        if self._undecoded or not self._ends:
            return False
        return all(self._next.get(number, 0) >= end for number, end in self._ends.items())

    def _add_partitions(self) -> None:
        with contextlib.suppress(BrokerError, KafkaException):
            added = [number for number in self._partitions() if number not in self._numbers]
            self._consumer.incremental_assign(self._beginnings(added))
            self._numbers += added

    def _beginnings(self, numbers: Iterable[int]) -> list[TopicPartition]:
        return [TopicPartition(self._topic, number, OFFSET_BEGINNING) for number in numbers]

    def _listed_ends(self) -> Iterator[tuple[int, int]]:
        """The end of each partition that answers; 0 for one without records."""
        for number in self._numbers:
            place = TopicPartition(self._topic, number)
            try:
                low, end = self._consumer.get_watermark_offsets(place, timeout=_END_TIMEOUT_S)
            except KafkaException:
                continue
            yield number, end if end > low else 0

    def _on_error(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - its public name; it follows from another
            self._connection_error = error.str()

    def _note_place(self, message: Message) -> None:
        """Keeps a record, and what follows it. The end of a partition follows markers, which are no messages."""
        number, offset, error = message.partition() or 0, message.offset() or 0, message.error()
        is_end = error is not None and error.code() == KafkaError._PARTITION_EOF  # noqa: SLF001 - its public name
        if (error is None or is_end) and offset < self._next.get(number, 0):
            self._undecoded.append(None)
        if error is None:
            self._undecoded.append(message)
            self._next[number] = offset + 1
        elif is_end:
            self._left.discard(number)
            self._next[number] = offset

    def _note_right(self, error: KafkaError | None) -> None:
        """Reports that the right READ was taken away, and that it is back, once each."""
        is_refused = self._is_refused = error is not None and _is_refused(error)
        if is_refused and self._said.is_new("refused"):
            result = "events of other instances are not seen until this user has it again (docs/rights.md)"
            self._report(f"events topic {self._topic!r}: the right READ is missing: {result}")
        elif not is_refused and self._said.is_over("refused"):
            self._report(f"events topic {self._topic!r}: it can be read again")

    def _partitions(self) -> list[int]:
        metadata = self._consumer.list_topics(self._topic, timeout=self._timeout_s)
        self._place = topic_place(metadata.cluster_id or "", self._topic)
        topic = metadata.topics[self._topic]
        if topic.error is not None:
            hint = _NO_READ if _is_refused(topic.error) else "has `txnwatch run` been started on this cluster?"
            raise BrokerError(f"events topic {self._topic!r}: {topic.error.str()}: {hint}")
        return list(topic.partitions)

    def _take(self, message: Message) -> None:
        self._note_place(message)
        error = message.error()
        if error is not None and error.code() not in _NO_PROBLEM and (error.fatal() or not error.retriable()):
            hint = f": {_NO_READ}" if _is_refused(error) else ""
            raise BrokerError(f"events topic {self._topic!r}: {error.str()}{hint}")

    def _decoded(self) -> Iterator[TopicRecord]:
        while self._undecoded:
            message = self._undecoded[0]
            record: TopicRecord | None
            if message is None:
                self._undecoded.popleft()
                yield Overwritten(None)
                continue
            try:
                record = self._found(message)
            except RegistryUnavailableError as exc:
                raise BrokerError(str(exc)) from exc
            except BadEventError as exc:
                where = f"{message.topic()}-{message.partition()}@{message.offset()}"
                record = BadEventError(exc.why, f"{where}: {exc}", _key_of(message) if _is_incidents(message) else None)
            self._undecoded.popleft()
            if record is not None:
                yield record

    def _found(self, message: Message) -> TopicRecord | None:
        """The decoded record; None for a tombstone whose key is no incident id.

        Raises:
            BadEventError: the record is not valid.
            RegistryUnavailableError: the record cannot be decoded now.
        """
        key, value = _key_of(message), message.value()
        if value is None:  # a tombstone ends no incident, so it needs no signature
            return Overwritten(key) if _is_incidents(message) else None
        value, signature = without_signature(value)
        self._check_signature(key, value, signature)
        if key.startswith(heartbeat.KEY_PREFIX):
            return heartbeat.from_bytes(value, key)
        event = self._decode(value)
        if event.incident_id != key:
            raise BadEventError(SkipReason.WRONG_KEY, "expected the incident's id as the record's key")
        return event

    def _check_signature(self, key: str, value: bytes, signature: bytes | None) -> None:
        if self._keys is None:
            return
        problem = self._keys.problem(self._place, key, value, signature)
        if problem is not None:
            message = "no signature" if problem is SkipReason.UNSIGNED else "a signature of another key"
            raise BadEventError(problem, f"expected a signature of --events-key-file, found {message}")


def _is_refused(error: KafkaError) -> bool:
    return error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def _key_of(message: Message) -> str:
    key = message.key()
    return key.decode(errors="backslashreplace") if isinstance(key, bytes) else str(key or "")


def _is_incidents(message: Message) -> bool:
    return is_incident_id(_key_of(message))


def read_events(
    client_config: Mapping[str, Any],
    topic: str,
    of_history: Callable[[Iterable[TopicRecord]], Iterable[TopicRecord]] = iter,
    *,
    follow: bool = False,
    decode: Decoder = from_bytes,
    keys: Keys | None = None,
) -> Iterator[TopicRecord]:
    """All records of the topic in order, then new ones with `follow`; an invalid record is returned as its error.

    `of_history` selects from the records that are there when the reading begins.

    Raises:
        BrokerError: the topic does not exist, or cannot be read to its end.
    """
    log = EventLog(client_config, topic, decode, keys)
    try:
        yield from of_history(log.history())
        if follow:
            yield from log.follow()
    finally:
        log.close()


# Counts the invalid records of the events topic, and reports their number from time to time.

_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = DurationMs(60_000), DurationMs(3_600_000)


@dataclass(slots=True)
class SkippedRecords:
    """Counts skipped records; `report_when_due` reports new ones, with pauses that grow while more of them come.

    Attributes:
        counts: all skipped records, by the reason.
        last: the last one of each reason, as a text.
    """

    report: Callable[[str], None]
    now_ms: Callable[[], TimestampMs]
    counts: Counter[SkipReason] = field(default_factory=Counter)
    last: dict[SkipReason, str] = field(default_factory=dict)
    _reported: Counter[SkipReason] = field(default_factory=Counter)
    _reports: Attempts = field(default_factory=lambda: Attempts(_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS))

    def take(self, error: BadEventError) -> None:
        """Counts one more."""
        self.counts[error.why] += 1
        self.last[error.why] = str(error)

    def report_when_due(self) -> None:
        """Reports how many came since the last report, if the pause is over."""
        now_ms = self.now_ms()
        if not self._reports.is_due(now_ms):
            return
        if self.counts == self._reported:
            self._reports.end()
            return
        self.report_new()
        self._reports.put_off(now_ms)

    def report_new(self) -> None:
        """Reports how many came since the last report."""
        new = self.counts - self._reported
        for why, count in new.items():
            records = "a record" if count == 1 else f"{count} records"
            self.report(f"skipped {records} of the events topic ({why}), the last: {self.last[why]}")
        self._reported = self.counts.copy()
