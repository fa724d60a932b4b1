"""What `kafka-dump-log.sh` prints of a segment without `--transaction-log-decoder`: its batches, markers and groups.

The tool prints one line for each batch (`baseOffset: ...`), below `Dumping` with the path of the file. With
`--deep-iteration`, `--print-data-log` or a decoder, the records follow (`| offset: ...`): that of a control batch has
the kind of its marker, and `--offsets-decoder` prints the groups. Of a `.snapshot` it prints a line for each producer.

Law: the text may be from anybody. A line with a number that does not fit is a problem with its line, and the lines
after it are still read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from txnwatch.state.model.values import (
    CoordinatorEpoch,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
)
from txnwatch.streaming.wire.primitives import present
from txnwatch.streaming.wire.snapshot_file import SnapshotProducer

_FIELD = re.compile(r"(\w{1,30}): (\S{1,60})")
_BATCH, _RECORD, _FILE = "baseOffset: ", "| offset: ", "Dumping "
_PRODUCER = re.compile(r"producerId: \d+ producerEpoch: ")
_MARKER = re.compile(r" endTxnMarker: (COMMIT|ABORT) coordinatorEpoch: (-?\d{1,10})")
_GROUP_KEY = re.compile(r' key: (\{"type":"[01]","data":\{"group":.*?\}\}) payload: ')
_FOLDER = re.compile(r"(?P<topic>[\w.-]+)-(?P<number>\d{1,9})(?:\.[\w-]+-(?:delete|future|stray))?")
_NO_SEQUENCE = -1
_LONGEST_KEY = 1 << 12  # a group and a topic, in JSON


@dataclass(frozen=True, slots=True)
class PrintedBatch:
    """One batch.

    Attributes:
        partition: by the folder of the file; None if the text does not have it.
        commit: of a marker, whether it commits; None if the text has no records, or it is no marker.
        groups: the groups whose offsets the batch has; empty if the text has no records.
    """

    line: int
    partition: TopicPartition | None
    base_offset: Offset
    last_offset: Offset
    is_transactional: bool
    is_control: bool
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    base_sequence: int
    leader_epoch: LeaderEpoch
    max_timestamp_ms: TimestampMs
    records: int
    compression: str
    size: int
    commit: bool | None = None
    coordinator_epoch: CoordinatorEpoch | None = None
    groups: tuple[str, ...] = ()


class PrintedProducer(NamedTuple):
    """One producer of a snapshot; the partition is None if the text does not have it."""

    partition: TopicPartition | None
    producer: SnapshotProducer


class BadLine(NamedTuple):
    """A line that has a number that does not fit, or lacks a field."""

    line: int
    why: str


def is_dump_of_kafka(data: bytes) -> bool:
    """Whether the content begins as the output of kafka-dump-log.sh does, also if it has bytes that are no text."""
    return (
        re.match(rb"\s*(?:Dumping \S|(?:Log )?[Ss]tarting offset: \d|baseOffset: \d|\| offset: \d)", data) is not None
    )


def dumped_files(text: str) -> list[str]:
    """The paths of the files that are dumped."""
    return [line.removeprefix(_FILE).strip() for line in text.splitlines() if line.startswith(_FILE)]


def printed_batches(text: str) -> Iterator[PrintedBatch | BadLine]:
    """The batches of a dump, in its order."""
    partition: TopicPartition | None = None
    batch: PrintedBatch | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith((_FILE, _BATCH)) and batch is not None:
            yield batch
            batch = None
        if line.startswith(_FILE):
            partition = _partition_of(line)
        elif line.startswith(_BATCH):
            try:
                batch = _batch(dict(_FIELD.findall(line)), number, partition)
            except (ValueError, KeyError) as exc:
                yield BadLine(number, f"a batch with a field that is missing or does not fit ({exc})")
        elif line.startswith(_RECORD) and batch is not None:
            batch = _with_record(batch, line)
    if batch is not None:
        yield batch


def printed_producers(text: str) -> Iterator[PrintedProducer | BadLine]:
    """The producers in the dump of a snapshot."""
    partition: TopicPartition | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(_FILE):
            partition = _partition_of(line)
        elif _PRODUCER.match(line):
            try:
                yield _producer(dict(_FIELD.findall(line)), partition)
            except (ValueError, KeyError) as exc:
                yield BadLine(number, f"a producer with a field that is missing or does not fit ({exc})")


class OpenInDump(NamedTuple):
    """A transaction for which a dump has data, and no marker behind it."""

    partition: TopicPartition | None
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    start_offset: Offset
    groups: tuple[str, ...]


def open_in_dump(batches: Iterable[PrintedBatch]) -> list[OpenInDump]:
    """The transactions that are open at the end of the dump, the oldest first; a control batch ends those before it."""
    transactions: dict[tuple[TopicPartition | None, ProducerId], OpenInDump] = {}
    for batch in batches:
        key = batch.partition, batch.producer_id
        if batch.is_control:
            transactions.pop(key, None)
        elif batch.is_transactional and batch.producer_id >= 0:
            before = transactions.get(key)
            start = before.start_offset if before is not None else batch.base_offset
            groups = (*(before.groups if before is not None else ()), *batch.groups)
            transactions[key] = OpenInDump(*key, batch.producer_epoch, start, tuple(dict.fromkeys(groups)))
    return sorted(transactions.values(), key=lambda transaction: (str(transaction.partition), transaction.start_offset))


def _partition_of(line: str) -> TopicPartition | None:
    folder = line.replace("\\", "/").rpartition("/")[0].rpartition("/")[2]
    match = _FOLDER.fullmatch(folder)
    return TopicPartition(match["topic"], int(match["number"])) if match is not None else None


def _batch(fields: dict[str, str], line: int, partition: TopicPartition | None) -> PrintedBatch:
    return PrintedBatch(
        line=line,
        partition=partition,
        base_offset=Offset(_number(fields["baseOffset"])),
        last_offset=Offset(_number(fields["lastOffset"])),
        is_transactional=fields["isTransactional"] == "true",
        is_control=fields["isControl"] == "true",
        producer_id=ProducerId(_number(fields["producerId"])),
        producer_epoch=ProducerEpoch(_number(fields["producerEpoch"])),
        base_sequence=_number(fields.get("baseSequence", str(_NO_SEQUENCE))),
        leader_epoch=LeaderEpoch(_number(fields["partitionLeaderEpoch"])),
        max_timestamp_ms=TimestampMs(_number(fields.get("CreateTime", fields.get("LogAppendTime", "-1")))),
        records=_number(fields.get("count", "0")),
        compression=fields.get("compresscodec", "").lower(),
        size=_number(fields.get("size", "0")),
    )


def _with_record(batch: PrintedBatch, line: str) -> PrintedBatch:
    marker = _MARKER.search(line) if batch.is_control else None
    if marker is not None:
        return replace(batch, commit=marker[1] == "COMMIT", coordinator_epoch=CoordinatorEpoch(_number(marker[2])))
    key = _GROUP_KEY.search(line[:_LONGEST_KEY])
    if key is None:
        return batch
    try:
        group = json.loads(key[1])["data"]["group"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return batch
    return replace(batch, groups=tuple(dict.fromkeys((*batch.groups, str(group)))))


def _producer(fields: dict[str, str], partition: TopicPartition | None) -> PrintedProducer:
    start = re.search(r"\d+", fields["currentTxnFirstOffset"])
    producer = SnapshotProducer(
        producer_id=ProducerId(_number(fields["producerId"])),
        producer_epoch=ProducerEpoch(_number(fields["producerEpoch"])),
        last_sequence=present(_number(fields.get("lastSequence", "-1"))),
        last_offset=present(Offset(_number(fields.get("lastOffset", "-1")))),
        last_timestamp_ms=present(TimestampMs(_number(fields["lastTimestamp"]))),
        coordinator_epoch=present(CoordinatorEpoch(_number(fields["coordinatorEpoch"]))),
        txn_start_offset=Offset(_number(start[0])) if start is not None else None,
    )
    return PrintedProducer(partition, producer)


def _number(text: str) -> int:
    if not re.fullmatch(r"-?\d{1,19}", text, re.ASCII):
        raise ValueError(f"expected a number, found {text[:40]!r}")
    return int(text)
