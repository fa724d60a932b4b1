"""Who has or had a producer id, from the coordinators' log: also ids that no coordinator has any more.

An id expires if it is not used for `transactional.id.expiration.ms` (7 days): its coordinator forgets it and writes a
tombstone. Compaction keeps the last record of the id until it cleans that part of the log, and the tombstone for a day
longer. So shortly after an id has expired, the log still has its name, its producer id and the end of its last
transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from txnwatch.cli.output import utc
from txnwatch.state.evidence.past_ends import PastEnd, past_ends
from txnwatch.state.model.ownership import ADVICE_MEANS, Advice
from txnwatch.state.model.transaction import DescribedTransaction, NotDescribed, TransactionDescription
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, ProducerId
from txnwatch.state.text import quoted
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.coordinator_log import LogRecord, history_of, read_records_anywhere, read_views


class FormerOwner(NamedTuple):
    """Who had a producer id that no transactional id has now.

    Attributes:
        transactional_id: None if the log does not name it.
        now: the id as its coordinator describes it now; None without a name.
        expired: its tombstone; None if there is none.
        problem: why the log could not be read to its end.
    """

    transactional_id: str | None
    now: TransactionDescription | None = None
    expired: LogRecord | None = None
    problem: str | None = None


def _name_in_log(cluster: Cluster, producer_id: ProducerId) -> tuple[str | None, str | None]:
    """The id that the log names for a producer id, and why the log was not read to its end; reads all of it."""
    logs = read_views(cluster, [producer_id])
    view = logs.views.get(producer_id)
    problem = next((f"{partition}: {why}" for partition, why in logs.problems.items()), None)
    return (view.transactional_id if view is not None else None), problem


def former_owner(cluster: Cluster, producer_id: ProducerId) -> FormerOwner:
    """Searches the log for the owner of a producer id; reads all of it."""
    name, problem = _name_in_log(cluster, producer_id)
    if name is None:
        return FormerOwner(None, problem=problem)
    now = ClusterAdmin(cluster).describe_transactions([name])[name]
    records, _ = read_records_anywhere(cluster, name)
    return FormerOwner(name, now, tombstone_of(records), problem)


def tombstone_of(records: Sequence[LogRecord]) -> LogRecord | None:
    """The tombstone of an id, if it is its last record."""
    return records[-1] if records and records[-1].value is None else None


def place_of(record: LogRecord) -> str:
    """Where a record is in the log, and when it was appended."""
    return f"{TRANSACTION_STATE_TOPIC}-{record.partition}@{record.offset}, written at {utc(record.timestamp_ms)}"


def nobody_has(producer_id: int | str) -> str:
    """No transactional id has or had the producer id, as far as the log shows; and what that means."""
    return (
        f"No transactional id has producer id {producer_id}, and the coordinators' log names none. It is that of a "
        "producer without a transactional id, or its transactional id expired long ago."
    )


def former_text(producer_id: ProducerId, owner: FormerOwner) -> str:
    """Who had a producer id, and why nobody has it now."""
    if owner.transactional_id is None:
        return nobody_has(producer_id)
    had = f"Producer id {producer_id} was that of transactional id {quoted(owner.transactional_id)}"
    if isinstance(owner.now, DescribedTransaction):
        return f"{had}, which has producer id {owner.now.producer_id} now."
    if isinstance(owner.now, NotDescribed):
        return f"{had}. Whether that id has it now is not known: {owner.now.problem}."
    if owner.expired is not None:
        return f"{had}, which has expired: its tombstone is at {place_of(owner.expired)}."
    return f"{had}, which no coordinator has now."


class OwnerEnds(NamedTuple):
    """The transactional id of a producer id, and how its transactions under it ended; None and empty if not known."""

    transactional_id: str | None
    ends: tuple[PastEnd, ...] = ()


def owner_of(cluster: Cluster, producer_id: ProducerId) -> OwnerEnds:
    """The id that has or had the producer id, and the ends of its transactions under it that the log still shows."""
    listing = ClusterAdmin(cluster).list_transactions([producer_id])
    name = next((row.transactional_id for row in listing.transactions if row.producer_id == producer_id), None)
    if name is None:
        name, _ = _name_in_log(cluster, producer_id)
    if name is None:
        return OwnerEnds(None)
    records, _ = read_records_anywhere(cluster, name)
    return OwnerEnds(name, ends_of(records, producer_id))


def ends_of(records: Sequence[LogRecord], producer_id: ProducerId) -> tuple[PastEnd, ...]:
    """The ends of an id whose markers have a producer id; under another one, the id had the same epochs again.

    The decision names the producer id of the markers: Complete* may name the next one.
    """
    own = {
        (record.partition or 0, record.offset)
        for record in records
        if record.value is not None and record.value.producer_id == producer_id
    }
    ends = past_ends(history_of(records))
    return tuple(end for end in ends if (end.decided.log_partition, end.decided.log_offset) in own)


def last_commit(cluster: Cluster, described: DescribedTransaction) -> PastEnd | None:
    """The last transaction under the producer id of an id, if it was committed under a lower epoch than it has now."""
    records, _ = read_records_anywhere(cluster, described.transactional_id)
    same = [
        record for record in records if record.value is not None and record.value.producer_id == described.producer_id
    ]
    ends = past_ends(history_of(same))
    if not ends or not ends[-1].is_commit or described.producer_epoch is None:
        return None
    epoch = ends[-1].data_epoch
    return ends[-1] if epoch is not None and epoch < described.producer_epoch else None


class GivenAdvice(NamedTuple):
    """What to know before the open transaction of an id is ended.

    Attributes:
        is_usual: the log does not show that it is wrong.
    """

    text: str
    is_usual: bool = True


def usual_advice(advice: Advice) -> GivenAdvice:
    """An advice, if the log is not read."""
    return GivenAdvice(ADVICE_MEANS[advice])


def advice_by_log(cluster: Cluster, advice: Advice, described: DescribedTransaction) -> GivenAdvice:
    """An advice about an id; the log may show that it does not help."""
    last = last_commit(cluster, described)
    if last is None or last.data_epoch is None:
        return usual_advice(advice)
    ended_ms = last.complete_ms if last.complete_ms is not None else last.decided.record_timestamp_ms
    from txnwatch.state.telling.statements import after_a_commit  # noqa: PLC0415 - `list` tells nothing

    return GivenAdvice(after_a_commit(last.data_epoch, utc(ended_ms), described.producer_epoch), is_usual=False)
