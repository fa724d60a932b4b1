"""A cluster seen from outside: who leads what, and where the partitions end.

Owns the connections, one a broker. A broker that does not answer is left alone for a short, growing while, so
that one that is away costs a round nothing; what it leads is then simply not answered. Answers are per partition
and an error is an answer too: nothing is dropped, so that a short answer never passes for a whole one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest

from txnwatch.state.errors import AuthorizationError, BrokerError
from txnwatch.state.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.streaming.broker import Connection, Endpoint, error_name
from txnwatch.streaming.metadata import NO_LEADER, Metadata, TopicInfo, metadata_of, newest
from txnwatch.streaming.security import Security

LATEST, EARLIEST = -1, -2
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 5.0


class Listed(NamedTuple):
    """An end as the leader told it. `leader_epoch` is the epoch of its log there; `error` excludes the rest."""

    offset: int
    leader_epoch: int
    error: str | None = None


class _Pause(NamedTuple):
    """Until when a broker is left alone, how long that is altogether, and what it did."""

    until: float
    length_s: float
    why: str


_NO_PAUSE = _Pause(0.0, 0.0, "")


class Cluster:
    """Connections to a cluster's brokers; not thread-safe."""

    def __init__(self, bootstrap: Iterable[Endpoint], security: Security, *, timeout_s: float = 5.0) -> None:
        self.bootstrap = tuple(bootstrap)
        self.security = security
        self.timeout_s = timeout_s
        self.metadata: Metadata | None = None
        self._connections: dict[Endpoint, Connection] = {}
        self._pauses: dict[Endpoint, _Pause] = {}
        self._turn = 0
        self._deadline: float | None = None

    @contextmanager
    def budget(self, seconds: float) -> Iterator[None]:
        """Everything asked inside takes no longer than this altogether; what did not fit is an error."""
        self._deadline = time.monotonic() + seconds
        try:
            yield
        finally:
            self._deadline = None

    def _timeout(self, wanted: float) -> float:
        if self._deadline is None:
            return wanted
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise BrokerError("the time budget was used up before this was asked")
        return min(wanted, left)

    def close(self) -> None:
        """Closes every connection."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def connection(self, endpoint: Endpoint) -> Connection:
        """An open connection to the broker.

        Raises:
            BrokerError: it cannot be reached, or could not a moment ago.
        """
        known = self._connections.get(endpoint)
        if known is not None and known.is_open:
            return known
        pause = self._pauses.get(endpoint, _NO_PAUSE)
        if time.monotonic() < pause.until:
            raise BrokerError(f"a moment ago: {pause.why}")
        timeout_s = self._timeout(self.timeout_s)  # a budget that is used up is not held against the broker
        try:
            connection = Connection(endpoint, self.security, timeout_s=timeout_s)
        except AuthorizationError:
            raise
        except BrokerError as exc:
            self._pause(endpoint, exc)
            raise
        self._pauses.pop(endpoint, None)
        self._connections = {at: one for at, one in self._connections.items() if one.is_open} | {endpoint: connection}
        return connection

    def _pause(self, endpoint: Endpoint, why: BrokerError) -> None:
        last = self._pauses.get(endpoint, _NO_PAUSE)
        length_s = min(max(2 * last.length_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
        self._pauses[endpoint] = _Pause(time.monotonic() + length_s, length_s, str(why))

    def node(self, node_id: int) -> Connection:
        """An open connection to the broker with this id.

        Raises:
            BrokerError: unknown id, or not reachable.
        """
        endpoint = self.known.brokers.get(node_id)
        if endpoint is None:
            raise BrokerError(f"broker {node_id} is not among the cluster's brokers: it is down or was removed")
        return self.connection(endpoint)

    @property
    def known(self) -> Metadata:
        """The metadata learned last."""
        return self.metadata if self.metadata is not None else self.refresh()

    def any_connection(self) -> Connection:
        """A connection to whichever broker answers.

        Raises:
            BrokerError: none does; the message lists each with its error.
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
        """Asks any broker for the whole cluster's metadata.

        A topic of these names, or known before, is asked for by name if it is missing: a hidden one is left out, too.

        Raises:
            BrokerError: no broker answered; the message lists each with its error.
        """
        known = list(self.metadata.brokers.values()) if self.metadata is not None else []
        if known:  # another broker each time: one that is cut off from the others would tell old news for ever
            self._turn = (self._turn + 1) % len(known)
            known = known[self._turn :] + known[: self._turn]
        problems: list[str] = []
        for endpoint in dict.fromkeys((*known, *self.bootstrap)):
            try:
                told = self.metadata_from(endpoint)
                told.topics.update(self._hidden(endpoint, told, names))
                self.metadata = newest(self.metadata, told)
            except AuthorizationError:
                raise
            except BrokerError as exc:
                problems.append(str(exc))
            else:
                return self.metadata
        raise BrokerError("no broker answered: " + "; ".join(problems))

    def _hidden(self, endpoint: Endpoint, told: Metadata, names: Iterable[str]) -> dict[str, TopicInfo]:
        """The coordinator's log is not among them: who needs it asks for it, and takes its absence for no answer."""
        expected = {*names, *(self.metadata.topics if self.metadata is not None else ())}
        missing = sorted(expected - told.topics.keys() - {TRANSACTION_STATE_TOPIC})
        asked = self.metadata_from(endpoint, missing).topics if missing else {}
        return {name: topic for name, topic in asked.items() if topic.is_hidden}

    def metadata_from(self, endpoint: Endpoint, topics: Iterable[str] | None = None) -> Metadata:
        """One broker's metadata, of all topics or of some; `known` is left alone.

        Raises:
            BrokerError: the broker cannot be reached.
        """
        connection = self.connection(endpoint)
        version = connection.require_version(MetadataRequest, highest=12, lowest=1)
        wanted = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(version=version, topics=wanted, allow_auto_topic_creation=False)
        return metadata_of(self.call(connection, request))

    def call(self, connection: Connection, request: Any) -> Any:
        """One request to one broker.

        Raises:
            BrokerError: no answer in time.
        """
        return connection.call(request, self._timeout(self.timeout_s))

    def ask(
        self,
        requests: Mapping[int, Callable[[Connection], Any]],
        timeout_s: float,
        receive: Callable[[int, Connection, float], Any] | None = None,
    ) -> dict[int, Any]:
        """Sends one request to each broker, then collects the answers: side by side, under one deadline.

        `requests` maps a broker id to a function of its connection that builds the request; `receive`, if given,
        takes the answer off a broker's connection by a deadline. Returns for each broker the answer or the
        BrokerError.
        """
        waiting: dict[int, Connection] = {}
        answers: dict[int, Any] = {}
        for node_id, build in requests.items():
            try:
                self._timeout(timeout_s)
                connection = self.node(node_id)
                connection.send(build(connection))
                waiting[node_id] = connection
            except BrokerError as exc:
                answers[node_id] = exc
        deadline = time.monotonic() + timeout_s
        if self._deadline is not None:
            deadline = min(deadline, self._deadline)
        for node_id, connection in waiting.items():
            try:
                answers[node_id] = (
                    receive(node_id, connection, deadline) if receive is not None else connection.receive(deadline)
                )
            except BrokerError as exc:
                self._pause(connection.endpoint, exc)
                answers[node_id] = exc
        return answers

    def list_offsets(
        self,
        partitions: Iterable[TopicPartition],
        *,
        timestamp: int = LATEST,
        isolation: int = READ_UNCOMMITTED,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, Listed]:
        """Asks each partition's leader, under the leader epoch known, for an offset; one answer per partition."""
        by_leader: dict[int, list[tuple[TopicPartition, int]]] = {}
        answers: dict[TopicPartition, Listed] = {}
        for partition in partitions:
            info = self.known.info(partition)
            if info is None or info.leader == NO_LEADER:
                answers[partition] = Listed(
                    -1, -1, "NO_LEADER" if info is not None else self.known.why_absent(partition)
                )
            else:
                by_leader.setdefault(info.leader, []).append((partition, info.leader_epoch))
        requests = {leader: _list_offsets_request(asked, timestamp, isolation) for leader, asked in by_leader.items()}
        for leader, answer in self.ask(requests, timeout_s or self.timeout_s).items():
            if isinstance(answer, BrokerError):
                answers.update({partition: Listed(-1, -1, str(answer)) for partition, _ in by_leader[leader]})
            else:
                answers.update(_listed(answer))
                for partition, _ in by_leader[leader]:
                    answers.setdefault(partition, Listed(-1, -1, "the answer did not have it"))
        return answers


def _list_offsets_request(
    asked: list[tuple[TopicPartition, int]], timestamp: int, isolation: int
) -> Callable[[Connection], Any]:
    def build(connection: Connection) -> Any:
        version = connection.require_version(ListOffsetsRequest, highest=8, lowest=4)
        topics: dict[str, list[Any]] = {}
        for partition, leader_epoch in asked:
            topics.setdefault(partition.topic, []).append(
                ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
                    version=version,
                    partition_index=partition.partition,
                    current_leader_epoch=leader_epoch,
                    timestamp=timestamp,
                )
            )
        return ListOffsetsRequest(
            version=version,
            replica_id=-1,
            isolation_level=isolation,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(version=version, name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )

    return build


def _listed(response: Any) -> dict[TopicPartition, Listed]:
    return {
        TopicPartition(topic.name, partition.partition_index): Listed(
            partition.offset,
            partition.leader_epoch,
            error_name(partition.error_code) if partition.error_code else None,
        )
        for topic in response.topics
        for partition in topic.partitions
    }
