"""Many transactional producers on one broker, with little CPU of their own: requests without a client library.

Each request is encoded once; then only the sequence, the time and the checksum of its batches change. Many requests are
sent before their answers are read. A broker handles the requests of one connection in order, so there are several.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
)
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.util import calc_crc32c

from txnwatch_demo.late_write import END_VERSION, PRODUCE_VERSION

CONNECTIONS, AT_ONCE, PAUSE_S, PATIENCE_S = 4, 200, 0.005, 300.0
INIT_VERSION, ADD_VERSION = 4, 3
# Unknown topic, no leader yet, coordinator not ready, the markers of the last transaction are not written yet.
RETRIED = frozenset({3, 5, 6, 14, 15, 16, 51, 55})
_SIZE, _TIMES, _CRC, _SEQUENCE, _ERROR = (struct.Struct(form) for form in (">i", ">qq", ">I", ">i", ">h"))
_PRODUCER = struct.Struct(">qh")
# Offsets in a record batch: KIP-98.
_CRC_AT, _SUMMED_FROM, _TIMES_AT, _SEQUENCE_AT = 17, 21, 27, 53
_HEADER, _THROTTLE = 5, 4  # of an answer: the correlation id and the number of tags; milliseconds
AFTER_THROTTLE = (_HEADER + _THROTTLE,)  # where the error is in an answer to InitProducerId and to EndTxn
_ADDED, _PRODUCED = 7, 33  # length of what an answer has about one partition without an error


def added_errors(topic: str, partitions: int) -> tuple[int, ...]:
    """Where the errors are in an answer to AddPartitionsToTxn."""
    first = _HEADER + _THROTTLE + 1 + 1 + len(topic) + 1 + 4  # topics, length of the name, name, partitions, index
    return tuple(first + _ADDED * number for number in range(partitions))


def produced_errors(topic: str, partitions: int) -> tuple[int, ...]:
    """Where the errors are in an answer to Produce."""
    first = _HEADER + 1 + 1 + len(topic) + 1 + 4
    return tuple(first + _PRODUCED * number for number in range(partitions))


class Pipeline:
    """Connections to one broker."""

    def __init__(self, port: int) -> None:
        self._sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS)]
        self._answers = [connection.makefile("rb") for connection in self._sockets]

    def ask(self, requests: Sequence[bytes | bytearray], errors_at: Sequence[int]) -> list[bytes]:
        """The answers in the order of the requests; a request that the broker refuses for the moment is sent again."""
        answers: dict[int, bytes] = {}
        left, deadline = list(range(len(requests))), time.monotonic() + PATIENCE_S
        while left:
            for first in range(0, len(left), AT_ONCE):
                self._exchange(requests, left[first : first + AT_ONCE], answers)
            codes = {number: _first_error(answers[number], errors_at) for number in left}
            left = [number for number, code in codes.items() if code in RETRIED]
            wrong = set(codes.values()) - RETRIED - {0}
            assert not wrong, f"refused with the error codes {sorted(wrong)}"
            assert not left or time.monotonic() < deadline, f"{len(left)} requests were refused until the deadline"
            time.sleep(PAUSE_S if left else 0.0)
        return [answers[number] for number in range(len(requests))]

    def _exchange(
        self, requests: Sequence[bytes | bytearray], numbers: Sequence[int], answers: dict[int, bytes]
    ) -> None:
        for place, connection in enumerate(self._sockets):
            connection.sendall(b"".join(requests[number] for number in numbers[place::CONNECTIONS]))
        for place, stream in enumerate(self._answers):
            for number in numbers[place::CONNECTIONS]:
                answers[number] = stream.read(_SIZE.unpack(stream.read(_SIZE.size))[0])

    def close(self) -> None:
        """Closes all connections."""
        for end in (*self._answers, *self._sockets):
            end.close()


def _first_error(answer: bytes, errors_at: Iterable[int]) -> int:
    codes = (int(_ERROR.unpack_from(answer, at)[0]) for at in errors_at)
    return next((code for code in codes if code), 0)


@dataclass(slots=True)
class _Producer:
    """The requests of one producer; `batches`: where they begin in `produce`."""

    add: bytes
    end: bytes
    produce: bytearray
    batches: list[int]
    sequence: int = 0


class FastProducers:
    """One producer for each entry of `places`, which has its partitions; all have the same number of partitions.

    A number is the place of a producer in `places`.
    """

    def __init__(
        self, port: int, topic: str, places: Sequence[tuple[int, ...]], timeout_ms: int, value: bytes = b"x"
    ) -> None:
        self._pipeline = Pipeline(port)
        names = [f"{topic}-{number}" for number in range(len(places))]
        answers = self._pipeline.ask([_init(name, timeout_ms) for name in names], AFTER_THROTTLE)
        found = [_PRODUCER.unpack_from(answer, AFTER_THROTTLE[0] + _ERROR.size) for answer in answers]
        self._producers = [
            _producer(name, *ids, topic, partitions, value)
            for name, ids, partitions in zip(names, found, places, strict=True)
        ]
        self._added, self._produced = added_errors(topic, len(places[0])), produced_errors(topic, len(places[0]))

    def begin(self, numbers: Sequence[int]) -> None:
        """Begins a transaction of each, with a batch on each of its partitions."""
        self._pipeline.ask([self._producers[number].add for number in numbers], self._added)
        self.write(numbers)

    def write(self, numbers: Sequence[int]) -> None:
        """Writes one more batch of each on each of its partitions."""
        now_ms = time.time_ns() // 1_000_000
        requests = []
        for producer in (self._producers[number] for number in numbers):
            for at in producer.batches:
                stamp(producer.produce, at, producer.sequence, now_ms)
            producer.sequence += 1
            requests.append(producer.produce)
        self._pipeline.ask(requests, self._produced)

    def commit(self, numbers: Sequence[int]) -> None:
        """Ends the transaction of each; its markers are written a moment later."""
        self._pipeline.ask([self._producers[number].end for number in numbers], AFTER_THROTTLE)

    def close(self) -> None:
        """Closes the connections; what is open stays open."""
        self._pipeline.close()


def _encoded(request: Any) -> bytes:
    request.with_header(correlation_id=1, client_id="fast-producers")
    return bytes(request.encode(framed=True, header=True))


def _init(name: str, timeout_ms: int) -> bytes:
    return _encoded(
        InitProducerIdRequest(
            version=INIT_VERSION,
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
            producer_id=-1,
            producer_epoch=-1,
        )
    )


def _producer(
    name: str, producer_id: int, epoch: int, topic: str, partitions: tuple[int, ...], value: bytes
) -> _Producer:
    added, produced = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic, ProduceRequest.TopicProduceData
    add = AddPartitionsToTxnRequest(
        version=ADD_VERSION,
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[added(version=ADD_VERSION, name=topic, partitions=list(partitions))],
    )
    end = EndTxnRequest(
        version=END_VERSION,
        transactional_id=name,
        producer_id=producer_id,
        producer_epoch=epoch,
        committed=True,
    )
    builder = DefaultRecordBatchBuilder(2, 0, True, producer_id, epoch, 0, 1 << 10)
    builder.append(0, time.time_ns() // 1_000_000, None, value, [])
    batch = bytes(builder.build())
    data = [
        produced.PartitionProduceData(version=PRODUCE_VERSION, index=partition, records=batch)
        for partition in partitions
    ]
    produce = _encoded(
        ProduceRequest(
            version=PRODUCE_VERSION,
            transactional_id=name,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[produced(version=PRODUCE_VERSION, name=topic, partition_data=data)],
        )
    )
    batches = [produce.index(batch)]
    while len(batches) < len(partitions):
        batches.append(produce.index(batch, batches[-1] + len(batch)))
    return _Producer(_encoded(add), _encoded(end), bytearray(produce), batches)


def stamp(encoded: bytearray, at: int, sequence: int, now_ms: int) -> None:
    """Gives the batch at a place of an encoded request a sequence and a time."""
    _TIMES.pack_into(encoded, at + _TIMES_AT, now_ms, now_ms)
    _SEQUENCE.pack_into(encoded, at + _SEQUENCE_AT, sequence)
    end = at + 12 + _SIZE.unpack_from(encoded, at + 8)[0]
    _CRC.pack_into(encoded, at + _CRC_AT, calc_crc32c(memoryview(encoded)[at + _SUMMED_FROM : end]))
