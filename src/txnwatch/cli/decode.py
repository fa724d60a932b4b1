"""`txnwatch decode`: what a person has of a log, as bytes, text or a file; or records and batches of the cluster.

Of a data partition only batch headers and markers are shown. The first records of a segment file are compared with the
format of `__transaction_state`, and no others are decoded.
"""

from __future__ import annotations

import argparse
from typing import Any

from txnwatch.cli.decode_files import WantedRows, decode_file, row_of_bytes
from txnwatch.cli.decode_rows import BatchRow, LogRow, batch_row, record_row
from txnwatch.cli.one_shot import (
    add_connection_flags,
    add_output_flags,
    add_partition_flags,
    ask,
    count,
    id64,
    kafka_text,
)
from txnwatch.cli.output import CommandAnswer, NotChecked, write
from txnwatch.state.model.errors import ConfigError
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.coordinator_log import read_records
from txnwatch.streaming.log.lookups import read_batches
from txnwatch.streaming.wire.printed_bytes import FORMS, bytes_of
from txnwatch.streaming.wire.printed_records import PrintedRecord, printed_records

_SHOWN = 40
_FORMS = "hexadecimal, base64, a dump of xxd or hexdump -C, b'...' of Python, or an escaped string"


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse's private type
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "decode",
        help="decode records of __transaction_state, batches, and the files of a partition",
        description="Decodes one of these: the bytes of a record of __transaction_state (--value, --key), a file of a "
        "broker or the output of one of Kafka's tools (--file), the records of a transactional id in the coordinators' "
        "log (--transactional-id), or the batches of a partition (--topic, --partition). Of a .snapshot file it shows "
        "the first offset of each open transaction, also if no broker is running. What a cut or damaged file has "
        "before the damage is shown, and the rest is listed as not checked.",
    )
    parser.add_argument("--value", type=kafka_text, metavar="BYTES", help=f"a record's value, as {_FORMS}")
    parser.add_argument("--key", type=kafka_text, metavar="BYTES", help="a record's key, in the same forms")
    parser.add_argument(
        "--file",
        metavar="FILE",
        help="a file of a partition's directory (.log, .snapshot, .txnindex, .index, .timeindex, "
        "leader-epoch-checkpoint or partition.metadata, each also as .gz), or text: the output of kafka-dump-log.sh "
        "--transaction-log-decoder or of the console consumer with the TransactionLogMessageFormatter, or a value as "
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
        row = row_of_bytes(_bytes(parsed.key, "--key"), _bytes(parsed.value, "--value"), "--value")
        return _show(CommandAnswer("decode", "", LogRow, [row]), parsed)
    if chosen[0] == "--file":
        wanted = WantedRows(parsed.offset, parsed.count, is_transaction_log=parsed.transaction_log)
        return _show(decode_file(parsed.file, wanted), parsed)
    if parsed.bootstrap_server is None:
        raise ConfigError(f"{chosen[0]}: expected --bootstrap-server as well, found none")
    return ask(parsed, lambda cluster: _from_cluster(cluster, parsed))


def _show(answer: CommandAnswer, parsed: argparse.Namespace) -> int:
    write(answer, parsed.format, is_wide=parsed.wide)
    return answer.exit_code(fail_on_found=False)


def _bytes(text: str | None, flag: str) -> bytes | None:
    if text is None:
        return None
    try:
        return bytes_of(text)
    except ValueError as exc:
        if any(isinstance(one, PrintedRecord) for one in printed_records(text)):
            raise ConfigError(
                f"{flag}: expected bytes, found the output of one of Kafka's tools: give it on standard input of "
                "txnwatch decode --file -"
            ) from exc
        raise ConfigError(
            f"{flag}: expected hexadecimal or base64, found {text[:_SHOWN]!r} ({FORMS}). Reason: {exc}"
        ) from exc


def _from_cluster(cluster: Cluster, parsed: argparse.Namespace) -> CommandAnswer:
    row_type: type = LogRow
    if parsed.transactional_id is not None:
        found, problem = read_records(cluster, parsed.transactional_id)
        rows: list[Any] = [record_row(record) for record in found[-parsed.count :]]
        what = TRANSACTION_STATE_TOPIC
    else:
        partition = TopicPartition(parsed.topic, parsed.partition)
        batches, problem = read_batches(cluster, partition, parsed.offset, parsed.count)
        rows, row_type, what = [batch_row(*batch) for batch in batches], BatchRow, str(partition)
    missing = () if problem is None else (NotChecked(what, problem),)
    return CommandAnswer("decode", cluster.known.cluster_id, row_type, rows, missing)
