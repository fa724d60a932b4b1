"""A client of one Kafka cluster: its connections, its metadata, and where partitions begin and end.

Holds one connection per broker. A broker that does not answer is not asked again for a short pause, which grows with
each failure. So a broker that is down does not slow a round: requests to it fail at once. Within a time budget a broker
may use at most half of what is left, so the others are asked too while one is cut off. A broker that throttles
txnwatch has answered, so it gets no pause: it is asked when it reads again. Answers are per partition, and an error is
an answer too: no partition is dropped, so an incomplete answer never looks complete.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest

from txnwatch.state.model.errors import AuthorizationError, BrokerError
from txnwatch.state.model.pauses import GrowingPause
from txnwatch.state.model.ports import ListedOffset
from txnwatch.state.model.values import (
    TRANSACTION_STATE_TOPIC,
    BrokerId,
    DurationMs,
    LeaderEpoch,
    Problem,
    TimestampMs,
    TopicPartition,
)
from txnwatch.streaming.client.connection import NEVER, Connection, Traffic, problem_of
from txnwatch.streaming.client.metadata import Metadata, TopicInfo, metadata_of, newest
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.client.security import Security
from txnwatch.streaming.wire.primitives import NONE, encoded, present

# One request to each of many brokers, and one answer or error for each broker or item that was asked for.
#
# Law: the result is never shorter than the request, and an error is a value. So an incomplete answer never looks
# complete: a broker that cannot be reached, a broker that does not answer, and an item that an answer lacks all have a
# `BrokerError` in the result.

RequestOf = Callable[[Connection], Any]
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Brokers(Protocol):
    """How brokers are asked; `Cluster` is one."""

    timeout_s: float

    def ask(self, requests: Mapping[BrokerId, RequestOf], timeout_s: float) -> dict[BrokerId, Any]:
        """Sends one request to each broker; the answer or the BrokerError of each."""


def fan_out(
    requests: Mapping[BrokerId, RequestOf],
    reach: Callable[[BrokerId], Connection],
    send: Callable[[Connection, Any], None],
    receive: Callable[[BrokerId, Connection], Any],
) -> dict[BrokerId, Any]:
    """Sends all requests, then receives all answers, so the brokers work in parallel.

    A broker that throttles txnwatch gets its request last, when it reads again. Returns the answer or the BrokerError
    of each broker id in `requests`.
    """
    answers: dict[BrokerId, Any] = {}
    reached: dict[BrokerId, Connection] = {}
    for node in requests:
        try:
            reached[node] = reach(node)
        except BrokerError as exc:
            answers[node] = exc
    waiting: dict[BrokerId, Connection] = {}
    for node, connection in sorted(reached.items(), key=lambda node_connection: node_connection[1].throttled_s):
        try:
            send(connection, requests[node](connection))
            waiting[node] = connection
        except BrokerError as exc:
            answers[node] = exc
    for node, connection in waiting.items():
        try:
            answers[node] = receive(node, connection)
        except BrokerError as exc:
            answers[node] = exc
    return answers


def ask_for_each(
    brokers: Brokers,
    items: Mapping[BrokerId, Sequence[K]],
    request: Callable[[Sequence[K]], RequestOf],
    decode: Callable[[Any, BrokerId], Mapping[K, V]],
    timeout_s: float | None = None,
) -> dict[K, V | BrokerError]:
    """Asks each broker for its items; the decoded answer or the error of each item, and of no other one.

    `decode` gets a broker's response and the broker's id.
    """
    answer_of: dict[K, V | BrokerError] = {}
    requests = {node: request(wanted) for node, wanted in items.items()}
    answers = brokers.ask(requests, brokers.timeout_s if timeout_s is None else timeout_s)
    for node, wanted in items.items():
        answer = answers[node]
        if isinstance(answer, BrokerError):
            answer_of.update(dict.fromkeys(wanted, answer))
        else:
            decoded = decode(answer, node)
            answer_of.update({item: decoded.get(item, BrokerError("missing from the answer")) for item in wanted})
    return answer_of


# ListOffsets: the request for the partitions of one leader, and the answer of each partition.

LATEST, EARLIEST = -1, -2
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
_NO_LEADER = Problem("NO_LEADER")
_NO_OFFSET = Problem("the leader returned no offset")


def list_offsets(
    brokers: Brokers,
    metadata: Metadata,
    partitions: Iterable[TopicPartition],
    *,
    timestamp: int,
    isolation: int,
    timeout_s: float | None = None,
) -> dict[TopicPartition, ListedOffset | Problem]:
    """Asks each partition's leader for an offset, under the known leader epoch; one answer or problem per partition."""
    answers = _ask(brokers, metadata, partitions, timestamp, isolation, timeout_s)
    return {partition: _NO_OFFSET if answer is None else answer for partition, answer in answers.items()}


def offsets_since(
    brokers: Brokers, metadata: Metadata, partitions: Iterable[TopicPartition], since_ms: TimestampMs
) -> dict[TopicPartition, ListedOffset | Problem | None]:
    """The first offset of each partition with a timestamp at or after a time; None if there is none."""
    return _ask(brokers, metadata, partitions, since_ms, READ_UNCOMMITTED, None)


def _ask(
    brokers: Brokers,
    metadata: Metadata,
    partitions: Iterable[TopicPartition],
    timestamp: int,
    isolation: int,
    timeout_s: float | None,
) -> dict[TopicPartition, ListedOffset | Problem | None]:
    by_leader: dict[BrokerId, list[TopicPartition]] = {}
    epochs: dict[TopicPartition, LeaderEpoch | None] = {}
    answers: dict[TopicPartition, ListedOffset | Problem | None] = {}
    for partition in partitions:
        info = metadata.info(partition)
        if info is None or info.leader is None:
            answers[partition] = _NO_LEADER if info is not None else metadata.why_absent(partition)
        else:
            by_leader.setdefault(info.leader, []).append(partition)
            epochs[partition] = info.leader_epoch

    def request(asked: Sequence[TopicPartition]) -> RequestOf:
        return offsets_request([(partition, epochs[partition]) for partition in asked], timestamp, isolation)

    for partition, answer in ask_for_each(brokers, by_leader, request, _listed, timeout_s).items():
        answers[partition] = Problem.from_error(answer) if isinstance(answer, BrokerError) else answer
    return answers


def _listed(response: Any, leader: BrokerId) -> dict[TopicPartition, ListedOffset | Problem | None]:
    return {
        TopicPartition(topic.name, partition.partition_index): _answer(partition, leader)
        for topic in response.topics
        for partition in topic.partitions
    }


def _answer(partition: Any, leader: BrokerId) -> ListedOffset | Problem | None:
    problem, offset = problem_of(partition.error_code), present(partition.offset)
    if problem is not None or offset is None:
        return problem
    return ListedOffset(offset, present(partition.leader_epoch), leader)


def offsets_request(
    asked: list[tuple[TopicPartition, LeaderEpoch | None]], timestamp: int, isolation: int
) -> RequestOf:
    """Builds the request for a connection; `asked` has each partition and the leader epoch that we know of it."""

    def build(connection: Connection) -> ListOffsetsRequest:
        version = connection.require_version(ListOffsetsRequest, highest=8, lowest=4)
        topics: dict[str, list[Any]] = {}
        for partition, leader_epoch in asked:
            topics.setdefault(partition.topic, []).append(
                ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
                    version=version,
                    partition_index=partition.partition,
                    current_leader_epoch=encoded(leader_epoch),
                    timestamp=timestamp,
                )
            )
        return ListOffsetsRequest(
            version=version,
            replica_id=NONE,
            isolation_level=isolation,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(version=version, name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )

    return build


# Pauses after a broker has failed: it is not asked for 0.25 s, then for twice as long each time, up to 5 s.

_FIRST_S, _LONGEST_S = 0.25, 5.0


@dataclass(slots=True)
class _Pause:
    """The end of a pause on the monotonic clock, and the failure that caused it."""

    growing: GrowingPause[float] = field(default_factory=lambda: GrowingPause(_FIRST_S, _LONGEST_S))
    until: float = 0.0
    why: str = ""


class Pauses:
    """The brokers that must not be asked now."""

    def __init__(self) -> None:
        """Starts without any pause."""
        self._pauses: dict[Endpoint, _Pause] = {}

    def check(self, endpoint: Endpoint) -> None:
        """Returns if the broker may be asked.

        Raises:
            BrokerError: it failed a moment ago.
        """
        pause = self._pauses.get(endpoint)
        if pause is not None and time.monotonic() < pause.until:
            raise BrokerError(f"failed a moment ago: {pause.why}")

    def begin(self, endpoint: Endpoint, why: BrokerError) -> None:
        """Starts a pause after a failure."""
        pause = self._pauses.setdefault(endpoint, _Pause())
        pause.until, pause.why = time.monotonic() + pause.growing.next(), str(why)

    def end(self, endpoint: Endpoint) -> None:
        """Ends the pause, because the broker can be reached."""
        self._pauses.pop(endpoint, None)


# The cluster: its connections and its metadata, and the time that its requests may take.

_NOWHERE = Endpoint("", 0)
_METADATA_MAX_AGE_S = 300.0  # metadata.max.age.ms of Kafka's clients
_METADATA_OF_4_0 = 25  # the level of metadata.version that Kafka 3.9 does not have, also not with unstable ones
LEAST_PATIENCE_S = 0.2  # a broker under load needs that long
_T = TypeVar("_T")


class Cluster:
    """Connections to a cluster's brokers; not thread-safe.

    Attributes:
        throttled_ms: how long brokers have throttled us, by kind of request.
        traffic: the bytes of all connections, also of those that are closed.
    """

    def __init__(
        self, bootstrap: Iterable[Endpoint], security: Security, *, timeout_s: float = 5.0, rack: str | None = None
    ) -> None:
        """A client in `rack`, if given, learns which followers are there."""
        self.bootstrap = tuple(bootstrap)
        self.security = security
        self.timeout_s = timeout_s
        self.rack = rack
        self.metadata: Metadata | None = None
        self.throttled_ms: Counter[str] = Counter()
        self.traffic = Traffic()
        self._connections: dict[Endpoint, Connection] = {}
        self._pauses = Pauses()
        self._turns: Counter[str] = Counter()
        self._deadline = NEVER
        self._renewed_s = 0.0

    @contextmanager
    def budget(self, seconds: float) -> Iterator[None]:
        """Limits the total time of all requests inside; a request that does not fit is an error.

        A nested budget replaces the outer one.
        """
        before, self._deadline = self._deadline, time.monotonic() + seconds
        try:
            yield
        finally:
            self._deadline = before

    @property
    def until(self) -> float:
        """When the budget ends, on the monotonic clock."""
        return self._deadline

    def _patience(self, wanted_s: float) -> float:
        """How long one broker may take: at most half of the budget that is left, so the others have time too."""
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise BrokerError("the time budget was used up before this request")
        return min(wanted_s, left_s, max(left_s / 2, LEAST_PATIENCE_S))

    def close(self) -> None:
        """Closes every connection."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def connection(self, endpoint: Endpoint) -> Connection:
        """An open connection to the broker.

        Raises:
            BrokerError: the broker cannot be reached, or failed a moment ago.
        """
        kept = self._connections.get(endpoint)
        if kept is not None and kept.is_open:
            return kept
        self._pauses.check(endpoint)
        timeout_s = self._patience(self.timeout_s)  # outside the try: a used-up budget must not pause the broker
        try:
            connection = Connection(
                endpoint, self.security, timeout_s=timeout_s, throttled_ms=self.throttled_ms, traffic=self.traffic
            )
        except AuthorizationError:
            raise
        except BrokerError as exc:
            self._pauses.begin(endpoint, exc)
            raise
        self._pauses.end(endpoint)
        self._connections = {at: other for at, other in self._connections.items() if other.is_open} | {
            endpoint: connection
        }
        return connection

    def node(self, node_id: BrokerId) -> Connection:
        """An open connection to the broker with this id.

        Raises:
            BrokerError: the id is unknown, or the broker cannot be reached.
        """
        endpoint = self.known.brokers.get(node_id)
        if endpoint is None:
            raise BrokerError(f"broker {node_id} is not among the cluster's brokers: it is down or was removed")
        return self.connection(endpoint)

    @property
    def known(self) -> Metadata:
        """The last metadata; asks for it if there is none yet."""
        return self.metadata if self.metadata is not None else self.refresh()

    def any_connection(self) -> Connection:
        """A connection to the first broker that answers.

        Raises:
            BrokerError: no broker answers; the message lists each with its error.
        """
        problems: list[str] = []
        for endpoint in dict.fromkeys((*self.known.brokers.values(), *self.bootstrap)):
            try:
                return self.connection(endpoint)
            except AuthorizationError:
                raise
            except BrokerError as exc:
                problems.append(str(exc))
        raise BrokerError("no broker answered: " + "; ".join(problems))

    def refresh(self, names: Iterable[str] = ()) -> Metadata:
        """Asks one broker for the metadata of the whole cluster.

        A topic in `names`, or one that was known before, is asked for by name if the answer lacks it: the list of all
        topics leaves hidden topics out.

        Raises:
            BrokerError: no broker answered; the message lists each with its error.
        """

        def look(endpoint: Endpoint) -> Metadata:
            answer = self.metadata_from(endpoint)
            answer.topics.update(self._hidden(endpoint, answer, names))
            return newest(self.metadata, answer)

        self.metadata, self._renewed_s = self._first_answer(look, "all"), time.monotonic()
        return self.metadata

    def renew_metadata(self) -> None:
        """Asks again if the metadata is old and a rack is set: no error shows that a follower is there again."""
        if self.rack is not None and time.monotonic() - self._renewed_s > _METADATA_MAX_AGE_S:
            with suppress(BrokerError):
                self.refresh()

    def named(self, topics: Iterable[str]) -> dict[str, TopicInfo]:
        """Asks one broker for topics by name: a hidden topic is refused, a topic that does not exist is unknown.

        Raises:
            BrokerError: no broker answered; the message lists each with its error.
        """
        wanted = sorted(topics)
        return self._first_answer(lambda endpoint: self.metadata_from(endpoint, wanted).topics, "named")

    def _first_answer(self, ask: Callable[[Endpoint], _T], what: str) -> _T:
        """Asks the brokers in order until one answers; each call begins with another broker.

        Otherwise a broker that is cut off from the others could return old metadata forever.
        """
        endpoints = list(self.metadata.brokers.values()) if self.metadata is not None else []
        if endpoints:
            self._turns[what] += 1
            turn = self._turns[what] % len(endpoints)
            endpoints = endpoints[turn:] + endpoints[:turn]
        problems: list[str] = []
        for endpoint in dict.fromkeys((*endpoints, *self.bootstrap)):
            try:
                return ask(endpoint)
            except AuthorizationError:
                raise
            except BrokerError as exc:
                problems.append(str(exc))
        raise BrokerError("no broker answered: " + "; ".join(problems))

    def _hidden(self, endpoint: Endpoint, answer: Metadata, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Expected topics that the answer lacks because they are hidden from us.

        `__transaction_state` is not asked for here: callers that need it ask for it, and treat its absence as no
        answer.
        """
        expected = {*names, *(self.metadata.topics if self.metadata is not None else ())}
        missing = sorted(expected - answer.topics.keys() - {TRANSACTION_STATE_TOPIC})
        asked = self.metadata_from(endpoint, missing).topics if missing else {}
        return {name: topic for name, topic in asked.items() if topic.is_hidden}

    def metadata_from(self, endpoint: Endpoint, topics: Iterable[str] | None = None) -> Metadata:
        """One broker's metadata, of all topics or of some; `known` does not change.

        Raises:
            BrokerError: the broker cannot be reached.
        """
        return metadata_of(self._metadata_answer(endpoint, topics), self.rack)

    def _metadata_answer(self, endpoint: Endpoint, topics: Iterable[str] | None = None) -> Any:
        connection = self.connection(endpoint)
        version = connection.require_version(MetadataRequest, highest=12, lowest=1)
        wanted = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        return self.call(connection, MetadataRequest(version=version, topics=wanted, allow_auto_topic_creation=False))

    def whole_metadata(self) -> Any:
        """The MetadataResponse of one broker about all topics, with what `known`, which is set from it, leaves out.

        Raises:
            BrokerError: no broker answered; the message lists each with its error.
        """
        answer = self._first_answer(self._metadata_answer, "all")
        self.metadata = newest(self.metadata, metadata_of(answer))
        return answer

    def call(self, connection: Connection, request: Any) -> Any:
        """Sends one request to one broker and returns its answer.

        Raises:
            BrokerError: no answer in time.
        """
        if self._deadline == NEVER:  # no pause: what follows a marker without an answer must be read at once
            return connection.call(request, self.timeout_s)
        patience_s = self._patience(self.timeout_s)
        connection.send(request, self._deadline)
        with self._pause_after_failure(connection):
            return connection.receive(patience_s, self._deadline)

    def ask(
        self,
        requests: Mapping[BrokerId, RequestOf],
        timeout_s: float,
        receive: Callable[[BrokerId, Connection, float, float], Any] | None = None,
    ) -> dict[BrokerId, Any]:
        """Sends one request to each broker. Returns the answer or the BrokerError of each broker.

        `requests` maps a broker id to a function that builds the request for its connection. `receive`, if given, reads
        the answer from a broker's connection, within a patience and by a deadline.
        """
        patience_s: dict[Connection, float] = {}

        def reach(node_id: BrokerId) -> Connection:
            self._patience(timeout_s)
            return self.node(node_id)

        def send(connection: Connection, request: Any) -> None:
            patience_s[connection] = self._patience(timeout_s)
            connection.send(request, self._deadline)

        def take(node_id: BrokerId, connection: Connection) -> Any:
            with self._pause_after_failure(connection):
                if receive is not None:
                    return receive(node_id, connection, patience_s[connection], self._deadline)
                return connection.receive(patience_s[connection], self._deadline)

        return fan_out(requests, reach, send, take)

    @contextmanager
    def _pause_after_failure(self, connection: Connection) -> Iterator[None]:
        try:
            yield
        except BrokerError as exc:
            self._pauses.begin(connection.endpoint, exc)
            raise

    def take_throttled(self) -> dict[str, DurationMs]:
        """How long brokers have throttled us since the last call, by kind of request."""
        taken = {request: DurationMs(total_ms) for request, total_ms in self.throttled_ms.items()}
        self.throttled_ms.clear()
        return taken

    def throttled_s(self, node_id: BrokerId) -> float:
        """How long a broker will not read what we send; 0 also if there is no connection to it."""
        connection = self._connections.get(self.known.brokers.get(node_id, _NOWHERE))
        return connection.throttled_s if connection is not None and connection.is_open else 0.0

    def connection_to_keep(self, node_id: BrokerId) -> str:
        """Identifies the open connection to a broker; empty if a restart of the broker raises its leader epochs.

        Up to Kafka 3.9 and with ZooKeeper, brokers that all lose their power have the leader epochs of before, so a
        lost tail of a log cannot be seen there (decision 0049). But a restart closes every connection. From Kafka 4.0
        on, the controller raises the epochs when a broker registers. Which controller is active can change, and brokers
        can be newer than it. But no controller may be older than the finalized metadata.version.
        """
        connection = self._connections.get(self.known.brokers.get(node_id, _NOWHERE))
        if connection is None:
            return secrets.token_hex(4)  # closed meanwhile: the next answer is on another one
        return "" if connection.finalized.get("metadata.version", 0) >= _METADATA_OF_4_0 else connection.identity

    def list_offsets(
        self,
        partitions: Iterable[TopicPartition],
        *,
        timestamp: int = LATEST,
        isolation: int = READ_UNCOMMITTED,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, ListedOffset | Problem]:
        """Asks each partition's leader for an offset; one answer or problem per partition."""
        return list_offsets(self, self.known, partitions, timestamp=timestamp, isolation=isolation, timeout_s=timeout_s)

    def offsets_since(
        self, partitions: Iterable[TopicPartition], since_ms: TimestampMs
    ) -> dict[TopicPartition, ListedOffset | Problem | None]:
        """The first offset of each partition with a timestamp at or after a time; None if there is none."""
        return offsets_since(self, self.known, partitions, since_ms)
