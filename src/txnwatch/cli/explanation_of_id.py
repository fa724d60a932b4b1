"""The explanation of what a transactional id is doing and waits for, as plain text. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable

from txnwatch.cli.event_lines import duration, utc
from txnwatch.cli.explanation import Explanation, end_of, since, verdict_of
from txnwatch.sinks.incidents.commands import Origin, explain_partition
from txnwatch.sinks.incidents.search import Search
from txnwatch.state.evidence.open_data import open_data
from txnwatch.state.model.description import DescribedTransaction, epoch_text
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.policy import TWO_PHASE_TIMEOUT_MS
from txnwatch.state.model.ports import PartitionReading
from txnwatch.state.model.quantities import TimestampMs
from txnwatch.state.model.transaction import TransactionState
from txnwatch.streaming.log.coordinator_log import LogRecord


def of_id(
    origin: Origin,
    described: DescribedTransaction,
    last: LogRecord | None,
    readings: Iterable[PartitionReading],
    now_ms: TimestampMs,
    found: Search,
) -> Explanation:
    """Explains what a transactional id is doing.

    `readings` are of its participants, and of those of its last transaction. `found` has what was proven about its live
    transaction (Searcher.judge).
    """
    known = list(readings)
    if described.is_live:
        return _live_id(described, last, known, now_ms, found)
    name, state = described.transactional_id, described.state
    data = open_data(described.producer_id, known)
    ended_ms = last.timestamp_ms if last is not None else None
    did = "It has not begun a transaction" if state is TransactionState.EMPTY else _ended(described, ended_ms)
    text = [f"{name}: {state}. {did}.", _producer(described)]
    if data.open:
        text.append(f"But its producer has open data on {_names(data.open)}, which no transaction of this id owns.")
    if data.unread:
        text.append(f"It is not known whether it has open data on {_names(data.unread)}: this could not be read.")
    if data.is_nothing_left:
        text.append("It waits for nothing. `txnwatch find-hanging` also finds open data on other partitions.")
    return Explanation(
        target=name,
        state="idle" if data.is_nothing_left else "unproven",
        transactional_id=name,
        producer_id=described.producer_id,
        since_ms=ended_ms,
        hidden_records=None,
        ends_by_itself=None,
        ends_by_ms=None,
        next=explain_partition(origin, data.open[0]) if data.open else None,
        text=tuple(text),
    )


def _ended(described: DescribedTransaction, ended_ms: TimestampMs | None) -> str:
    how = {"commit": "committed", "abort": "aborted"}.get(described.state.outcome or "", str(described.state))
    if ended_ms is None or described.start_ms is None:
        return f"Its last transaction was {how}"
    return f"Its last transaction was {how} at {utc(ended_ms)}, after {duration(ended_ms - described.start_ms)}"


def _live_id(
    described: DescribedTransaction,
    last: LogRecord | None,
    readings: list[PartitionReading],
    now_ms: TimestampMs,
    found: Search,
) -> Explanation:
    end = end_of(described, verdict_of(described, found), found.policy, now_ms)
    name, state = described.transactional_id, described.state
    since_ms = described.start_ms
    how_it_ends = end.text
    if state.is_prepare:
        since_ms = last.timestamp_ms if last is not None else since_ms
        how_it_ends = _waits(described, readings)
    holds = open_data(described.producer_id, readings).open
    text = (
        f"{name}: {state}{since(since_ms, now_ms)}.",
        _producer(described),
        f"It holds {_names(sorted(described.partitions)) or 'nothing'}; open data is on {_names(holds) or 'none'}.",
        how_it_ends,
    )
    return Explanation(
        target=name,
        state=end.state,
        transactional_id=name,
        producer_id=described.producer_id,
        since_ms=since_ms,
        hidden_records=None,
        ends_by_itself=end.by_itself,
        ends_by_ms=end.by_ms,
        next=None,
        text=text,
    )


def _waits(described: DescribedTransaction, readings: list[PartitionReading]) -> str:
    """What a transaction in Prepare* waits for."""
    if not described.partitions:
        return "Every marker is written; only the coordinator's last record is missing."
    data = open_data(described.producer_id, readings, among=described.partitions)
    waits_for = _names(sorted(described.partitions))
    text = f"Its outcome is decided: {described.state.outcome}. It waits for the markers of {waits_for}."
    if data.unread:
        unread = ", ".join(f"{partition} ({problem})" for partition, problem in data.unread.items())
        text += f" Not reachable: {unread}."
    if data.closed:
        text += (
            f" On {_names(data.closed)} it is no longer open: a marker of another writer has closed it there, and the "
            "leader may refuse the coordinator's own marker for ever."
        )
    return text


def _producer(described: DescribedTransaction) -> str:
    timeout = "none" if described.timeout_ms == TWO_PHASE_TIMEOUT_MS else duration(described.timeout_ms)
    producer = f"Producer id {described.producer_id}, {epoch_text(described.producer_epoch)}"
    return f"{producer}, timeout {timeout}, at broker {described.coordinator}."


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(str(partition) for partition in partitions)
