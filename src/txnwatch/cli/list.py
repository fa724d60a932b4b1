"""`txnwatch list`: the transactional ids of every coordinator, with the age and timeout of open transactions."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from txnwatch.cli.one_shot import add_connection_flags, add_output_flags, ask, id64, int64, kafka_text
from txnwatch.cli.output import CommandAnswer, Duration, Name, NotChecked
from txnwatch.cli.past_ids import FormerOwner, former_owner, former_text
from txnwatch.state.model.errors import ConfigError
from txnwatch.state.model.ports import ListedTransaction
from txnwatch.state.model.transaction import DescribedTransaction, TransactionDescription, TransactionState
from txnwatch.state.model.values import BrokerId, DurationMs, ProducerId, TimestampMs
from txnwatch.streaming.admin.transaction_requests import NEVER_USED_NOTE, Filters, list_filtered
from txnwatch.streaming.admin.transactions import describe_at
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.hidden_participants import hidden_of

_LIVE = tuple(str(state) for state in TransactionState if state.is_live)


@dataclass(frozen=True, slots=True)
class ListedRow:
    """One transactional id; timeout and age are set only while a transaction is open."""

    transactional_id: Name
    coordinator: BrokerId
    producer_id: ProducerId
    transaction_state: str
    transaction_timeout_ms: DurationMs | None
    open_for_ms: Duration | None


ORDERS: dict[str, Callable[[ListedRow], tuple[Any, ...]]] = {
    "id": lambda row: (row.transactional_id, row.coordinator),
    "age": lambda row: (row.open_for_ms is None, -(row.open_for_ms or 0), row.transactional_id, row.coordinator),
}


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse's private type
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "list", help="list transactional ids", description="Lists the transactional ids of every coordinator."
    )
    add_connection_flags(parser)
    parser.add_argument(
        "--duration-filter", type=int64, metavar="MS", help="only transactions that have been open for longer than this"
    )
    parser.add_argument(
        "--transactional-id-pattern",
        type=kafka_text,
        metavar="REGEX",
        help="only ids whose whole name matches; works with every release of Kafka",
    )
    parser.add_argument(
        "--state",
        action="append",
        choices=[str(state) for state in TransactionState],
        default=[],
        metavar="STATE",
        help="only ids in this state, for example Ongoing; may be given several times",
    )
    parser.add_argument(
        "--producer-id",
        action="append",
        type=id64,
        default=[],
        metavar="ID",
        help="only ids that have this producer id now",
    )
    parser.add_argument(
        "--sort",
        choices=tuple(ORDERS),
        default="id",
        help="id: by transactional id; age: what has been open for the longest time first (default: %(default)s)",
    )
    add_output_flags(parser, found_if="the answer has an id")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Lists the ids once."""
    filters = filters_of(parsed)
    return ask(parsed, lambda cluster: _answer(cluster, filters, ORDERS[parsed.sort]))


def filters_of(parsed: argparse.Namespace) -> Filters:
    """The filters from the flags.

    A broker's duration filter also returns ids without an open transaction; a filter on states excludes them.

    Raises:
        ConfigError: the pattern is invalid, or no given state can have a duration.
    """
    states = tuple(parsed.state)
    given_ms = parsed.duration_filter
    longer_than_ms = given_ms if given_ms is not None and given_ms >= 0 else None  # -1 is Kafka's value of no filter
    if longer_than_ms is not None:
        states = tuple(state for state in _LIVE if not states or state in states)
        if not states:
            given = ", ".join(parsed.state)
            raise ConfigError(f"--duration-filter: expected an open --state ({', '.join(_LIVE)}), found {given}")
    if parsed.transactional_id_pattern is not None:
        try:
            re.compile(parsed.transactional_id_pattern)
        except re.error as exc:
            raise ConfigError(f"--transactional-id-pattern: expected a regular expression, found: {exc}") from exc
    return Filters(states, tuple(parsed.producer_id), longer_than_ms, parsed.transactional_id_pattern)


def _answer(cluster: Cluster, filters: Filters, order: Callable[[ListedRow], tuple[Any, ...]]) -> CommandAnswer:
    listing = list_filtered(cluster, filters)
    listed = listing.rows
    if filters.pattern is not None:  # brokers before 4.1 do not filter by pattern
        listed = [row for row in listed if re.fullmatch(filters.pattern, row.transactional_id)]
    live: dict[BrokerId, list[str]] = {}
    for row in listed:
        if row.state.is_live:
            live.setdefault(row.coordinator, []).append(row.transactional_id)
    described = describe_at(cluster, live)  # only details: one that is missing stays empty
    hidden = hidden_of(cluster, described.values())
    now_ms = wall_clock_ms()
    rows = sorted((_row(row, described.get(row.transactional_id), now_ms) for row in listed), key=order)
    longer_than_ms = filters.longer_than_ms
    if longer_than_ms is not None:  # brokers before 3.8 do not filter by duration
        rows = [row for row in rows if row.open_for_ms is None or row.open_for_ms > longer_than_ms]
    listed_ids = {row.producer_id for row in listing.rows}
    owners = {
        producer_id: former_owner(cluster, producer_id)
        for producer_id in filters.producer_ids
        if producer_id not in listed_ids
    }
    missing = {
        f"the former owner of producer id {producer_id}": owner.problem
        for producer_id, owner in owners.items()
        if owner.problem
    }
    return CommandAnswer(
        command="list",
        cluster_id=cluster.known.cluster_id,
        row_type=ListedRow,
        rows=rows,
        not_checked=tuple(NotChecked(what, str(why)) for what, why in (listing.problems | hidden | missing).items()),
        found=bool(rows),
        notes=(
            *((NEVER_USED_NOTE,) if listing.is_unused else ()),
            *(former_text(producer_id, owner) for producer_id, owner in owners.items()),
        ),
        also={"former_owners": [_former(producer_id, owner) for producer_id, owner in owners.items()]}
        if owners
        else {},
    )


def _former(producer_id: ProducerId, owner: FormerOwner) -> dict[str, Any]:
    """Who had a producer id that no transactional id has now."""
    expired_ms = owner.expired.timestamp_ms if owner.expired is not None else None
    return {"producer_id": producer_id, "transactional_id": owner.transactional_id, "expired_ms": expired_ms}


def _row(row: ListedTransaction, described: TransactionDescription | None, now_ms: TimestampMs) -> ListedRow:
    live = described if isinstance(described, DescribedTransaction) and described.is_live else None
    same = live if live is not None and live.producer_id == row.producer_id else None
    return ListedRow(
        transactional_id=row.transactional_id,
        coordinator=row.coordinator,
        producer_id=row.producer_id,
        transaction_state=str(row.state),
        transaction_timeout_ms=same.timeout_ms if same is not None else None,
        open_for_ms=now_ms - same.start_ms if same is not None and same.start_ms is not None else None,
    )
