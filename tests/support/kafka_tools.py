"""Kafka's own decoders, as oracles: DumpLogSegments on the brokers' files, and the console consumer's formatter."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.raw_log import RawBatch
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.streaming.wire.internal_topics import TransactionLogValue
from txnwatch_demo.embedded.jars import KAFKA_VERSION
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_TOOLS = "org.apache.kafka.tools"
_FORMATTER = f"{_TOOLS}.consumer.TransactionLogMessageFormatter"
_FIELD = re.compile(r"(\w+): (\S+)")
_KEY_AND_PAYLOAD = re.compile(r" key: (?P<key>.*) payload: (?P<payload>.*)$")
_DELETED = "<DELETE>"
Json = dict[str, Any]


@dataclass(slots=True)
class DumpedBatch:
    """One batch as DumpLogSegments prints it: its fields as text, and those of each record."""

    fields: dict[str, str]
    records: list[dict[str, Any]] = field(default_factory=list)


def dump_log(
    kafka: EmbeddedKafka, partitions: Sequence[TopicPartition], *, transaction_log: bool = False
) -> dict[TopicPartition, list[DumpedBatch]]:
    """Every batch of the partitions' segment files on node 1; all in one start of a JVM.

    Records of the transaction log have `key` and `value` as JSON; `value` None is a tombstone.
    """
    files = [
        str(path)
        for partition in partitions
        for path in sorted((kafka.log_directory(1) / str(partition)).glob("*.log"))
    ]
    how = "--transaction-log-decoder" if transaction_log else "--deep-iteration"
    done = kafka.tool(f"{_TOOLS}.DumpLogSegments", how, "--files", ",".join(files))
    assert done.returncode == 0, done.stderr
    dumped: dict[TopicPartition, list[DumpedBatch]] = {partition: [] for partition in partitions}
    batches: list[DumpedBatch] = []
    for line in done.stdout.splitlines():
        if line.startswith("Dumping "):
            batches = dumped[TopicPartition.parse(Path(line.removeprefix("Dumping ")).parent.name)]
        elif line.startswith("baseOffset: "):
            batches.append(DumpedBatch(dict(_FIELD.findall(line))))
        elif line.startswith("| offset: "):
            batches[-1].records.append(_record(line))
    return dumped


def _record(line: str) -> dict[str, Any]:
    found = _KEY_AND_PAYLOAD.search(line)
    fields: dict[str, Any] = dict(_FIELD.findall(line[: found.start()] if found else line))
    if found is not None:
        fields["key"] = _versioned(json.loads(found["key"]), "type")
        fields["value"] = None if found["payload"] == _DELETED else _versioned(json.loads(found["payload"]), "version")
    return fields


def _versioned(found: Json, number: str) -> Json:
    return {**found, number: int(found[number])}


def formatted_transaction_log(kafka: EmbeddedKafka, count: int) -> list[tuple[Json, Json | None]]:
    """Keys and values of `__transaction_state` as the console consumer prints them; each partition in order."""
    done = kafka.tool(
        f"{_TOOLS}.consumer.ConsoleConsumer",
        *("--bootstrap-server", kafka.bootstrap_servers, "--topic", TRANSACTION_STATE_TOPIC, "--from-beginning"),
        *("--formatter", _FORMATTER, "--max-messages", str(count), "--timeout-ms", "20000"),
    )
    return [(one["key"], one["value"]) for one in _concatenated(done.stdout)]


def _concatenated(text: str) -> Iterator[Json]:
    decoder, position = json.JSONDecoder(), 0
    while (position := text.find("{", position)) >= 0:
        found, position = decoder.raw_decode(text, position)
        yield found


def as_kafka_json(value: TransactionLogValue, version: str = KAFKA_VERSION) -> Json:
    """A value as the tools of a version write it: tagged fields only where they are not the default.

    Since 4.4 they write the name of the state, before that its number.
    """
    has_names = tuple(map(int, version.split(".")[:2])) >= (4, 4)
    data: Json = {
        "producerId": value.producer_id,
        "producerEpoch": value.producer_epoch,
        "transactionTimeoutMs": value.transaction_timeout_ms,
        "transactionStatus": str(value.state) if has_names else value.state.id,
        "transactionPartitions": None
        if value.partitions is None
        else [{"topic": topic, "partitionIds": list(numbers)} for topic, numbers in value.partitions],
        "transactionLastUpdateTimestampMs": value.last_update_ms,
        "transactionStartTimestampMs": -1 if value.start_ms is None else value.start_ms,
    }
    tagged = {
        "previousProducerId": (value.previous_producer_id, None),
        "nextProducerId": (value.next_producer_id, None),
        "clientTransactionVersion": (value.client_transaction_version, 0),
        "nextProducerEpoch": (value.next_producer_epoch, None),
    }
    data.update({name: found for name, (found, default) in tagged.items() if found != default})
    return {"version": value.version, "data": data}


def as_key(name: str | None) -> Json:
    """A transactional id as the key of its records."""
    return {"type": 0, "data": {"transactionalId": name}}


def as_printed(batch: RawBatch, position: int) -> dict[str, str]:
    """A batch at a position of its file, as DumpLogSegments prints it."""
    header = batch.header
    last_sequence = -1 if header.base_sequence < 0 else header.base_sequence + header.last_offset_delta
    return {
        "baseOffset": str(header.base_offset),
        "lastOffset": str(header.last_offset),
        "count": str(header.record_count),
        "baseSequence": str(header.base_sequence),
        "lastSequence": str(last_sequence),
        "producerId": str(header.producer_id),
        "producerEpoch": str(header.producer_epoch),
        "partitionLeaderEpoch": str(header.leader_epoch),
        "isTransactional": str(header.is_transactional).lower(),
        "isControl": str(header.is_control).lower(),
        "deleteHorizonMs": "OptionalLong.empty",
        "position": str(position),
        "CreateTime": str(header.max_timestamp),
        "size": str(len(batch.encoded)),
        "magic": str(header.magic),
        "compresscodec": CODECS[header.compression],
        "crc": str(header.crc),
        "isvalid": "true",
    }


def upgrade_transaction_version(kafka: EmbeddedKafka, level: int) -> None:
    """Raises the cluster's transaction.version."""
    done = kafka.tool(
        f"{_TOOLS}.FeatureCommand",
        *("--bootstrap-server", kafka.bootstrap_servers, "upgrade", "--feature", f"transaction.version={level}"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
