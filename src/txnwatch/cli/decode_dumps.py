"""`txnwatch decode` for the output of kafka-dump-log.sh: what was dumped, what is open in it, and the next command.

A dump is a copy of the past. The notes name the command that asks the cluster of now.

Apart: decode.py reads bytes and files, and this reads what a tool has printed of them. Pure: no I/O, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from txnwatch.cli.decode_rows import BatchRow, SnapshotRow, bad_lines, open_first, rows_above
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
    found = list(printed_batches(dump.text))
    batches = [one for one in found if isinstance(one, PrintedBatch)]
    topics = {one.partition.topic for one in batches if one.partition is not None}
    if TRANSACTION_STATE_TOPIC in topics:
        raise InputError(f"{dump.where}: {_without_decoder(dump)}")
    if not batches:
        raise InputError(
            f"{dump.where}: found the output of kafka-dump-log.sh without a batch: dump a .log file that is not empty, "
            "or give that file itself as --file"
        )
    is_open = open_in_dump(batches)
    rows = (_batch_row(one) for one in batches if one.last_offset >= (dump.offset or 0))
    notes = tuple(_notes(dump.origin, batches, is_open))
    summary = f"{len(is_open)} transaction{'s are' if len(is_open) != 1 else ' is'} open at the end of this dump"
    return _answer(dump, BatchRow, rows, notes, summary, [one for one in found if isinstance(one, BadLine)])


def _answer(
    dump: Dump, row_type: type, rows: Iterable[Any], notes: tuple[str, ...], summary: str, bad: Sequence[BadLine]
) -> CommandAnswer:
    found = list(rows)
    return CommandAnswer(
        "decode",
        "",
        row_type,
        found[: dump.count],
        bad_lines(dump.where, bad),
        summary=summary,
        left_out=rows_above(len(found) - dump.count, dump.count),
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
    partitions = list(dict.fromkeys(one.partition for one in batches))
    for partition in partitions[:_MOST_NAMED]:
        yield f"batches of {partition if partition is not None else 'a partition that the text does not name'}"
        here = [one for one in is_open if one.partition == partition]
        for one in here[:_MOST_NAMED]:
            yield _open_text(origin, one)
        if len(here) > _MOST_NAMED:
            yield f"and {len(here) - _MOST_NAMED} more open transactions"
        if partition is not None:
            yield f"next: {explain_partition(origin, partition)}"
    if any(one.is_control and one.commit is None for one in batches):
        yield "kafka-dump-log.sh prints whether a marker is COMMIT or ABORT with --deep-iteration"


def _open_text(origin: Origin, one: OpenInDump) -> str:
    text = (
        f"producer id {one.producer_id}, epoch {one.producer_epoch}, has a transaction open from offset "
        f"{one.start_offset}: no marker follows in this dump. Whose it is: {explain_producer(origin, one.producer_id)}"
    )
    if one.partition is None or one.partition.topic != CONSUMER_OFFSETS_TOPIC:
        return text
    if not one.groups:
        return f"{text}. --offsets-decoder of kafka-dump-log.sh prints the groups whose offsets wait in it"
    first = explain_group(origin, one.groups[0])
    return f"{text}. The offsets of {some_names(one.groups, _MOST_NAMED)} wait in it: {first}"


def _batch_row(one: PrintedBatch) -> BatchRow:
    kind = "transactional" if one.is_transactional else "data"
    if one.is_control:
        kind = {True: "COMMIT", False: "ABORT", None: "control"}[one.commit]
    return BatchRow(
        base_offset=one.base_offset,
        last_offset=one.last_offset,
        kind=kind,
        producer_id=present(one.producer_id),
        producer_epoch=present(one.producer_epoch),
        base_sequence=present(one.base_sequence),
        coordinator_epoch=one.coordinator_epoch,
        leader_epoch=present(one.leader_epoch),
        max_timestamp_ms=present(one.max_timestamp_ms),
        records=one.records,
        compression=one.compression,
        size=one.size,
    )


def _snapshot(dump: Dump, found: Sequence[PrintedProducer | BadLine]) -> CommandAnswer:
    producers, summary = open_first(one for one in found if isinstance(one, PrintedProducer))
    partition = next((one.partition for one in producers), None)
    notes = [f"the producers of {partition or 'a partition'} when the snapshot was written"]
    if partition is not None:
        steps = (explain_partition, describe_producers)
        notes += [f"next: {step(dump.origin, partition)}" for step in steps]
    rows = map(_producer_row, producers)
    return _answer(dump, SnapshotRow, rows, tuple(notes), summary, [one for one in found if isinstance(one, BadLine)])


def _producer_row(one: PrintedProducer) -> SnapshotRow:
    return SnapshotRow(
        producer_id=one.producer_id,
        producer_epoch=one.producer_epoch,
        current_transaction_start_offset=one.txn_start_offset,
        latest_coordinator_epoch=present(one.coordinator_epoch),
        last_sequence=present(one.last_sequence),
        last_offset=present(one.last_offset),
        last_timestamp_ms=present(one.last_timestamp_ms),
    )
