"""`txnwatch decode`: what a person has of a log, as bytes, text or a file; or records and batches of the cluster.

Of a data partition only batch headers and markers are shown. The first records of a segment file are compared with the
format of `__transaction_state`, and no others are decoded.

Law: a file may be from anybody, and may be cut or damaged. What is before the damage is shown, and the answer is then
incomplete. If nothing can be shown, the error has the place and the next step.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from txnwatch.cli.decode_dumps import Dump, decode_dump
from txnwatch.cli.decode_rows import (
    BatchRow,
    LogRow,
    SnapshotRow,
    bad_lines,
    batch_row,
    log_row,
    open_first,
    printed_row,
    record_row,
    rows_above,
    snapshot_row,
)
from txnwatch.cli.decode_texts import ToldRow, recognise
from txnwatch.cli.one_shot import (
    add_connection_flags,
    add_output_flags,
    add_partition_flags,
    ask,
    count,
    id64,
    kafka_text,
    never,
    show,
)
from txnwatch.cli.output import CommandAnswer, NotChecked
from txnwatch.state.model.errors import ConfigError, InputError, LaterVersionError, WireError
from txnwatch.state.model.values import FIRST_OFFSET, TRANSACTION_STATE_TOPIC, Offset, TopicPartition
from txnwatch.state.telling.commands import Origin, explain_partition, origin_without_cluster
from txnwatch.state.telling.moved_ids import last_text, moved_text
from txnwatch.state.text import cut
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.coordinator_log import LogRecord, read_all_records, records_of
from txnwatch.streaming.log.log_files import (
    FileKind,
    GivenFile,
    begins_with_batch,
    holds_coordinator_records,
    kind_of,
    open_file,
    text_of,
)
from txnwatch.streaming.log.lookups import read_batches
from txnwatch.streaming.log.moved_records import moved_of
from txnwatch.streaming.wire.internal_topics import decode_key, decode_value
from txnwatch.streaming.wire.primitives import END
from txnwatch.streaming.wire.printed import FORMS, PrintedProblem, PrintedRecord, bytes_of, is_dump, printed_records
from txnwatch.streaming.wire.record_batch import (
    LENGTH_OVERHEAD,
    LENGTH_POSITION,
    end_of_entry,
    end_of_whole_entries,
    read_marker,
    walk,
)
from txnwatch.streaming.wire.snapshot_file import decode_snapshot

_SHOWN = 40
_FORMS = "hexadecimal, base64, a dump of xxd or hexdump -C, b'...' of Python, or an escaped string"


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse's private type
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "decode",
        help="decode records of __transaction_state, batches, segments and snapshots, and the output of Kafka's tools",
        description="Decodes one of these: the bytes of a record of __transaction_state (--value, --key), a file of a "
        "broker or the output of one of Kafka's tools (--file), the records of a transactional id in the coordinators' "
        "log (--transactional-id), or the batches of a partition (--topic, --partition). Of a .snapshot file it shows "
        "the first offset of each open transaction, also if no broker is running. Of tables, log lines and statistics "
        "it says what they mean, and which command asks the cluster about it. What a cut or damaged file has before "
        "the damage is shown, and the rest is listed as not checked.",
    )
    parser.add_argument(
        "source",
        nargs="?",
        type=kafka_text,
        metavar="FILE",
        help="a file, as for --file; or a text itself, as a file could have it: bytes, or a line of a log",
    )
    parser.add_argument("--value", type=kafka_text, metavar="BYTES", help=f"a record's value, as {_FORMS}")
    parser.add_argument("--key", type=kafka_text, metavar="BYTES", help="a record's key, in the same forms")
    parser.add_argument(
        "--file",
        metavar="FILE",
        help="a segment (.log) or a .snapshot of a partition's directory, each also as .gz, or text: the output of "
        "kafka-dump-log.sh, of the console consumer with the TransactionLogMessageFormatter, of kafka-transactions.sh "
        "or kafka-consumer-groups.sh, lines of a broker's or a client's log, statistics of librdkafka, or a value as "
        "for --value; - is standard input",
    )
    parser.add_argument(
        "--transaction-log",
        action="store_true",
        help=f"--file is a segment of {TRANSACTION_STATE_TOPIC} (default: detected from its folder or its records)",
    )
    parser.add_argument(
        "--transactional-id", type=kafka_text, metavar="ID", help="the records of this id that the log still has"
    )
    add_partition_flags(parser, "the topic of the batches, with --partition", is_required=False)
    parser.add_argument("--offset", type=id64, help="begin at this offset (default: the start of the log)")
    parser.add_argument("--count", type=count, default=20, help="maximum number of rows (default: %(default)s)")
    add_connection_flags(parser, never)
    add_output_flags(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Decodes the one source that the flags select."""
    ways = {
        "FILE": parsed.source is not None,
        "--value/--key": parsed.value is not None or parsed.key is not None,
        "--file": parsed.file is not None,
        "--transactional-id": parsed.transactional_id is not None,
        "--topic with --partition": parsed.topic is not None and parsed.partition is not None,
    }
    chosen = [way for way, is_given in ways.items() if is_given]
    if len(chosen) != 1:
        raise ConfigError(f"expected one of {', '.join(ways)}; found {', '.join(chosen) or 'none'}")
    if chosen[0] == "--value/--key":
        row = _row_of_bytes(_bytes(parsed.key, "--key"), _bytes(parsed.value, "--value"), "--value")
        return show(CommandAnswer("decode", "", LogRow, [row]), parsed)
    wanted = WantedRows(
        parsed.offset,
        parsed.count,
        parsed.transaction_log,
        origin_without_cluster(parsed.bootstrap_server, parsed.command_config),
    )
    if chosen[0] == "FILE":
        return show(_decode_given(parsed.source, wanted), parsed)
    if chosen[0] == "--file":
        return show(_decode_file(open_file(parsed.file), wanted), parsed)
    if parsed.bootstrap_server is None:
        raise ConfigError(f"{chosen[0]}: expected --bootstrap-server as well, found none")
    return ask(parsed, lambda cluster: _from_cluster(cluster, parsed))


_AS_FILE = "give it on standard input of txnwatch decode --file -"


def _bytes(text: str | None, flag: str) -> bytes | None:
    if text is None:
        return None
    try:
        return bytes_of(text)
    except ValueError as exc:
        if any(isinstance(record, PrintedRecord) for record in printed_records(text)):
            raise ConfigError(f"{flag}: expected bytes, found the output of one of Kafka's tools: {_AS_FILE}") from exc
        recognised = recognise(text, origin_without_cluster())
        if recognised is not None:
            raise ConfigError(f"{flag}: expected bytes, found {recognised.what}: {_AS_FILE}") from exc
        raise ConfigError(
            f"{flag}: expected hexadecimal or base64, found {text[:_SHOWN]!r} ({FORMS}). Reason: {exc}"
        ) from exc


def _from_cluster(cluster: Cluster, parsed: argparse.Namespace) -> CommandAnswer:
    row_type: type = LogRow
    notes: tuple[str, ...] = ()
    if parsed.transactional_id is not None:
        records, problem = read_all_records(cluster, parsed.transactional_id)
        notes = tuple(_of_the_log(cluster, parsed.transactional_id, records))
        rows: list[Any] = [record_row(record) for record in records[-parsed.count :]]
        what = TRANSACTION_STATE_TOPIC
    else:
        partition = TopicPartition(parsed.topic, parsed.partition)
        batches, problem = read_batches(cluster, partition, parsed.offset, parsed.count)
        rows, row_type, what = [batch_row(*batch) for batch in batches], BatchRow, str(partition)
    missing = () if problem is None else (NotChecked(what, problem),)
    return CommandAnswer("decode", cluster.known.cluster_id, row_type, rows, missing, notes=notes)


def _of_the_log(cluster: Cluster, transactional_id: str, records: Sequence[LogRecord]) -> Iterator[str]:
    """That the log has no record of an id, or that some are not in its partition."""
    if not records:
        yield f"no partition of {TRANSACTION_STATE_TOPIC} has a record of this id"
    moved = moved_of(cluster, transactional_id, records)
    if moved is not None:
        yield f"{moved_text(moved)} {last_text(moved)}"


_LARGEST_TEXT = 64 << 20
_LARGEST_BYTES_TEXT = 4 << 20
_VERSIONS = (b"\0\0", b"\0\1")


@dataclass(frozen=True, slots=True)
class WantedRows:
    """What the user asked for.

    Attributes:
        offset: the first offset; None for the beginning.
        count: the maximum number of rows.
        is_transaction_log: whether the file is a segment of `__transaction_state`, whatever its name is.
        origin: the connection settings for the commands that are named.
    """

    offset: Offset | None
    count: int
    is_transaction_log: bool
    origin: Origin


@dataclass(frozen=True, slots=True)
class _Reader:
    """How one kind of file is decoded, and what helps if that fails."""

    read: Callable[[GivenFile, WantedRows], CommandAnswer]
    advice: str
    has_offsets: bool = True


def _decode_given(given: str, wanted: WantedRows) -> CommandAnswer:
    """Decodes a file if there is one of this name, else the text itself."""
    if given == "-" or os.path.exists(given):  # noqa: PTH110 - Path raises for a long text
        return _decode_file(open_file(given), wanted)
    try:
        return _text(GivenFile("the text", given.encode()), wanted)
    except InputError as exc:
        raise ConfigError(
            f"{cut(given)}: no file has this name, and it is neither bytes nor a line of a log that is known. "
            "A transactional id is given as --transactional-id ID; txnwatch explain takes any other name"
        ) from exc


def _decode_file(given: GivenFile, wanted: WantedRows) -> CommandAnswer:
    """Decodes a file, or standard input.

    Raises:
        ConfigError: a flag does not fit to it.
        InputError: nothing in it can be decoded.
    """
    kind = FileKind.SEGMENT if wanted.is_transaction_log else kind_of(given)
    reader = _READERS[kind]
    if wanted.offset is not None and not reader.has_offsets:
        raise ConfigError(f"--offset: {given.name} is {kind}, which has no offsets to begin at: leave --offset out")
    try:
        answer = reader.read(given, wanted)
    except WireError as exc:
        advice = "" if isinstance(exc, LaterVersionError) else f": {reader.advice}"
        why = f"{exc}{advice}" if given.cut is None else _cut_gzip(given)
        raise InputError(f"{given.name} is not {kind} that can be read: {why}") from exc
    if not given.data:
        return replace(answer, summary=f"{given.name} is empty")
    if given.cut is None:
        return answer
    return replace(answer, not_checked=(*answer.not_checked, NotChecked(given.name, _cut_gzip(given))))


def _cut_gzip(given: GivenFile) -> str:
    return f"the gzip file is cut or damaged ({given.cut}): copy it again"


def _row_of_bytes(key: bytes | None, value: bytes | None, where: str) -> LogRow:
    """A record from the bytes of its key, of its value, or of both; `where` is the flag or the file of the value.

    Raises:
        ConfigError: the key has another type.
        InputError: the bytes are something else, or are cut.
    """
    try:
        name = decode_key(key) if key is not None else None
    except WireError as exc:
        raise InputError(f"--key: {exc}. {_what_else(key or b'', exc)}") from exc
    if key is not None and name is None:
        raise ConfigError(
            f"--key: expected a key of the coordinators' log (type 0), found another type. {_what_else(key)}"
        )
    try:
        return log_row(name, decode_value(value) if value is not None else None)
    except LaterVersionError as exc:
        raise InputError(f"{where}: {exc}") from exc
    except WireError as exc:
        raise InputError(f"{where}: {exc}. {_what_else(value or b'', exc)}") from exc


def _what_else(raw: bytes, error: WireError | None = None) -> str:
    """What bytes are that are not what they were given as, and what to do."""
    for decode, what in ((decode_key, "a key: give them as --key"), (decode_value, "a value: give them as --value")):
        try:
            if decode(raw) is not None:
                return f"These bytes are {what}"
        except WireError:
            continue
    if begins_with_batch(raw):
        return "These bytes are record batches: write them to a file, and give it as --file"
    if error is not None and error.expected == END:
        return "Other bytes follow it: copy only the key or the value"
    if raw[:2] in _VERSIONS:
        return "The bytes may be cut: copy the whole key or value"
    return (
        f"Expected the key or the value of a record of {TRANSACTION_STATE_TOPIC}, which begins with 0000 or 0001; "
        f"found {len(raw)} bytes that begin with {raw[:8].hex(' ') or 'nothing'}: check from which record they are"
    )


def _answer(row_type: type, rows: Iterator[Any], given: GivenFile, wanted: WantedRows, advice: str) -> CommandAnswer:
    """The rows up to the damage, if there is any. Rows above `--count` are counted."""
    shown: list[Any] = []
    left = 0
    missing: tuple[NotChecked, ...] = ()
    try:
        for row in rows:
            if len(shown) < wanted.count:
                shown.append(row)
            else:
                left += 1
    except WireError as exc:
        if not shown:
            raise
        missing = (NotChecked(given.name, f"{exc}. The rows are those before it: {advice}"),)
    return CommandAnswer("decode", "", row_type, shown, missing, left_out=rows_above(left, wanted.count))


_COPY_SEGMENT = "copy the file again, or ask the cluster with --topic, --partition and --offset"
_COPY_SNAPSHOT = (
    "copy it again after the broker has written it, or take the snapshot before it. The leader shows the same with "
    "txnwatch describe-producers"
)


def _segment(given: GivenFile, wanted: WantedRows) -> CommandAnswer:
    """Stops at `--count`, because a segment may have a GiB."""
    in_folder = given.log_partition is not None
    is_log = wanted.is_transaction_log or in_folder or holds_coordinator_records(given.data)
    rows: list[Any] = []
    missing: tuple[NotChecked, ...] = ()
    try:
        for row in _log_rows(given, wanted) if is_log else _batch_rows(given, wanted):
            rows.append(row)
            if len(rows) == wanted.count:
                break
        else:
            missing = _cut_batch(given)
    except WireError as exc:
        if not rows:
            raise
        missing = (NotChecked(given.name, f"{exc}. The rows are those before it: {_COPY_SEGMENT}"),)
    is_recognised = is_log and not in_folder and not wanted.is_transaction_log
    notes: tuple[str, ...] = (
        (f"recognised as a segment of {TRANSACTION_STATE_TOPIC} by its records",) if is_recognised else ()
    )
    at = given.partition
    if not is_log and at is not None:
        notes = (
            f"batches of {at}, as they were when the file was copied",
            f"next: {explain_partition(wanted.origin, at)}",
        )
    return CommandAnswer("decode", "", LogRow if is_log else BatchRow, rows, missing, notes=notes)


def _log_rows(given: GivenFile, wanted: WantedRows) -> Iterator[LogRow]:
    for at, header in walk(given.data):
        batch = given.data[at : end_of_entry(given.data, at)]
        try:
            records = list(records_of(batch, given.log_partition))
        except WireError as exc:
            field = f"batch at offset {header.base_offset}: {exc.field}"
            raise type(exc)(field, exc.position, exc.found, exc.expected) from exc
        yield from (record_row(record) for record in records if record.offset >= (wanted.offset or FIRST_OFFSET))


def _batch_rows(given: GivenFile, wanted: WantedRows) -> Iterator[BatchRow]:
    for at, header in walk(given.data):
        if header.last_offset >= (wanted.offset or FIRST_OFFSET):
            yield batch_row(header, read_marker(given.data, at, header) if header.is_control else None)


def _cut_batch(given: GivenFile) -> tuple[NotChecked, ...]:
    """The last batch, if the end of the file cuts it."""
    buffer = given.data
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
    return (NotChecked(f"{given.name} from byte {at}", why),)


def _snapshot(given: GivenFile, wanted: WantedRows) -> CommandAnswer:
    producers, summary = open_first(decode_snapshot(given.data))
    at = f" at offset {given.base_offset}" if given.base_offset is not None else ""
    note = f"the state of the producers{at}: describe-producers shows that of now"
    rows = (snapshot_row(producer) for producer in producers)
    return replace(_answer(SnapshotRow, rows, given, wanted, _COPY_SNAPSHOT), notes=(note,), summary=summary)


def _text(given: GivenFile, wanted: WantedRows) -> CommandAnswer:
    if len(given.data) > _LARGEST_TEXT:
        raise InputError(
            f"{given.name}: expected text of at most {_LARGEST_TEXT} bytes, found {len(given.data)}: split it"
        )
    text = text_of(given.data)
    printed = list(printed_records(text))
    records = [record for record in printed if isinstance(record, PrintedRecord)]
    if not records and is_dump(text):
        return decode_dump(Dump(given.name, text, wanted.offset, wanted.count, wanted.origin))
    if not records:
        return _bytes_as_text(given, wanted, text) if _is_bytes(text) else _told(given, wanted, text)
    if wanted.offset is not None and any(record.offset is None for record in records):
        raise ConfigError(f"--offset: the records of {given.name} have no offsets: leave --offset out")
    rows = (
        printed_row(record)
        for record in records
        if record.offset is None or record.offset >= (wanted.offset or FIRST_OFFSET)
    )
    problems = [problem for problem in printed if isinstance(problem, PrintedProblem)]
    return replace(_answer(LogRow, rows, given, wanted, ""), not_checked=bad_lines(given.name, problems))


def _is_bytes(text: str) -> bool:
    try:
        bytes_of(text)
    except ValueError:
        return False
    return True


def _told(given: GivenFile, wanted: WantedRows, text: str) -> CommandAnswer:
    """A text that is no record, if it is known what it is."""
    recognised = recognise(text, wanted.origin)
    if recognised is None:
        return _bytes_as_text(given, wanted, text)  # which says what was expected
    answer = _answer(ToldRow, iter(recognised.rows), given, wanted, "")
    notes = (f"{given.name}: {recognised.what}, as it was then", *recognised.notes)
    return replace(answer, notes=notes)


def _bytes_as_text(given: GivenFile, wanted: WantedRows, text: str) -> CommandAnswer:
    """Bytes that are written as text: of a value, or of a file."""
    try:
        if len(text) > _LARGEST_BYTES_TEXT:
            raise ValueError(f"more than {_LARGEST_BYTES_TEXT} characters")  # noqa: TRY301 - one message for both
        raw = bytes_of(text)
    except ValueError as exc:
        raise InputError(
            f"{given.name}: expected the output of kafka-dump-log.sh --transaction-log-decoder, that of the console "
            f"consumer with the TransactionLogMessageFormatter, or a value as hexadecimal or base64 ({FORMS}); found "
            f"{text[:_SHOWN]!r} ({exc}): give the output of one of them, or the file of the broker itself"
        ) from exc
    if begins_with_batch(raw):
        return _segment(replace(given, data=raw, path=None), wanted)
    return CommandAnswer("decode", "", LogRow, [_row_of_bytes(None, raw, given.name)])


_READERS = {
    FileKind.SEGMENT: _Reader(_segment, _COPY_SEGMENT),
    FileKind.SNAPSHOT: _Reader(_snapshot, _COPY_SNAPSHOT, has_offsets=False),
    FileKind.TEXT: _Reader(_text, ""),
}
