"""Responses to Fetch as bytes, and how a connection receives them when it drops records that nobody reads."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from kafka.protocol.consumer import FetchResponse

from txnwatch.streaming.wire.fetch_response import RecordSkipper

Topic = FetchResponse.FetchableTopicResponse


def header_of(version: int) -> bytes:
    return b"\0\0\0\7\0" if version >= 12 else b"\0\0\0\7"


def a_fetch_response(version: int, *records: bytes) -> bytes:
    """A response with its header; each of two topics has one partition for each of `records`."""
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
    return header_of(version) + bytes(response.encode(version=version))


def received(whole: bytes, version: int, sizes: Iterable[int]) -> tuple[memoryview, int]:
    """The buffer as a connection fills it: dropped bytes are left as they were; and how many were dropped."""
    buffer, skipper = memoryview(bytearray(b"\xee" * len(whole))), RecordSkipper(version)
    filled = dropped = 0
    for size in sizes:
        to = skipper.skip_to(buffer, filled)
        assert to >= filled, "the skipper goes back"
        if to > filled:
            count = min(size, to - filled, len(whole) - filled)
            dropped += count
        else:
            count = min(size, skipper.next_size, len(whole) - filled)
            assert count > 0, "the skipper stands still"
            buffer[filled : filled + count] = whole[filled : filled + count]
        filled += count
        if filled == len(whole):
            return buffer, dropped
    raise AssertionError("the sizes ended before the response")
