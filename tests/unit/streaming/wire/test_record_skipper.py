"""Records that are not received: what a fold, the decoder and a marker need is there, however the bytes arrive."""

from __future__ import annotations

import random
import socket
import uuid
from collections.abc import Iterable

import pytest
from kafka.protocol.consumer import FetchResponse

from support.batches import a_batch, a_marker, a_record, an_old_entry
from txnwatch.state.model.ids import TopicPartition
from txnwatch.streaming.log.partition_fold import PartitionFold
from txnwatch.streaming.wire.fetch_response import FetchAnswer, decode_fetch_response
from txnwatch.streaming.wire.record_skipper import RecordSkipper

Topic = FetchResponse.FetchableTopicResponse
ORDERS = TopicPartition("orders", 0)
HEADER = {True: b"\0\0\0\7\0", False: b"\0\0\0\7"}


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


def a_response(version: int, *records: bytes) -> bytes:
    partitions = [
        Topic.PartitionData(
            partition_index=number,
            error_code=0,
            high_watermark=9,
            last_stable_offset=9,
            log_start_offset=0,
            aborted_transactions=None,
            preferred_read_replica=-1,
            records=one,
        )
        for number, one in enumerate(records)
    ]
    named = {"topic_id": uuid.UUID(int=5)} if version >= 13 else {"topic": "orders"}
    topics = [Topic(partitions=partitions, **named)] * 2
    response = FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=topics)
    return HEADER[version >= 12] + bytes(response.encode(version=version))


def received(whole: bytes, version: int, sizes: Iterable[int]) -> tuple[memoryview, int]:
    """The buffer as a connection fills it: dropped bytes are left as they were; and how many were dropped."""
    buffer, skipper = memoryview(bytearray(b"\xee" * len(whole))), RecordSkipper(version)
    filled = dropped = 0
    for size in sizes:
        to = skipper.skip_to(buffer, filled)
        assert to >= filled
        if to > filled:
            count = min(size, to - filled)
            dropped += count
        else:
            count = min(size, skipper.next_size, len(whole) - filled)
            buffer[filled : filled + count] = whole[filled : filled + count]
        filled += count
        if filled == len(whole):
            return buffer, dropped
    raise AssertionError("the sizes ended before the response")


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
    whole = a_response(version, records, b"", records)
    body = len(HEADER[version >= 12])
    expected = folded(decode_fetch_response(memoryview(whole)[body:], version))
    draw = random.Random(name)
    for largest in (3_000, 70_000, 1 << 20):
        buffer, dropped = received(whole, version, iter(lambda top=largest: draw.randint(1, top), None))
        assert folded(decode_fetch_response(buffer[body:], version)) == expected
        assert (dropped > len(whole) // 2) == (name in MOSTLY_DROPPED)


def test_small_batches_are_received_as_they_come() -> None:
    whole = a_response(12, b"".join(a_batch(offset) for offset in range(2_000)))
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
