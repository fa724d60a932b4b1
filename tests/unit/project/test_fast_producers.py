"""The fast producers of benchmarks and tests, against a server that answers as a broker does."""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)
from kafka.record.default_records import DefaultRecordBatch

from bench.partitions import TRANSACTIONS_S, places_of
from support.fast_producers import FastProducers, added_errors, produced_errors
from support.fast_writer import turn

TOPIC, PRODUCER_ID = "orders", 77
CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE = 51, 48
_HEAD = struct.Struct(">hhih")


def added(codes: list[int]) -> bytes:
    topic = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
    results = [
        topic.AddPartitionsToTxnPartitionResult(version=3, partition_index=number, partition_error_code=code)
        for number, code in enumerate(codes)
    ]
    found = topic(version=3, name=TOPIC, results_by_partition=results)
    response = AddPartitionsToTxnResponse(version=3, throttle_time_ms=0, results_by_topic_v3_and_below=[found])
    return bytes(response.encode())


def produced(codes: list[int]) -> bytes:
    topic = ProduceResponse.TopicProduceResponse
    results = [
        topic.PartitionProduceResponse(
            version=11,
            index=number,
            error_code=code,
            base_offset=5,
            log_append_time_ms=-1,
            log_start_offset=0,
            record_errors=[],
            error_message=None,
        )
        for number, code in enumerate(codes)
    ]
    found = topic(version=11, name=TOPIC, partition_responses=results)
    return bytes(ProduceResponse(version=11, responses=[found], throttle_time_ms=0).encode())


class Broker:
    """Answers each request; the first AddPartitionsToTxn of a producer's second transaction comes too early."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.got: list[Any] = []
        self.end_code = 0
        self._added: Counter[str] = Counter()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as requests:
            while length := requests.read(4):
                frame = requests.read(int.from_bytes(length, "big"))
                key, _, correlation_id, name_length = _HEAD.unpack_from(frame)
                answer = self._answer(key, frame[_HEAD.size + name_length + 1 :])
                head = struct.pack(">ib", correlation_id, 0)
                connection.sendall(struct.pack(">i", len(head + answer)) + head + answer)

    def _answer(self, key: int, body: bytes) -> bytes:
        kind = {one.API_KEY: one for one in (InitProducerIdRequest, AddPartitionsToTxnRequest, EndTxnRequest)}
        version = {InitProducerIdRequest.API_KEY: 4, EndTxnRequest.API_KEY: 4, AddPartitionsToTxnRequest.API_KEY: 3}
        if key == ProduceRequest.API_KEY:
            request = ProduceRequest.decode(body, version=11)
            self.got.append(request)
            return produced([0] * len(request.topic_data[0].partition_data))
        request = kind[key].decode(body, version=version[key])
        self.got.append(request)
        if key == InitProducerIdRequest.API_KEY:
            answer = InitProducerIdResponse(
                version=4, throttle_time_ms=0, error_code=0, producer_id=PRODUCER_ID, producer_epoch=3
            )
            return bytes(answer.encode())
        if key == EndTxnRequest.API_KEY:
            return bytes(EndTxnResponse(version=4, throttle_time_ms=0, error_code=self.end_code).encode())
        name = request.v3_and_below_transactional_id
        self._added[name] += 1
        code = CONCURRENT_TRANSACTIONS if self._added[name] == 2 else 0
        return added([code] * len(request.v3_and_below_topics[0].partitions))

    def of(self, kind: type) -> list[Any]:
        """The requests of one kind."""
        return [request for request in self.got if isinstance(request, kind)]

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def broker() -> Iterator[Broker]:
    with closing(Broker()) as one:
        yield one


@pytest.mark.parametrize("partitions", [1, 5])
def test_the_errors_of_an_answer_are_where_they_are_read(partitions: int) -> None:
    codes = [number + 1 for number in range(partitions)]
    head = bytes(5)
    for answer, places in (
        (head + added(codes), added_errors(TOPIC, partitions)),
        (head + produced(codes[:1] + [0] * (partitions - 1)), produced_errors(TOPIC, partitions)[:1]),
    ):
        found = [struct.unpack_from(">h", answer, at)[0] for at in places]
        assert found == codes[: len(found)]
    assert len(head + produced([0] * partitions)) == produced_errors(TOPIC, partitions)[-1] + 2 + 27 + 1 + 4 + 1


def test_a_transaction_that_ends_and_the_next_one_continue_the_sequence(broker: Broker) -> None:
    with closing(FastProducers(broker.port, TOPIC, [(0, 3), (1, 4)], 60_000, b"value")) as producers:
        producers.begin([0, 1])
        producers.commit([0])
        producers.begin([0])
        producers.write([1])
    of_the_first = [found for found in broker.of(ProduceRequest) if found.transactional_id == "orders-0"]
    assert len(of_the_first) == 2
    for sequence, request in enumerate(of_the_first):
        (topic,) = request.topic_data
        assert [data.index for data in topic.partition_data] == [0, 3]
        for data in topic.partition_data:
            batch = DefaultRecordBatch(bytes(data.records))
            assert batch.validate_crc()
            assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (PRODUCER_ID, 3, sequence)
            assert batch.is_transactional
    adds = [found.v3_and_below_transactional_id for found in broker.of(AddPartitionsToTxnRequest)]
    assert adds.count("orders-0") == 3  # the second transaction was refused once
    assert [(end.transactional_id, end.committed) for end in broker.of(EndTxnRequest)] == [("orders-0", True)]


def test_a_refusal_that_does_not_pass_is_an_error(broker: Broker) -> None:
    broker.end_code = INVALID_TXN_STATE
    with closing(FastProducers(broker.port, TOPIC, [(0,)], 60_000)) as producers:
        producers.begin([0])
        with pytest.raises(AssertionError, match=r"error codes \[48\]"):
            producers.commit([0])


def test_more_requests_than_one_exchange_has_are_all_answered(broker: Broker) -> None:
    places = [(number % 7,) for number in range(450)]
    with closing(FastProducers(broker.port, TOPIC, places, 60_000)) as producers:
        producers.begin(range(450))
    assert len({found.transactional_id for found in broker.of(ProduceRequest)}) == 450


@pytest.mark.parametrize(
    ("number", "expected"), [(0, [0, 1]), (1, [2, 3]), (2, [4, 0])], ids=["first", "next", "around the end"]
)
def test_the_producers_take_turns(number: int, expected: list[int]) -> None:
    assert turn(number, 2, 5) == expected


@pytest.mark.parametrize(("partitions", "producers"), [(10, 200), (1_000, 200), (10_000, 2_000)])
def test_the_transactions_of_a_busy_cluster_reach_every_partition(partitions: int, producers: int) -> None:
    places = places_of(partitions)
    assert len(places) == producers
    assert producers % TRANSACTIONS_S == 0  # so that no round begins a transaction of a producer twice
    assert {partition for of_one in places for partition in of_one} == set(range(partitions))
    assert all(len(set(of_one)) == len(of_one) for of_one in places)
