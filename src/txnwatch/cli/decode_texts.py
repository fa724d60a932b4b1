"""`txnwatch decode` for texts that are no records: tables of Kafka's tools, log lines, statistics of librdkafka.

Each row is something that the text names: a transactional id, a producer id, a partition or a group; what the text says
about it, and the command that asks the cluster about it. Such a text is the past, and only one view.

Law: the text may be from anybody. It is never evidence: every row ends in a command that reads the cluster.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from txnwatch.cli.error_words import command_of, means_text, word_in
from txnwatch.cli.output import Name
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.values import INT64, TRANSACTION_STATE_TOPIC, TopicPartition, is_topic_name
from txnwatch.state.telling.commands import (
    Origin,
    check_cluster,
    explain_group,
    explain_id,
    explain_partition,
    explain_producer,
    find_hanging,
)
from txnwatch.state.text import quoted


@dataclass(frozen=True, slots=True)
class ToldRow:
    """Something that a text names.

    Attributes:
        line: the first line that says it.
        what: what the text says about it.
        next: the command that asks the cluster about it.
        times: how many lines say it.
    """

    line: int
    what: str
    transactional_id: Name | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    topic_partition: str | None = None
    group_id: Name | None = None
    transaction_state: str | None = None
    next: str | None = None
    times: int = 1

    def lines(self) -> Iterator[str]:
        """The row as text."""
        more = f" ({self.times} lines)" if self.times > 1 else ""
        yield f"line {self.line}{more}: {self.what}"
        if self.next is not None:
            yield f"next: {self.next}"


class Recognised(NamedTuple):
    """What a text is, and what it names."""

    what: str
    rows: list[ToldRow]
    notes: tuple[str, ...] = ()


def recognise(text: str, origin: Origin) -> Recognised | None:
    """What a text is; None if it is nothing that is known here."""
    return _statistics(text, origin) or _table(text, origin) or _log_lines(text, origin)


# Tables.


class _Table(NamedTuple):
    """A table of one of Kafka's tools.

    Attributes:
        heads: columns that only this table has together.
        tell: a row of it, from the cells by column.
        note: what the table does not show; it gets the connection settings.
    """

    tool: str
    heads: frozenset[str]
    tell: Callable[[Origin, Mapping[str, str]], ToldRow]
    note: Callable[[Origin], str]


_LIVE = frozenset(str(state) for state in TransactionState if state.is_live)


def _of_listed(origin: Origin, cells: Mapping[str, str]) -> ToldRow:
    name, state = cells["TransactionalId"], cells["TransactionState"]
    partitions = cells.get("TopicPartitions", "")
    holds = f"; it holds {partitions}" if partitions else ""
    return ToldRow(
        0,
        f"transactional id {quoted(name)} is in state {state}{holds}",
        transactional_id=name,
        producer_id=_number(cells.get("ProducerId")),
        producer_epoch=_number(cells.get("ProducerEpoch")),
        transaction_state=state,
        next=explain_id(origin, name),
    )


def _of_producer(origin: Origin, cells: Mapping[str, str]) -> ToldRow:
    producer_id, start = _number(cells["ProducerId"]), _number(cells["CurrentTransactionStartOffset"])
    is_open = f"has a transaction open from offset {start}" if start is not None else "has nothing open"
    return ToldRow(
        0,
        f"producer id {producer_id}, epoch {cells['ProducerEpoch']}, {is_open}",
        producer_id=producer_id,
        producer_epoch=_number(cells["ProducerEpoch"]),
        transaction_state="open" if start is not None else None,
        next=explain_producer(origin, producer_id) if producer_id is not None else None,
    )


def _of_hanging(origin: Origin, cells: Mapping[str, str]) -> ToldRow:
    at = _partition(cells["Topic"], cells["Partition"])
    place = f"{cells['Topic']}-{cells['Partition']}"
    return ToldRow(
        0,
        f"Kafka's tool says that producer id {cells['ProducerId']}, epoch {cells['ProducerEpoch']}, hangs on {place} "
        f"from offset {cells['StartOffset']}",
        producer_id=_number(cells["ProducerId"]),
        producer_epoch=_number(cells["ProducerEpoch"]),
        topic_partition=place,
        transaction_state="open",
        next=explain_partition(origin, at) if at is not None else None,
    )


def _of_group(origin: Origin, cells: Mapping[str, str]) -> ToldRow:
    name, state = cells["GROUP"], cells.get("STATE", "")
    if "TOPIC" not in cells:
        what = f"group {quoted(name)}{f' is in state {state}' if state else ' has members'}"
        return ToldRow(0, what, group_id=name, next=explain_group(origin, name))
    place = f"{cells['TOPIC']}-{cells['PARTITION']}"
    what = (
        f"group {quoted(name)} has read {place} to {cells['CURRENT-OFFSET']} of {cells['LOG-END-OFFSET']} (lag "
        f"{cells['LAG']})"
    )
    is_behind = bool(_number(cells["LAG"]))
    state_of_row = "open" if is_behind else None
    return ToldRow(
        0, what, topic_partition=place, group_id=name, transaction_state=state_of_row, next=explain_group(origin, name)
    )


def _note_on_ids(origin: Origin) -> str:
    return (
        "this is the view of the coordinators alone: a transaction that hangs is not in it, and the duration of an id "
        f"that is Empty or Complete is of no transaction. {find_hanging(origin)}"
    )


def _note_on_groups(_: Origin) -> str:
    return (
        "LAG counts up to the end of the log, also what an open transaction hides. It does not show whether a "
        "committed offset waits in a transaction: `txnwatch explain --group` does"
    )


_TABLES = (
    _Table(
        "kafka-transactions.sh find-hanging",
        frozenset({"Topic", "Partition", "ProducerId", "StartOffset", "Duration(min)"}),
        _of_hanging,
        lambda _: "the table names no transactional id, and Duration(min) is the time since the last write",
    ),
    _Table(
        "kafka-transactions.sh describe-producers",
        frozenset({"ProducerId", "LatestCoordinatorEpoch", "CurrentTransactionStartOffset"}),
        _of_producer,
        lambda _: "the table does not name its partition: `txnwatch explain TOPIC-PARTITION` says what holds it",
    ),
    _Table(
        "kafka-transactions.sh describe",
        frozenset({"TransactionalId", "ProducerEpoch", "TransactionState", "TransactionTimeoutMs"}),
        _of_listed,
        _note_on_ids,
    ),
    _Table(
        "kafka-transactions.sh list",
        frozenset({"TransactionalId", "Coordinator", "ProducerId", "TransactionState"}),
        _of_listed,
        _note_on_ids,
    ),
    _Table(
        "kafka-consumer-groups.sh --describe",
        frozenset({"GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"}),
        _of_group,
        _note_on_groups,
    ),
    _Table("kafka-consumer-groups.sh --members", frozenset({"GROUP", "CONSUMER-ID"}), _of_group, _note_on_groups),
    _Table("kafka-consumer-groups.sh", frozenset({"GROUP", "STATE"}), _of_group, _note_on_groups),
)


_EMPTY = (
    "find-hanging of kafka-transactions.sh shows nothing before --max-transaction-timeout minutes (15) without a write"
)


def _table(text: str, origin: Origin) -> Recognised | None:
    table: _Table | None = None
    heads: list[str] = []
    rows: list[ToldRow] = []
    for number, line in enumerate(text.splitlines(), 1):
        cells = _cells(line)
        matching = next((candidate for candidate in _TABLES if candidate.heads <= set(cells)), None)
        if matching is not None:
            table, heads = table or matching, cells
        elif table is not None and len(cells) >= min(len(heads), 2) and line.strip():
            row = _row(table, origin, dict(zip(heads, cells, strict=False)))
            rows += [] if row is None else [replace(row, line=number)]
    if table is None:
        return None
    rows.sort(key=lambda row: row.transaction_state not in {*_LIVE, "open"})
    note = table.note(origin) if rows else f"the table is empty. {_EMPTY}: {find_hanging(origin)}"
    return Recognised(f"a table of {table.tool}", rows, (note,))


def _row(table: _Table, origin: Origin, cells: Mapping[str, str]) -> ToldRow | None:
    try:
        return table.tell(origin, cells)
    except KeyError:
        return None  # the line is cut


def _cells(line: str) -> list[str]:
    """The cells of a line; kafka-transactions.sh puts tabs between them, and kafka-consumer-groups.sh blanks."""
    if "\t" in line:
        return [cell.strip() for cell in line.split("\t")]
    return line.replace("COORDINATOR (ID)", "COORDINATOR(ID)").replace("  (", "(").split()


def _number(text: str | None) -> int | None:
    """A whole number of a table; None for anything else."""
    if text is None or not re.fullmatch(r"\d{1,19}", text, re.ASCII):
        return None
    number = int(text)
    return number if number <= INT64 else None


def _partition(topic: str, number: str) -> TopicPartition | None:
    of_partition = _number(number)
    return TopicPartition(topic, of_partition) if of_partition is not None and is_topic_name(topic) else None


# Lines of a log.

_OF_COORDINATOR = re.compile(
    r"TransactionCoordinator|Transaction ?State ?Manager|Transaction ?Marker|TxnMarker|ProducerStateManager"
    r"|ProducerAppendInfo|AddPartitionsToTxn|transactionalId\b",
    re.IGNORECASE,
)
_IDS = tuple(
    re.compile(pattern)
    for pattern in (
        r"transactional(?:Id| id)[ =:]+'?(?P<id>[^\s,;()\]}]{1,4000})",
        r"transaction markers for (?P<id>[^\s,;()]{1,4000})",
    )
)
_OWNED = re.compile(r"'s (?:InitProducerId|EndTransaction|AddPartitions|transaction marker|state is)")
_LONGEST_LINE = 1 << 13
_PRODUCER = re.compile(r"producer(?:Id| id)?[ =:]+(\d{1,19})\b", re.IGNORECASE)
_EPOCH = re.compile(
    r"(?:producer epoch|producerEpoch)[ =:]+(\d{1,5})\b|Epoch of producer \d+ at offset \d+ in \S+ is (\d+)"
)
_PARTITION = re.compile(r"(?:partitions?|offset \d+ in) (?:\w+\()?\[?([\w.-]{1,249}-\d{1,9})\b", re.IGNORECASE)
# What a line means, by a part of it; the first that fits.
_MEANINGS = (
    (
        "Initialized transactionalId",
        "InitProducerId has given an epoch: a client has started, or asked for a new epoch",
    ),
    ("Completed rollback of ongoing transaction", "its coordinator has aborted the transaction at its timeout"),
    ("Rollback of ongoing transaction", "its coordinator wants to abort the transaction at its timeout and could not"),
    ("likely deleted already", "a partition of the transaction was deleted, so it needs no marker; the rest is ended"),
    ("has permanently failed", "a leader has refused the marker for good: the transaction may stay in Prepare*"),
    ("retrying with current coordinator epoch", "a leader has not taken the marker yet: the coordinator tries again"),
    ("waiting for completion", "a partition of the transaction has no marker to wait for: it is gone, or has moved on"),
    ("number of partitions has changed", "the number of partitions of __transaction_state was changed: ids are lost"),
    (
        "failed to write an epoch fence",
        "the coordinator could not write that it fences a client: the log takes no writes",
    ),
    ("Retry appending", "the last record of a transaction could not be written to __transaction_state yet"),
    ("expired transactionalId", "the id was not used for transactional.id.expiration.ms: its coordinator forgets it"),
    ("Elected as the txn coordinator", "the coordinator of a partition of __transaction_state has moved here"),
    ("Resigned as the txn coordinator", "the coordinator of a partition of __transaction_state has moved away"),
    (
        "loading transaction metadata",
        "the coordinator loads its log: until then it answers COORDINATOR_LOAD_IN_PROGRESS",
    ),
    ("Epoch of producer", "a write with an old producer epoch was refused: another client or a timeout has ended it"),
    ("Expected transactional write", "a write outside of a transaction was refused, because one is open"),
    ("sequence number for producer", "a batch was refused because one before it is missing"),
)


def _log_lines(text: str, origin: Origin) -> Recognised | None:
    rows_by_key: dict[tuple[object, ...], ToldRow] = {}
    for number, line in enumerate(text.splitlines(), 1):
        row = _of_line(line[:_LONGEST_LINE], origin)
        if row is not None:
            key = row.what, row.transactional_id, row.producer_id, row.topic_partition
            earlier = rows_by_key.setdefault(key, replace(row, line=number, times=0))
            rows_by_key[key] = replace(earlier, producer_epoch=row.producer_epoch, times=earlier.times + 1)
    if not rows_by_key:
        return None
    return Recognised("lines of a log", list(rows_by_key.values()))


def _of_line(line: str, origin: Origin) -> ToldRow | None:
    word = word_in(line) if " " in line else None
    means = next((meaning for part, meaning in _MEANINGS if part in line), None)
    if word is None and means is None and _OF_COORDINATOR.search(line) is None:
        return None
    name = _name_in(line)
    producer, epoch, at = _PRODUCER.search(line), _EPOCH.search(line), _first_partition(line)
    producer_id = _number(producer[1]) if producer is not None else None
    if word is None and name is None and producer_id is None and at is None and means is None:
        return None
    about = [
        *([f"transactional id {quoted(name)}"] if name is not None else []),
        *([f"producer id {producer_id}"] if producer_id is not None else []),
        *([str(at)] if at is not None else []),
    ]
    said = means or (means_text(word) if word is not None else "a line of a transaction coordinator or of its client")
    if means is None and word is None and not about:
        return None
    return ToldRow(
        0,
        f"{', '.join(about)}: {said}" if about else said,
        transactional_id=name,
        producer_id=producer_id,
        producer_epoch=_number(epoch[1] or epoch[2]) if epoch is not None else None,
        topic_partition=str(at) if at is not None else None,
        next=_next(origin, name, producer_id, at) or (command_of(origin, word) if word else check_cluster(origin)),
    )


def _name_in(line: str) -> str | None:
    """The transactional id that a line names."""
    owned = _OWNED.search(line)
    if owned is not None and (words := line[: owned.start()].split()):
        return words[-1]
    return next((match["id"] for pattern in _IDS if (match := pattern.search(line)) is not None), None)


def _first_partition(line: str) -> TopicPartition | None:
    """The first partition that a line names, but for the one of the coordinators' log."""
    for name in _PARTITION.findall(line):
        try:
            at = TopicPartition.parse(name)
        except ValueError:
            continue
        if at.topic != TRANSACTION_STATE_TOPIC and is_topic_name(at.topic):
            return at
    return None


def _next(origin: Origin, name: str | None, producer_id: int | None, at: TopicPartition | None) -> str | None:
    """The command for the most telling of these."""
    if name is not None:
        return explain_id(origin, name)
    if at is not None:
        return explain_partition(origin, at)
    return explain_producer(origin, producer_id) if producer_id is not None else None


# Statistics of librdkafka (`statistics.interval.ms`): a JSON object for each client and interval.

_FATAL = "its client must be closed: it can begin no transaction any more"
_STATES = {
    "InTransaction": "a transaction is open in this client",
    "BeginCommit": "it commits, and its coordinator has not answered",
    "CommittingTransaction": "it commits, and its coordinator has not answered",
    "BeginAbort": "it aborts, and its coordinator has not answered",
    "AbortingTransaction": "it aborts, and its coordinator has not answered",
    "AbortableError": "the client must abort the transaction, and has not yet",
    "FatalError": _FATAL,
    "WaitPID": "InitProducerId is not answered: init_transactions waits",
    "Ready": "no transaction is open in this client",
}


def _statistics(text: str, origin: Origin) -> Recognised | None:
    clients = [
        (number, client)
        for number, client in _objects(text)
        if client.get("type") in {"producer", "consumer"} and isinstance(client.get("topics"), dict)
    ]
    rows = [
        row
        for number, client in clients
        for row in (*_of_client(origin, client, number), *_of_partitions(origin, client["topics"], number))
    ]
    note = "the statistics name no transactional id: `txnwatch explain` finds it by the producer id"
    return Recognised("statistics of librdkafka", rows, (note,)) if clients else None


def _objects(text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The JSON objects at the end of a line each, or the one that is the whole text."""
    for number, part in ((1, text), *enumerate(text.splitlines(), 1)):
        at = part.find("{")
        if at < 0 or '"topics"' not in part:
            continue
        try:
            value = json.JSONDecoder().raw_decode(part, at)[0]
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield number, value
        if part is text:
            return


def _of_client(origin: Origin, client: Mapping[str, Any], line: int) -> Iterator[ToldRow]:
    eos = client.get("eos")
    if not isinstance(eos, dict):
        return
    state, producer_id, epoch = (eos.get(name) for name in ("txn_state", "producer_id", "producer_epoch"))
    if not isinstance(producer_id, int) or not 0 <= producer_id <= INT64:
        producer_id = None
    means = _STATES.get(str(state))
    what = (
        f"client {quoted(str(client.get('name', '')))}: transaction state {str(state)[:40]!r}"
        f"{f' ({means})' if means else ''}, idempotence {str(eos.get('idemp_state'))[:40]!r}, producer id "
        f"{producer_id if producer_id is not None else 'none'}, epoch {epoch if isinstance(epoch, int) else 'none'}"
    )
    yield ToldRow(
        line,
        what,
        producer_id=producer_id,
        producer_epoch=epoch if isinstance(epoch, int) else None,
        transaction_state=str(state)[:40],
        next=explain_producer(origin, producer_id) if producer_id is not None else check_cluster(origin),
    )


def _of_partitions(origin: Origin, topics: Mapping[str, Any], line: int) -> Iterator[ToldRow]:
    """The partitions that this consumer reads and whose last stable offset is below the end."""
    for topic, of_topic in topics.items():
        partitions = of_topic.get("partitions") if isinstance(of_topic, dict) else None
        for number, partition in partitions.items() if isinstance(partitions, dict) else ():
            at = _partition(topic, str(number))
            stable, end = (
                (partition.get(name) for name in ("ls_offset", "hi_offset")) if isinstance(partition, dict) else (0, 0)
            )
            if at is None or not (isinstance(stable, int) and isinstance(end, int) and 0 <= stable < end):
                continue
            what = f"{at}: read_committed stops at {stable} of {end}: a transaction is open there"
            yield ToldRow(line, what, topic_partition=str(at), next=explain_partition(origin, at))
