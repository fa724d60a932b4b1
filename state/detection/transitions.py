"""The transitions: how one fact changes the state of one producer id.

`apply(producer, fact, barrier) -> Step(producer, emitted)`. Rule 1: every change of a `ProducerState` is made by
span_transitions.py, view_transitions.py, producer_snapshot.py (what leaders describe) or evaluate.py (barriers).
Rule 2: facts are merged, not replayed. A range read twice, or a longer range read after a shorter one, leads to the
same state, because a span is decided by offsets (its start against the markers read) and a coordinator record by its
offset in the log. Rule 3: an end is emitted only if a finding was emitted before.
"""

from __future__ import annotations

from txnwatch.state.detection.span_transitions import after_notice, after_range, held_between_barriers
from txnwatch.state.detection.step import Step
from txnwatch.state.detection.view_transitions import after_log_notice, after_record, after_tombstone
from txnwatch.state.model.facts import PartitionNotice, ProducerSeen, TransactionalIdGone, TransactionSeen
from txnwatch.state.model.ids import NO_BARRIER, TRANSACTION_STATE_TOPIC, BarrierNumber
from txnwatch.state.model.transaction import ProducerState

ProducerFact = ProducerSeen | TransactionSeen | TransactionalIdGone | PartitionNotice


def apply(
    producer: ProducerState,
    fact: ProducerFact,
    barrier_number: BarrierNumber,
    *,
    is_consecutive: bool = True,
    read_since: BarrierNumber = NO_BARRIER,
) -> Step:
    """The producer's state after one fact that was read in the batch of barrier `barrier_number`.

    `is_consecutive` is False if something before the range was not read or is gone. It may be a marker: then data of a
    newer epoch has joined nothing. Or it may be a whole transaction: then it is not known who used an epoch.
    `read_since` is the last barrier whose listed end of the partition is at or below the range (whole_readings.py).
    """
    match fact:
        case ProducerSeen():
            return after_range(producer, fact, barrier_number, is_consecutive=is_consecutive, read_since=read_since)
        case TransactionSeen():
            held = held_between_barriers(producer, fact)
            return after_record(held, fact.view, barrier_number, fact.decided, is_consecutive=is_consecutive)
        case TransactionalIdGone():
            return after_tombstone(producer, fact)
        case PartitionNotice(partition=partition) if partition.topic == TRANSACTION_STATE_TOPIC:
            return after_log_notice(producer, fact)
        case PartitionNotice():
            return after_notice(producer, fact)
