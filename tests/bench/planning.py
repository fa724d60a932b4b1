"""What a partition costs a micro-batch before anything is read: its offset, its plan, and both on their way.

Between the listed ends and the plan in a task, in one process, as the driver does it for each micro-batch: the next
offset, its JSON to the JVM and back, the plans, and their pickle. Listing is a row of its own: the requests to all
leaders are encoded and their answers decoded, but nothing is sent. This work is serial: no executor takes a part of it.
"""

from __future__ import annotations

import json
import pickle
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafka.protocol.consumer import ListOffsetsResponse
from pyspark.sql.streaming.datasource import ReadAllAvailable

from bench.results import Point, Row
from support.fake_brokers import Speaker
from txnwatch.state.model.ports import ListedOffset
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, BarrierNumber, BrokerId, TopicPartition
from txnwatch.streaming.client.cluster import LATEST, READ_UNCOMMITTED, RequestOf, list_offsets
from txnwatch.streaming.client.connection import decode_answer
from txnwatch.streaming.client.metadata import Metadata, PartitionInfo, TopicInfo
from txnwatch.streaming.source.census_schedule import Census
from txnwatch.streaming.source.datasource import TransactionsStreamReader
from txnwatch.streaming.source.offsets import SourceOffset
from txnwatch.streaming.source.planner import Limits, ListedPartition, Listing, plan

BATCHES, SETTLING = 9, 2
SIZES = (500, 5_000, 50_000)
OF_A_TOPIC, BROKERS, LOG_PARTITIONS = 50, 100, 50
TOPIC_ID, CLUSTER_ID = "kQ0zgMvXRXOhhFkSbkEUrw", "MkU3OEVBNTcwNTJENDM2Qk"
START_MS, TRIGGER_MS = 1_700_000_000_000, 500
OPTIONS = {"kafka.bootstrap.servers": "none:1", "subscribePattern": ".*"}


class GrowingLister:
    """The ends of a cluster whose partitions all grow, or none: what the lister would have listed."""

    def __init__(self, partitions: int, growth: int) -> None:
        data = [TopicPartition(f"topic-{number // OF_A_TOPIC}", number % OF_A_TOPIC) for number in range(partitions)]
        self._all = [*data, *(TopicPartition(TRANSACTION_STATE_TOPIC, number) for number in range(LOG_PARTITIONS))]
        self._growth = growth

    def next_offset(self, previous: SourceOffset, *, limited: bool) -> SourceOffset:
        """The offset one barrier later."""
        del limited
        number = previous.barrier + 1
        now_ms, end = START_MS + TRIGGER_MS * number, 10**9 + self._growth * number
        start = None if previous.positions else end
        answers = {
            partition: ListedPartition(TOPIC_ID, ListedOffset(end, 12, place % BROKERS), start)
            for place, partition in enumerate(self._all)
        }
        return plan(previous, Listing(CLUSTER_ID, answers, now_ms, now_ms, 10_000), Limits(), {})

    def census_of(self, barrier: BarrierNumber) -> Census | None:
        """No census."""
        del barrier

    def take_throttled(self) -> dict[str, int]:
        """Nothing was throttled."""
        return {}


class EncodingBrokers:
    """Brokers that answer ListOffsets as soon as the request is encoded; the answer is decoded like a real one."""

    timeout_s = 1.0

    def __init__(self) -> None:
        self._answers: dict[BrokerId, bytes] = {}

    def ask(self, requests: Mapping[BrokerId, RequestOf], timeout_s: float) -> dict[BrokerId, Any]:
        """The answer of each broker."""
        del timeout_s
        found = {}
        for node, build in requests.items():
            request = build(Speaker())  # type: ignore[arg-type]
            request.with_header(correlation_id=1, client_id="bench")
            request.encode(framed=True, header=True)
            if node not in self._answers:
                self._answers[node] = _answer_to(request)
            found[node] = decode_answer(request.header, self._answers[node])
        return found


def _answer_to(request: Any) -> bytes:
    """The body of the answer to a ListOffsets request."""
    topic_of, version = ListOffsetsResponse.ListOffsetsTopicResponse, request.header.request_api_version
    topics = [
        topic_of(
            version=version,
            name=topic.name,
            partitions=[
                topic_of.ListOffsetsPartitionResponse(
                    version=version,
                    partition_index=partition.partition_index,
                    error_code=0,
                    timestamp=-1,
                    offset=10**9,
                    leader_epoch=12,
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return bytes(ListOffsetsResponse(version=version, throttle_time_ms=0, topics=topics).encode())


def run(directory: Path, rows: list[Row]) -> None:
    """Each size: the plan with partitions that all grow, and with none that grows; and the listing before it."""
    del directory
    points = [_measure_listing(size) for size in SIZES]
    rows.append(Row("planning", "listing", "partitions", "the smallest size", _with_ratios(points)))
    for name, growth in (("every partition has grown", 10), ("no partition has grown", 0)):
        points = [_measure(size, growth) for size in SIZES]
        rows.append(Row("planning", name, "partitions", "the smallest size", _with_ratios(points)))


def _with_ratios(points: list[Point]) -> list[Point]:
    first = points[0].cpu_s or 1.0
    return [Point(one.size, one.wall_s, one.cpu_s, (one.cpu_s or 0.0) / first, one.figures) for one in points]


def _measure(partitions: int, growth: int) -> Point:
    reader = TransactionsStreamReader(OPTIONS)
    reader.plans._lister = GrowingLister(partitions, growth)  # type: ignore[assignment]
    text, spent, walls, size = json.dumps(reader.initialOffset()), [], [], 0
    for _ in range(BATCHES):
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        text, size = _batch(reader, text)
        spent.append(time.process_time() - cpu_s)
        walls.append(time.perf_counter() - wall_s)
    median_s = statistics.median(spent[SETTLING:])
    figures = {"bytes of plans": float(size), "bytes of the offset": float(len(text))}
    return Point(partitions, statistics.median(walls[SETTLING:]), median_s, None, figures)


def _measure_listing(partitions: int) -> Point:
    topics = {
        name: TopicInfo(
            name, TOPIC_ID, {one: PartitionInfo(BrokerId((first + one) % BROKERS), 12) for one in range(OF_A_TOPIC)}
        )
        for first in range(0, partitions, OF_A_TOPIC)
        for name in [f"topic-{first // OF_A_TOPIC}"]
    }
    known, brokers = Metadata(CLUSTER_ID, {}, topics), EncodingBrokers()
    asked = [TopicPartition(topic.name, number) for topic in topics.values() for number in topic.partitions]
    spent, walls = [], []
    for _ in range(BATCHES):
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        found = list_offsets(brokers, known, asked, timestamp=LATEST, isolation=READ_UNCOMMITTED)
        spent.append(time.process_time() - cpu_s)
        walls.append(time.perf_counter() - wall_s)
        assert len(found) == partitions
        assert all(one.offset == 10**9 for one in found.values())
    return Point(partitions, statistics.median(walls[SETTLING:]), statistics.median(spent[SETTLING:]))


def _batch(reader: TransactionsStreamReader, text: str) -> tuple[str, int]:
    """One micro-batch as Spark asks for it: each offset crosses to the JVM and back as text."""
    found: dict[str, Any] = reader.latestOffset(json.loads(text), ReadAllAvailable())
    end = json.dumps(found)
    plans = pickle.dumps(reader.partitions(json.loads(text), json.loads(end)))
    pickle.loads(plans)
    return end, len(plans)
