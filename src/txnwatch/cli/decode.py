"""`txnwatch decode`: records of `__transaction_state` and batch headers, from bytes, a segment file, or the cluster.

Of a data partition only batch headers and markers are shown; its records are never decoded.
"""

from __future__ import annotations

import argparse
import base64
import itertools
import mmap
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from txnwatch.cli.one_shot import (
    add_connection_flags,
    add_output_flags,
    add_partition_flags,
    ask,
    count,
    id64,
    kafka_text,
)
from txnwatch.cli.output import CommandAnswer, NotChecked, Time, write
from txnwatch.state.model.errors import ConfigError
from txnwatch.state.model.values import (
    FIRST_OFFSET,
    TRANSACTION_STATE_TOPIC,
    CoordinatorEpoch,
    DurationMs,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
)
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.coordinator_log import LogRecord, read_records, records_of
from txnwatch.streaming.log.lookups import BatchList, read_batches
from txnwatch.streaming.wire.primitives import present
from txnwatch.streaming.wire.record_batch import (
    LENGTH_OVERHEAD,
    LENGTH_POSITION,
    BatchHeader,
    EndTransactionMarker,
    end_of_whole_entries,
)
from txnwatch.streaming.wire.transaction_log import TransactionLogValue, decode_key, decode_value

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_EVERY_OFFSET = Offset(1 << 62)
_HEX = re.compile(r"(?:0x)?(?:[0-9a-fA-F]{2})*")


@dataclass(frozen=True, slots=True)
class LogRow:
    """One record of the coordinator's log. For a tombstone every field of the value is None."""

    partition: int | None
    offset: Offset | None
    timestamp_ms: Time | None
    transactional_id: str | None
    transaction_state: str | None
    producer_id: ProducerId | None
    producer_epoch: ProducerEpoch | None
    transaction_timeout_ms: DurationMs | None
    start_time_ms: Time | None
    last_update_time_ms: Time | None
    topic_partitions: tuple[str, ...] | None
    previous_producer_id: ProducerId | None
    next_producer_id: ProducerId | None
    client_transaction_version: int | None
    version: int | None


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One record batch. `kind` is data, transactional, COMMIT, ABORT or control."""

    base_offset: Offset
    last_offset: Offset
    kind: str
    producer_id: ProducerId | None
    producer_epoch: ProducerEpoch | None
    base_sequence: int | None
    coordinator_epoch: CoordinatorEpoch | None
    leader_epoch: LeaderEpoch | None
    max_timestamp_ms: Time | None
    records: int
    compression: str
    size: int


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse's private type
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "decode",
        help="decode records of __transaction_state, batch headers and markers",
        description="Decodes one of these: bytes (--value, --key), a segment file (--file), the records of a "
        "transactional id in the coordinators' log (--transactional-id), or the batches of a partition (--topic, "
        "--partition).",
    )
    parser.add_argument("--value", type=kafka_text, metavar="BYTES", help="a record's value, as hexadecimal or base64")
    parser.add_argument("--key", type=kafka_text, metavar="BYTES", help="a record's key, as hexadecimal or base64")
    parser.add_argument("--file", metavar="FILE", help="a .log segment file of a broker; - is standard input")
    parser.add_argument(
        "--transaction-log",
        action="store_true",
        help=f"--file is a segment of {TRANSACTION_STATE_TOPIC} (default: detected from the name of its folder)",
    )
    parser.add_argument(
        "--transactional-id", type=kafka_text, metavar="ID", help="the records of this id that the log still has"
    )
    add_partition_flags(parser, "the topic of the batches, with --partition", is_required=False)
    parser.add_argument("--offset", type=id64, help="begin at this offset (default: the start of the log)")
    parser.add_argument("--count", type=count, default=20, help="maximum number of rows (default: %(default)s)")
    add_connection_flags(parser, is_required=False)
    add_output_flags(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Decodes the one source that the flags select."""
    ways = {
        "--value/--key": parsed.value is not None or parsed.key is not None,
        "--file": parsed.file is not None,
        "--transactional-id": parsed.transactional_id is not None,
        "--topic with --partition": parsed.topic is not None and parsed.partition is not None,
    }
    chosen = [way for way, is_given in ways.items() if is_given]
    if len(chosen) != 1:
        raise ConfigError(f"expected one of {', '.join(ways)}; found {', '.join(chosen) or 'none'}")
    if chosen[0] == "--value/--key":
        return _show(LogRow, [_of_bytes(parsed.key, parsed.value)], parsed)
    if chosen[0] == "--file":
        return _file(parsed)
    if parsed.bootstrap_server is None:
        raise ConfigError(f"{chosen[0]}: expected --bootstrap-server as well, found none")
    return ask(parsed, lambda cluster: _from_cluster(cluster, parsed))


def _show(row_type: type, rows: list[Any], parsed: argparse.Namespace, missing: tuple[NotChecked, ...] = ()) -> int:
    answer = CommandAnswer("decode", "", row_type, rows, missing)
    write(answer, parsed.format, is_wide=parsed.wide)
    return answer.exit_code(fail_on_found=False)


def _of_bytes(key: str | None, value: str | None) -> LogRow:
    name = decode_key(bytes_of(key, "--key")) if key is not None else None
    if key is not None and name is None:
        raise ConfigError("--key: expected a key of the coordinators' log (type 0), found another type")
    found = decode_value(bytes_of(value, "--value")) if value is not None else None
    return _log_row(name, found)


def bytes_of(text: str, flag: str) -> bytes:
    r"""Bytes written as hexadecimal (with or without 0x, \x and blanks) or as base64.

    Raises:
        ConfigError: neither.
    """
    bare = re.sub(r"\\x|\s", "", text)
    if _HEX.fullmatch(bare):
        return bytes.fromhex(bare.removeprefix("0x"))
    try:
        return base64.b64decode(bare, validate=True)
    except ValueError as exc:
        raise ConfigError(f"{flag}: expected hexadecimal or base64, found {text[:40]!r} ({exc})") from exc


def _file(parsed: argparse.Namespace) -> int:
    buffer = _content(parsed.file)
    is_log = parsed.transaction_log or Path(parsed.file).absolute().parent.name.startswith(
        f"{TRANSACTION_STATE_TOPIC}-"
    )
    if is_log:
        folder = Path(parsed.file).absolute().parent.name.rpartition("-")[2]
        records = records_of(buffer, int(folder) if folder.isdigit() else None)
        wanted = (record for record in records if record.offset >= (parsed.offset or 0))
        rows: list[Any] = [_record_row(record) for record in itertools.islice(wanted, parsed.count)]
    else:
        batches = BatchList(parsed.offset or FIRST_OFFSET, _EVERY_OFFSET, parsed.count)
        batches.feed(buffer)
        rows = [_batch_row(*batch) for batch in batches.found]
    is_read_to_its_end = len(rows) < parsed.count
    missing = _cut_batch(buffer, parsed.file) if is_read_to_its_end else ()
    return _show(LogRow if is_log else BatchRow, rows, parsed, missing)


def _cut_batch(buffer: memoryview | bytes, name: str) -> tuple[NotChecked, ...]:
    """The last batch, if the end of the file cuts it."""
    at, size = end_of_whole_entries(buffer), len(buffer)
    if at == size:
        return ()
    which, there = "a batch", f"{size - at}"
    if size - at >= LENGTH_OVERHEAD:
        which = f"the batch at offset {int.from_bytes(buffer[at : at + LENGTH_POSITION])}"
        length = int.from_bytes(buffer[at + LENGTH_POSITION : at + LENGTH_OVERHEAD])
        there = f"{size - at} of {LENGTH_OVERHEAD + length}"
    why = (
        f"{which} is cut: {there} bytes are there. The last batch of a segment that is being written may be cut: "
        "decode it again. Otherwise copy the file again, or ask the cluster with --topic, --partition and --offset"
    )
    return (NotChecked(f"{'standard input' if name == '-' else name} from byte {at}", why),)


def _content(name: str) -> memoryview | bytes:
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        with Path(name).open("rb") as file:
            if not file.seek(0, 2):
                return b""
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as exc:
        raise ConfigError(f"--file {name}: {exc.strerror}") from exc


def _from_cluster(cluster: Cluster, parsed: argparse.Namespace) -> CommandAnswer:
    row_type: type = LogRow
    if parsed.transactional_id is not None:
        found, problem = read_records(cluster, parsed.transactional_id)
        rows: list[Any] = [_record_row(record) for record in found[-parsed.count :]]
        what = TRANSACTION_STATE_TOPIC
    else:
        partition = TopicPartition(parsed.topic, parsed.partition)
        batches, problem = read_batches(cluster, partition, parsed.offset, parsed.count)
        rows, row_type, what = [_batch_row(*batch) for batch in batches], BatchRow, str(partition)
    missing = () if problem is None else (NotChecked(what, problem),)
    return CommandAnswer("decode", cluster.known.cluster_id, row_type, rows, missing)


def _record_row(record: LogRecord) -> LogRow:
    row = _log_row(record.transactional_id, record.value)
    return replace(row, partition=record.partition, offset=record.offset, timestamp_ms=record.timestamp_ms)


def _log_row(name: str | None, value: TransactionLogValue | None) -> LogRow:
    return LogRow(
        partition=None,
        offset=None,
        timestamp_ms=None,
        transactional_id=name or None,
        transaction_state=str(value.state) if value else None,
        producer_id=value.producer_id if value else None,
        producer_epoch=value.producer_epoch if value else None,
        transaction_timeout_ms=DurationMs(value.transaction_timeout_ms) if value else None,
        start_time_ms=value.start_ms if value else None,
        last_update_time_ms=TimestampMs(value.last_update_ms) if value else None,
        topic_partitions=(
            tuple(f"{topic}-{number}" for topic, numbers in value.partitions for number in numbers)
            if value and value.partitions is not None
            else None
        ),
        previous_producer_id=value.previous_producer_id if value else None,
        next_producer_id=value.next_producer_id if value else None,
        client_transaction_version=value.client_transaction_version if value else None,
        version=value.version if value else None,
    )


def _batch_row(header: BatchHeader, marker: EndTransactionMarker | None) -> BatchRow:
    if marker is not None:
        kind = marker.type.name
    elif header.is_control:
        kind = "control"
    else:
        kind = "transactional" if header.is_transactional else "data"
    codec = header.compression
    return BatchRow(
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        kind=kind,
        producer_id=present(header.producer_id),
        producer_epoch=present(header.producer_epoch),
        base_sequence=present(header.base_sequence),
        coordinator_epoch=CoordinatorEpoch(marker.coordinator_epoch) if marker is not None else None,
        leader_epoch=present(header.leader_epoch),
        max_timestamp_ms=present(header.max_timestamp),
        records=header.record_count,
        compression=_CODECS[codec] if codec < len(_CODECS) else str(codec),
        size=header.length + 12,
    )
