"""Fetch responses of every version we can decode, against kafka-python's generated encoder."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import pytest
from kafka.protocol.consumer import FetchResponse

from support.batches import a_batch
from txnwatch.state.model.errors import WireError
from txnwatch.streaming.wire.fetch_response import (
    HIGHEST_VERSION,
    Divergence,
    FetchAnswer,
    PartitionData,
    decode_fetch_response,
)

THROTTLED_MS = 12
VERSIONS = range(4, HIGHEST_VERSION + 1)
Topic = FetchResponse.FetchableTopicResponse
Partition = Topic.PartitionData


@dataclass(frozen=True)
class PartitionReply:
    """The answer of a leader about one partition; versions differ in how much of it they carry."""

    partition: int
    records: bytes | None = None
    error_code: int = 0
    high_watermark: int = 900
    last_stable_offset: int = 800
    log_start_offset: int = 100
    diverging: tuple[int, int] | None = None
    leader: tuple[int, int] | None = None
    aborted: tuple[tuple[int, int], ...] | None = None
    preferred_replica: int = -1

    def encodable(self) -> object:
        tags: dict[str, object] = {}
        if self.diverging is not None:
            tags["diverging_epoch"] = Partition.EpochEndOffset(epoch=self.diverging[0], end_offset=self.diverging[1])
        if self.leader is not None:
            tags["current_leader"] = Partition.LeaderIdAndEpoch(leader_id=self.leader[0], leader_epoch=self.leader[1])
        return Partition(
            partition_index=self.partition,
            error_code=self.error_code,
            high_watermark=self.high_watermark,
            last_stable_offset=self.last_stable_offset,
            log_start_offset=self.log_start_offset,
            aborted_transactions=self.aborted
            and [Partition.AbortedTransaction(producer_id=owner, first_offset=start) for owner, start in self.aborted],
            preferred_read_replica=self.preferred_replica,
            records=self.records,
            **tags,
        )

    def expected(self, topic: str, version: int) -> PartitionData:
        return PartitionData(
            topic=IDS[topic].bytes if version >= 13 else topic,
            partition=self.partition,
            error_code=self.error_code,
            high_watermark=known(self.high_watermark),
            last_stable_offset=known(self.last_stable_offset),
            log_start_offset=known(self.log_start_offset) if version >= 5 else None,
            divergence=Divergence(*self.diverging) if self.diverging is not None and version >= 12 else None,
            records=memoryview(self.records or b""),
        )


def known(offset: int) -> int | None:
    return None if offset == -1 else offset


IDS = {name: uuid.uuid5(uuid.NAMESPACE_DNS, name) for name in ("orders", "zahlungen-ä", "x" * 249)}
REPLIES = {
    "orders": [
        PartitionReply(0, a_batch(0) + a_batch(1)),
        PartitionReply(1, b""),
        PartitionReply(2, None, high_watermark=2**62, last_stable_offset=2**61, log_start_offset=2**60),
        PartitionReply(300, a_batch(0, count=3), aborted=((7, 4), (2**40, 9)), preferred_replica=3),
    ],
    "zahlungen-ä": [
        PartitionReply(0, diverging=(5, 77)),
        PartitionReply(1, error_code=6, high_watermark=-1, last_stable_offset=-1, log_start_offset=-1, leader=(2, 9)),
        PartitionReply(2, a_batch(8), aborted=(), diverging=(0, 0), leader=(1, 3)),
    ],
    "x" * 249: [],
}


def encoded(replies: dict[str, list[PartitionReply]], version: int, *, error_code: int = 0) -> bytes:
    response = FetchResponse(
        version=version,
        throttle_time_ms=THROTTLED_MS,
        error_code=error_code,
        session_id=34,
        responses=[
            Topic(topic=name, topic_id=IDS[name], partitions=[part.encodable() for part in parts])
            for name, parts in replies.items()
        ],
    )
    return bytes(response.encode(version=version))


def decoded(body: bytes, version: int) -> FetchAnswer:
    return decode_fetch_response(memoryview(body), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_values_that_kafka_python_encodes_are_decoded(version: int) -> None:
    answer = decoded(encoded(REPLIES, version), version)
    assert (answer.throttle_ms, answer.error_code) == (THROTTLED_MS, 0)
    assert answer.partitions == [part.expected(name, version) for name, parts in REPLIES.items() for part in parts]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_truncation_is_a_wire_error(version: int) -> None:
    whole = encoded(REPLIES, version)
    for size in range(len(whole)):
        with pytest.raises(WireError):
            decoded(whole[:size], version)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_empty_response_has_no_partitions(version: int) -> None:
    assert decoded(encoded({}, version), version) == FetchAnswer(THROTTLED_MS, 0, [])


@pytest.mark.parametrize("version", VERSIONS)
def test_an_error_of_the_whole_request_is_returned_where_the_version_has_one(version: int) -> None:
    assert decoded(encoded({}, version, error_code=70), version).error_code == (70 if version >= 7 else 0)


@pytest.mark.parametrize("version", [4, 11, 12, 13])
def test_records_are_a_view_into_the_response(version: int) -> None:
    body = bytearray(encoded({"orders": [PartitionReply(0, b"abcd"), PartitionReply(1)]}, version))
    first, without = decode_fetch_response(memoryview(body), version).partitions
    at = body.index(b"abcd")
    body[at : at + 4] = b"WXYZ"
    assert (bytes(first.records), bytes(without.records)) == (b"WXYZ", b"")


@pytest.mark.parametrize("version", [12, 13])
def test_tags_of_later_brokers_are_skipped_wherever_they_stand(version: int) -> None:
    part = PartitionReply(0, b"abcd")
    body = encoded({"orders": [part]}, version)
    no_tags, unknown = b"\0", bytes.fromhex("02 63 03 abcdef 8001 00")
    assert body.endswith(3 * no_tags), "of the partition, the topic and the response"
    assert decoded(body[:-3] + 3 * unknown, version).partitions == [part.expected("orders", version)]


@pytest.mark.parametrize(
    ("version", "hostile", "field"),
    [
        pytest.param(4, "00000000 7fffffff", "topic", id="topics"),
        pytest.param(4, "00000000 00000001 0001 74 7fffffff", "partition index", id="partitions"),
        pytest.param(12, "00000000 0000 00000000 ffffffff0f", "topic", id="topics, flexible"),
        pytest.param(12, "00000000 0000 00000000 02 02 74 ffffffff0f", "partition index", id="partitions, flexible"),
        pytest.param(
            4,
            "00000000 00000001 0001 74 00000001" + "00" * 22 + "7fffffff",
            "aborted transaction",
            id="aborted transactions",
        ),
        pytest.param(
            4, "00000000 00000001 0001 74 00000001" + "00" * 22 + "ffffffff 7fffffff", "records", id="records"
        ),
    ],
)
def test_a_hostile_count_fails_at_the_first_thing_that_is_not_there(version: int, hostile: str, field: str) -> None:
    with pytest.raises(WireError, match=f"^{field} at byte"):
        decoded(bytes.fromhex(hostile), version)
