"""`txnwatch decode` for the output of kafka-dump-log.sh: what was dumped, what is open in it, and the next command.

A dump is a copy of the past. The notes name the command that asks the cluster of now.

Apart: decode.py reads bytes and files, and this reads what a tool has printed of them. Pure: no I/O, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from txnwatch.cli.decode_rows import BatchRow, SnapshotRow, bad_lines, open_first, rows_above, snapshot_row
from txnwatch.cli.output import CommandAnswer
from txnwatch.state.model.errors import InputError
from txnwatch.state.model.values import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, Offset
from txnwatch.state.telling.commands import (
    Origin,
    describe_producers,
    explain_group,
    explain_id,
    explain_partition,
    explain_producer,
    records_of_id,
)
from txnwatch.state.text import some_names
from txnwatch.streaming.wire.primitives import present
from txnwatch.streaming.wire.printed_batches import (
    BadLine,
    OpenInDump,
    PrintedBatch,
    PrintedProducer,
    dumped_files,
    open_in_dump,
    printed_batches,
    printed_producers,
)

_MOST_NAMED = 5
_KEY = re.compile(r" key: (?:[\s\S]{4})?([\x21-\x7e]{1,1000}) payload: ")


@dataclass(frozen=True, slots=True)
class Dump:
    """A text of kafka-dump-log.sh, and what the user wants of it."""

    where: str
    text: str
    offset: Offset | None
    count: int
    origin: Origin


def decode_dump(dump: Dump) -> CommandAnswer:
    """Decodes a dump without records of the coordinators' log.

    Raises:
        InputError: there is nothing in it to decode; the text says what it is and what to do.
    """
    files = dumped_files(dump.text)
    if any(name.endswith(".txnindex") for name in files):
        raise InputError(
            f"{dump.where}: found the dump of an index of aborted transactions (.txnindex): those have ended, so "
            "nothing hangs because of them. Dump the .log or the .snapshot of the same folder"
        )
    producers = list(printed_producers(dump.text))
    if producers:
        return _snapshot(dump, producers)
    printed = list(printed_batches(dump.text))
    batches = [batch for batch in printed if isinstance(batch, PrintedBatch)]
    topics = {batch.partition.topic for batch in batches if batch.partition is not None}
    if TRANSACTION_STATE_TOPIC in topics:
        raise InputError(f"{dump.where}: {_without_decoder(dump)}")
    if not batches:
        raise InputError(
            f"{dump.where}: found the output of kafka-dump-log.sh without a batch: dump a .log file that is not empty, "
            "or give that file itself as --file"
        )
    is_open = open_in_dump(batches)
    rows = (_batch_row(batch) for batch in batches if batch.last_offset >= (dump.offset or 0))
    notes = tuple(_notes(dump.origin, batches, is_open))
    summary = f"{len(is_open)} transaction{'s are' if len(is_open) != 1 else ' is'} open at the end of this dump"
    return _answer(
        dump, BatchRow, rows, notes, summary, [bad_line for bad_line in printed if isinstance(bad_line, BadLine)]
    )


def _answer(
    dump: Dump, row_type: type, rows: Iterable[Any], notes: tuple[str, ...], summary: str, bad: Sequence[BadLine]
) -> CommandAnswer:
    all_rows = list(rows)
    return CommandAnswer(
        "decode",
        "",
        row_type,
        all_rows[: dump.count],
        bad_lines(dump.where, bad),
        summary=summary,
        left_out=rows_above(len(all_rows) - dump.count, dump.count),
        notes=notes,
    )


def _without_decoder(dump: Dump) -> str:
    """Why the dump of `__transaction_state` shows nothing, and what shows it."""
    why = (
        f"found a dump of {TRANSACTION_STATE_TOPIC} that was made without its decoder: add "
        "--transaction-log-decoder to the command of kafka-dump-log.sh, or give the .log file itself as --file"
    )
    names = list(dict.fromkeys(_KEY.findall(dump.text)))
    if not names:
        return why
    ask = f"`{records_of_id(dump.origin, names[0])}` and `{explain_id(dump.origin, names[0])}` ask the cluster"
    return f"{why}. It has records of {some_names(names, _MOST_NAMED)}: {ask}"


def _notes(origin: Origin, batches: Sequence[PrintedBatch], is_open: Sequence[OpenInDump]) -> Iterator[str]:
    partitions = list(dict.fromkeys(batch.partition for batch in batches))
    for partition in partitions[:_MOST_NAMED]:
        yield f"batches of {partition if partition is not None else 'a partition that the text does not name'}"
        here = [transaction for transaction in is_open if transaction.partition == partition]
        for transaction in here[:_MOST_NAMED]:
            yield _open_text(origin, transaction)
        if len(here) > _MOST_NAMED:
            yield f"and {len(here) - _MOST_NAMED} more open transactions"
        if partition is not None:
            yield f"next: {explain_partition(origin, partition)}"
    if any(batch.is_control and batch.commit is None for batch in batches):
        yield "kafka-dump-log.sh prints whether a marker is COMMIT or ABORT with --deep-iteration"


def _open_text(origin: Origin, transaction: OpenInDump) -> str:
    text = (
        f"producer id {transaction.producer_id}, epoch {transaction.producer_epoch}, has a transaction open from "
        f"offset {transaction.start_offset}: no marker follows in this dump. Whose it is: "
        f"{explain_producer(origin, transaction.producer_id)}"
    )
    if transaction.partition is None or transaction.partition.topic != CONSUMER_OFFSETS_TOPIC:
        return text
    if not transaction.groups:
        return f"{text}. --offsets-decoder of kafka-dump-log.sh prints the groups whose offsets wait in it"
    first = explain_group(origin, transaction.groups[0])
    return f"{text}. The offsets of {some_names(transaction.groups, _MOST_NAMED)} wait in it: {first}"


def _batch_row(batch: PrintedBatch) -> BatchRow:
    kind = "transactional" if batch.is_transactional else "data"
    if batch.is_control:
        kind = {True: "COMMIT", False: "ABORT", None: "control"}[batch.commit]
    return BatchRow(
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        kind=kind,
        producer_id=present(batch.producer_id),
        producer_epoch=present(batch.producer_epoch),
        base_sequence=present(batch.base_sequence),
        coordinator_epoch=batch.coordinator_epoch,
        leader_epoch=present(batch.leader_epoch),
        max_timestamp_ms=present(batch.max_timestamp_ms),
        records=batch.records,
        compression=batch.compression,
        size=batch.size,
    )


def _snapshot(dump: Dump, printed: Sequence[PrintedProducer | BadLine]) -> CommandAnswer:
    with_partitions = [
        printed_producer for printed_producer in printed if isinstance(printed_producer, PrintedProducer)
    ]
    producers, summary = open_first(producer for _, producer in with_partitions)
    partition = next((partition for partition, producer in with_partitions if producer is producers[0]), None)
    notes = [f"the producers of {partition or 'a partition'} when the snapshot was written"]
    if partition is not None:
        steps = (explain_partition, describe_producers)
        notes += [f"next: {step(dump.origin, partition)}" for step in steps]
    rows = map(snapshot_row, producers)
    return _answer(
        dump,
        SnapshotRow,
        rows,
        tuple(notes),
        summary,
        [bad_line for bad_line in printed if isinstance(bad_line, BadLine)],
    )
