"""Records that are not received: what a fold, the decoder and a marker need is there, however the bytes arrive."""

from __future__ import annotations

import functools
import random
import socket

import pytest

from support.batches import a_batch, a_marker, a_record, an_old_entry
from support.fetch_responses import a_fetch_response, header_of, received
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.log.partition_fold import PartitionFold
from txnwatch.streaming.wire.fetch_response import FetchAnswer, decode_fetch_response

ORDERS = TopicPartition("orders", 0)


@functools.cache
def large(offset: int, size: int = 200_000) -> bytes:
    return a_batch(offset, records=[a_record(value=b"v" * size)])


LOGS = {
    "large batches": [large(0), large(1), large(2)],
    "a marker between large batches": [large(0), a_marker(1), large(2), a_marker(3)],
    "small batches first": [*(a_batch(offset) for offset in range(40)), large(40)],
    "some small batches between": [large(0), *(a_batch(offset) for offset in range(1, 6)), large(6), a_marker(7)],
    "an old entry": [large(0), an_old_entry(1), large(2)],
    "cut off": [large(0), large(1)[:150_000]],
    "cut off in a header": [large(0), large(1)[:40]],
    "nothing": [],
}

MOSTLY_DROPPED = LOGS.keys() - {"small batches first", "an old entry", "nothing"}


def folded(answer: FetchAnswer) -> list[object]:
    found: list[object] = []
    for data in answer.partitions:
        fold = PartitionFold(0, 1000)
        fold.feed(data.records)
        found.append((data.partition, fold.position, fold.leader_epoch, list(fold.facts(ORDERS, "id", 0))))
    return found


@pytest.mark.parametrize("version", [4, 11, 12, 13])
@pytest.mark.parametrize("name", LOGS)
def test_the_facts_are_those_of_the_whole_response(name: str, version: int) -> None:
    records = b"".join(LOGS[name])
    whole = a_fetch_response(version, records, b"", records)
    body = len(header_of(version))
    expected = folded(decode_fetch_response(memoryview(whole)[body:], version))
    draw = random.Random(name)
    for largest in (3_000, 70_000, 1 << 20):
        buffer, dropped = received(whole, version, iter(lambda top=largest: draw.randint(1, top), None))
        assert folded(decode_fetch_response(buffer[body:], version)) == expected
        assert (dropped > len(whole) // 2) == (name in MOSTLY_DROPPED)


def test_small_batches_are_received_as_they_come() -> None:
    whole = a_fetch_response(12, b"".join(a_batch(offset) for offset in range(2_000)))
    buffer, dropped = received(whole, 12, iter(lambda: 1 << 20, None))
    assert (bytes(buffer), dropped) == (whole, 0)


@pytest.mark.skipif(not hasattr(socket, "MSG_TRUNC"), reason="only Linux drops the bytes of a TCP connection")
def test_tcp_drops_exactly_the_bytes_that_are_skipped() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        other, _ = server.accept()
        with other:
            other.sendall(b"a" * 10 + b"b" * 1_000 + b"c" * 10)
            buffer = bytearray(1_020)
            assert one.recv_into(memoryview(buffer)[:10]) == 10
            dropped = 0
            while dropped < 1_000:
                dropped += one.recv_into(memoryview(buffer)[10 + dropped : 1_010], 0, socket.MSG_TRUNC)
            assert one.recv_into(memoryview(buffer)[1_010:]) == 10
    assert bytes(buffer) == b"a" * 10 + b"\0" * 1_000 + b"c" * 10
