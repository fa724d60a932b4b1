"""Writes one batch of each of many transactional producers, one after the other, with little CPU of its own.

A request can have the batches of one transactional producer only, so every batch is a request. Each request is encoded
once; then only its sequence, its time and its checksum change. Requests are sent without waiting for each answer.
"""

from __future__ import annotations

import multiprocessing
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.sharedctypes import Synchronized
from typing import Any

from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.util import calc_crc32c

from support.raw_producer import RawProducer
from txnwatch.state.model.ids import TopicPartition
from txnwatch_demo.stepwise_producer import produce_request

ROUND_S, AT_ONCE = 1.0, 200
_SIZE, _TIMES, _CRC, _SEQUENCE, _ERROR = (struct.Struct(form) for form in (">i", ">qq", ">I", ">i", ">h"))
# Offsets in a record batch: KIP-98.
_CRC_AT, _SUMMED_FROM, _TIMES_AT, _SEQUENCE_AT = 17, 21, 27, 53


@contextmanager
def writing(port: int, topic: str, partitions: int, producers: list[RawProducer]) -> Iterator[Synchronized[int]]:
    """A process that writes while the context is open; yields the number of batches that it has written.

    Every producer has written one record before, to the partition of its position in the list.
    """
    context = multiprocessing.get_context("spawn")
    written, is_over = context.Value("q", 0), context.Event()
    requests = [_request(producer, topic, number % partitions, number) for number, producer in enumerate(producers)]
    process = context.Process(target=_write, args=(port, len(topic), requests, written, is_over), daemon=True)
    process.start()
    yield written
    is_over.set()
    process.join(30.0)
    assert process.exitcode == 0, "the writer failed"


def _request(producer: RawProducer, topic: str, partition: int, number: int) -> tuple[bytes, int]:
    """An encoded request, and where its batch begins."""
    builder = DefaultRecordBatchBuilder(2, 0, True, producer.producer_id, producer.producer_epoch, 0, 1 << 10)
    builder.append(0, time.time_ns() // 1_000_000, None, b"x", [])
    batch = bytes(builder.build())
    place = TopicPartition(topic, partition)
    request = produce_request(place, batch, transactional_id=producer.transactional_id)
    request.with_header(correlation_id=number, client_id="bench")
    encoded = request.encode(framed=True, header=True)
    return encoded, encoded.index(batch)


def _write(port: int, topic_length: int, requests: list[tuple[bytes, int]], written: Any, is_over: Any) -> None:
    known = [(bytearray(encoded), at) for encoded, at in requests]
    error_at = 4 + 1 + 1 + 1 + topic_length + 1 + 4  # correlation id, tags, topics, name, partitions, index
    sequence = 0
    with socket.create_connection(("127.0.0.1", port)) as broker, broker.makefile("rb") as answers:
        while not is_over.is_set():
            begin = time.monotonic()
            sequence += 1  # the first record of each was written when its transaction began
            for first in range(0, len(known), AT_ONCE):
                some = known[first : first + AT_ONCE]
                now_ms = time.time_ns() // 1_000_000
                broker.sendall(b"".join(_next(encoded, at, sequence, now_ms) for encoded, at in some))
                for _ in some:
                    answer = answers.read(_SIZE.unpack(answers.read(4))[0])
                    (error,) = _ERROR.unpack_from(answer, error_at)
                    assert error == 0, f"Produce failed with error code {error}"
                written.value += len(some)
            time.sleep(max(0.0, begin + ROUND_S - time.monotonic()))


def _next(encoded: bytearray, at: int, sequence: int, now_ms: int) -> bytearray:
    _TIMES.pack_into(encoded, at + _TIMES_AT, now_ms, now_ms)
    _SEQUENCE.pack_into(encoded, at + _SEQUENCE_AT, sequence)
    end = at + 12 + _SIZE.unpack_from(encoded, at + 8)[0]
    _CRC.pack_into(encoded, at + _CRC_AT, calc_crc32c(memoryview(encoded)[at + _SUMMED_FROM : end]))
    return encoded
