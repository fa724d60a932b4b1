"""Decoders of the answers of brokers, from the bytes to the typed values that the core gets."""

from __future__ import annotations

import sys
from itertools import repeat
from unittest import mock

from fuzz import broker_answers
from fuzz.answers import AnsweringCluster, on_cluster, packed
from fuzz.target import Target
from support.batches import a_batch, a_marker
from support.fetch_responses import a_fetch_response, header_of, received
from txnwatch.state.model.errors import BrokerError, WireError
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.admin.groups import ClusterGroups
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.wire import fetch_response
from txnwatch.streaming.wire.fetch_response import decode_fetch_response
from txnwatch.streaming.wire.record_batch import end_of_entry, walk

_ORDERS = TopicPartition("orders", 0)
_FETCH_VERSIONS = (4, 5, 11, 12, 13)


def _read(cluster: AnsweringCluster) -> None:
    """A partition that is asked about has an answer or a problem, and no other partition has one."""
    assert ClusterAdmin(cluster).read_partitions([_ORDERS]).keys() == {_ORDERS}


def _describe(cluster: AnsweringCluster) -> None:
    assert ClusterAdmin(cluster).describe_transactions(["app"]).keys() == {"app"}


def _groups(cluster: AnsweringCluster) -> None:
    found = ClusterGroups(cluster).committed_offsets([_ORDERS])
    assert found.offsets.keys() <= {_ORDERS}


def _version_and_body(data: bytes) -> tuple[int, bytes]:
    """The first byte of an input chooses the version of the response."""
    return _FETCH_VERSIONS[(data[:1] or b"\0")[0] % len(_FETCH_VERSIONS)], data[1:]


def _fetch(data: bytes) -> None:
    version, body = _version_and_body(data)
    decode_fetch_response(memoryview(body), version)


def _read_of(whole: memoryview, version: int) -> list[object]:
    """What a fold reads of an answer: headers of batches, and control batches with their content."""
    found: list[object] = []
    for data in decode_fetch_response(whole, version).partitions:
        found.append((data.topic, data.partition, data.error_code, len(data.records)))
        try:
            for at, header in walk(data.records):
                content = bytes(data.records[at : end_of_entry(data.records, at)]) if header.is_control else b""
                found.append((at, header, content))
        except WireError as exc:
            found.append(str(exc))
    return found


def _skipped(data: bytes) -> None:
    """An answer of which bytes were dropped reads as the whole answer does."""
    version, body = _version_and_body(data)
    header = header_of(version)
    with mock.patch.multiple(fetch_response, AT_A_TIME=40, AFTER_A_SKIP=70, _WORTH_A_CALL=8):
        buffer, _ = received(header + body, version, repeat(sys.maxsize))
    expected = _read_of(memoryview(body), version)
    assert _read_of(buffer[len(header) :], version) == expected, "dropped bytes were needed"


def _fetch_input(number: int, *records: bytes) -> bytes:
    version = _FETCH_VERSIONS[number]
    return bytes([number]) + a_fetch_response(version, *records)[len(header_of(version)) :]


_FETCHES = [_fetch_input(number, a_batch(0) + a_marker(1)) for number in range(len(_FETCH_VERSIONS))]
_LARGE = _fetch_input(2, a_batch(0, count=40) + a_marker(40) + a_batch(41, count=30))

TARGETS = [
    Target("fetch", "a Fetch answer", _fetch, (WireError,), _FETCHES),
    Target("skipped_fetch", "a Fetch answer, read without its records", _skipped, (WireError,), [*_FETCHES, _LARGE]),
    Target(
        "metadata",
        "a Metadata answer",
        on_cluster(lambda cluster: cluster.refresh(["orders"])),
        (BrokerError,),
        [packed([broker_answers.metadata()])],
    ),
    Target(
        "partition_reading",
        "answers to Metadata, ListOffsets and DescribeProducers",
        on_cluster(_read),
        (),
        [
            packed(
                [
                    broker_answers.metadata(),
                    broker_answers.offsets(),
                    broker_answers.producers(),
                    *[broker_answers.offsets()] * 3,
                ]
            )
        ],
    ),
    Target(
        "description",
        "answers to FindCoordinator and DescribeTransactions",
        on_cluster(_describe),
        (),
        [
            packed(
                [
                    broker_answers.metadata(),
                    broker_answers.coordinator(),
                    broker_answers.descriptions(),
                    broker_answers.metadata(),
                ]
            )
        ],
    ),
    Target(
        "listing",
        "answers to ListTransactions",
        on_cluster(lambda cluster: ClusterAdmin(cluster).list_transactions([7])),
        (),
        [
            packed(
                [
                    broker_answers.metadata(),
                    broker_answers.unused_id(),
                    broker_answers.listing(),
                    broker_answers.metadata(),
                    broker_answers.unused_id(),
                ]
            )
        ],
    ),
    Target(
        "groups",
        "answers to ListGroups and OffsetFetch",
        on_cluster(_groups),
        (),
        [packed([broker_answers.metadata(), broker_answers.group_list(), broker_answers.group_offsets()])],
    ),
]
