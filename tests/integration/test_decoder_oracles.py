"""Our decoders against Kafka's own: the same log read by txnwatch, DumpLogSegments and the console consumer.

One broker lives through transaction.version 0, 1 and 2 and a restart (support/history.py); what it wrote is decoded
three ways, and every field of every record has to agree.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from support.history import FIRST_FEATURES, PROPERTIES, History, make_history
from support.kafka_tools import (
    CODECS,
    DumpedBatch,
    Json,
    as_kafka_json,
    as_key,
    as_printed,
    dump_log,
    formatted_transaction_log,
)
from support.raw_log import RawBatch, read_log
from support.servers import Clusters, connect
from txnwatch.state.model.facts import TransactionalIdGone, TransactionSeen
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.log.partition_fold import Episode, PartitionFold
from txnwatch.streaming.log.transaction_fold import TransactionFold
from txnwatch.streaming.wire.internal_topics import TransactionLogValue, decode_key, decode_value
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

LOGGED = [state for state in TransactionState if state.id <= TransactionState.COMPLETE_ABORT.id]
NAME = "decoder-oracles"
Decoded = tuple[int, int, str | None, TransactionLogValue | None]


@dataclass(frozen=True)
class Logs:
    """The history as txnwatch reads it and as DumpLogSegments prints it."""

    history: History
    ours: dict[TopicPartition, list[RawBatch]]
    dumped: dict[TopicPartition, list[DumpedBatch]]

    def decoded(self, partition: TopicPartition) -> list[Decoded]:
        """Offset, timestamp, transactional id and value of each record of the coordinator's log."""
        return [
            (
                record.offset,
                record.timestamp,
                decode_key(record.key) if record.key is not None else None,
                decode_value(record.value) if record.value is not None else None,
            )
            for batch in self.ours[partition]
            for record in batch.records
        ]

    @property
    def values(self) -> list[TransactionLogValue]:
        """Every value of the coordinator's log."""
        found = (value for partition in self.history.log for *_, value in self.decoded(partition))
        return [value for value in found if value is not None]


@pytest.fixture(scope="module")
def broker(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    directory = tmp_path_factory.mktemp(NAME)
    yield clusters.start(NAME, lambda: EmbeddedKafka(directory, properties=PROPERTIES, features=FIRST_FEATURES))
    clusters.end(NAME)


@pytest.fixture(scope="module")
def logs(broker: EmbeddedKafka) -> Logs:
    history = make_history(broker)
    data = [*history.data, history.offsets]
    with contextlib.closing(connect(broker)) as cluster:
        ours = {partition: read_log(cluster, partition) for partition in (*data, *history.log)}
    dumped = {**dump_log(broker, data), **dump_log(broker, history.log, transaction_log=True)}
    return Logs(history, ours, dumped)


def test_the_history_has_every_state_in_both_versions_and_all_that_is_rare(logs: Logs) -> None:
    assert {(value.version, value.state) for value in logs.values} == {(v, state) for v in (0, 1) for state in LOGGED}
    assert {value.client_transaction_version for value in logs.values} == {0, 2}
    assert any(value.next_producer_id is not None for value in logs.values), "a rotation at the end of a transaction"
    assert any(value.producer_id != value.previous_producer_id for value in logs.values if value.version)
    assert any(value.state is TransactionState.PREPARE_ABORT and not value.partitions for value in logs.values)
    assert any(value is None for partition in logs.history.log for *_, value in logs.decoded(partition))
    markers = [batch.marker for partition in logs.history.data for batch in logs.ours[partition] if batch.marker]
    assert len({marker.type for marker in markers}) == 2
    assert len({marker.coordinator_epoch for marker in markers}) == 2, "the restart raised the coordinator's epoch"
    codecs = {batch.fields["compresscodec"] for partition in logs.history.data for batch in logs.dumped[partition]}
    assert codecs == set(CODECS)


def test_our_reading_of_the_coordinators_log_is_that_of_dump_log_segments(logs: Logs) -> None:
    for partition in logs.history.log:
        printed = [
            (int(record["offset"]), int(record["CreateTime"]), record["key"], record["value"])
            for batch in logs.dumped[partition]
            for record in batch.records
        ]
        assert [
            (offset, timestamp, as_key(name), as_kafka_json(value) if value is not None else None)
            for offset, timestamp, name, value in logs.decoded(partition)
        ] == printed


def test_our_reading_of_the_coordinators_log_is_that_of_the_console_consumer(logs: Logs, broker: EmbeddedKafka) -> None:
    ours = [
        (as_key(name), as_kafka_json(value) if value is not None else None)
        for partition in logs.history.log
        for _, _, name, value in logs.decoded(partition)
    ]
    printed = formatted_transaction_log(broker, len(ours))
    assert len(printed) == len(ours)
    assert by_id(printed) == by_id(ours)


def test_every_field_of_every_batch_header_is_that_of_dump_log_segments(logs: Logs) -> None:
    for partition, ours in logs.ours.items():
        position = 0
        expected = []
        for batch in ours:
            expected.append(as_printed(batch, position))
            position += len(batch.encoded)
        assert expected == [batch.fields for batch in logs.dumped[partition]], partition


def test_every_marker_is_that_of_dump_log_segments(logs: Logs) -> None:
    for partition in (*logs.history.data, logs.history.offsets):
        ours = [
            (batch.header.base_offset, batch.marker.type.name, batch.marker.coordinator_epoch)
            for batch in logs.ours[partition]
            if batch.marker is not None
        ]
        printed = [
            (int(record["offset"]), record["endTxnMarker"], int(record["coordinatorEpoch"]))
            for batch in logs.dumped[partition]
            for record in batch.records
            if "endTxnMarker" in record
        ]
        assert ours == printed
        assert ours, f"{partition} has markers"


def test_the_fold_finds_the_transactions_that_the_dump_shows(logs: Logs) -> None:
    for partition in (*logs.history.data, logs.history.offsets):
        ours = logs.ours[partition]
        fold = PartitionFold(0, ours[-1].header.last_offset + 1, keep_episodes=True)
        fold.feed(b"".join(batch.encoded for batch in ours))
        assert fold.is_done
        assert [as_episode(found) for found in fold.episodes] == dumped_episodes(logs.dumped[partition])
        left_open = [fact.producer_id for fact in fold.facts(partition, "", 0) if fact.open_offset is not None]
        assert left_open == [], "every transaction of the history has ended"


def test_the_folded_view_of_a_producer_id_is_its_last_record(logs: Logs) -> None:
    for partition in logs.history.log:
        ours = logs.ours[partition]
        fold = TransactionFold(partition, 0, ours[-1].header.last_offset + 1)
        fold.feed(b"".join(batch.encoded for batch in ours))
        facts = list(fold.facts())
        printed = [record for batch in logs.dumped[partition] for record in batch.records]
        last = {name_of(record): record for record in printed}
        views = {
            fact.view.transactional_id: (fact.view.state, fact.producer_id, fact.view.log_offset)
            for fact in facts
            if isinstance(fact, TransactionSeen) and fact.view.superseded_by is None
        }
        gone = {fact.transactional_id: fact.log_offset for fact in facts if isinstance(fact, TransactionalIdGone)}
        assert gone == {name: int(record["offset"]) for name, record in last.items() if record["value"] is None}
        assert {name: view for name, view in views.items() if name not in gone} == {
            name: (
                record["value"]["data"]["transactionStatus"],
                record["value"]["data"]["producerId"],
                int(record["offset"]),
            )
            for name, record in last.items()
            if record["value"] is not None
        }


def name_of(record: dict[str, Any]) -> str:
    return str(record["key"]["data"]["transactionalId"])


def by_id(pairs: list[tuple[Json, Json | None]]) -> dict[str, list[Json | None]]:
    found: dict[str, list[Json | None]] = defaultdict(list)
    for key, value in pairs:
        assert key == as_key(key["data"]["transactionalId"])
        found[key["data"]["transactionalId"]].append(value)
    return found


def as_episode(found: Episode) -> tuple[int, int, int, int, str]:
    marker = "COMMIT" if found.marker.commit else "ABORT"
    return found.producer_id, found.start_offset, found.last_offset, found.marker.offset, marker


def dumped_episodes(batches: list[DumpedBatch]) -> list[tuple[int, int, int, int, str]]:
    """Producer id, first and last offset, marker's offset and type of every transaction, in the order of markers."""
    is_open: dict[str, tuple[int, int]] = {}
    ended = []
    for batch in batches:
        fields, producer_id = batch.fields, batch.fields["producerId"]
        if fields["isControl"] == "true":
            first, last = is_open.pop(producer_id)
            marker = batch.records[0]["endTxnMarker"]
            ended.append((int(producer_id), first, last, int(fields["baseOffset"]), marker))
        elif fields["isTransactional"] == "true":
            first, _ = is_open.get(producer_id, (int(fields["baseOffset"]), -1))
            is_open[producer_id] = (first, int(fields["lastOffset"]))
    assert is_open == {}
    return ended
