"""How a transaction ended: what a range of the coordinators' log shows, and what follows from it."""

from __future__ import annotations

from typing import NamedTuple

from txnwatch.state.model.ids import ProducerEpoch
from txnwatch.state.model.incident_payload import EndedBy
from txnwatch.state.model.quantities import DurationMs, TimestampMs
from txnwatch.state.model.transaction import TransactionState


class FirstDecision(NamedTuple):
    """The first record of a transactional id in a range that decides a transaction: Prepare*, or Complete* without it.

    Attributes:
        state: the state in the record.
        start_ms: when that transaction began. A new one has another start, but an abort of nothing keeps the start of
            the transaction before.
        producer_epoch: the producer epoch of the record; None if the record gives the id another producer id.
        log_offset: offset of the record.
        record_timestamp_ms: when the record was appended.
        is_next: whether the record directly follows an Ongoing record of the same transaction in the range; None if it
            is the first record of the id, and nothing in the range is missing before it.
    """

    state: TransactionState
    start_ms: TimestampMs | None
    producer_epoch: ProducerEpoch | None
    log_offset: int
    record_timestamp_ms: TimestampMs
    is_next: bool | None


class TransactionEnd(NamedTuple):
    """How one transaction ended, as the coordinators' log proves it.

    Attributes:
        state: the state of the record that shows it: Prepare* or Complete*.
        by: who ended it.
        log_offset: offset of the record in the id's partition of the log.
        open_for_ms: from the start of the transaction to the record, by the timestamps of the coordinators; None if
            nothing had begun since InitProducerId.
    """

    state: TransactionState
    by: EndedBy
    log_offset: int
    open_for_ms: DurationMs | None
