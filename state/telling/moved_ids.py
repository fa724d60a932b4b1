"""What is said about an id whose records are in another partition of `__transaction_state` than that of its name.

A coordinator finds an id only in the partition of its name: the hash of the name, modulo the number of partitions. If
this number is changed, about half of the ids get another partition or more, and their records stay where they are
(KAFKA-7771). Once the brokers have restarted, no coordinator finds such an id: nobody ends its open transaction, and
its application gets a new producer id when it starts. Pure: no I/O, no clock.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, ProducerId, TopicPartition, log_numbered

_CHANGED: Final = f"number of partitions of {TRANSACTION_STATE_TOPIC} was changed (KAFKA-7771)"


class MovedId(NamedTuple):
    """An id with records outside of its partition.

    Attributes:
        was: the number of the partition that has the records.
        belongs: the number of the partition that a coordinator looks into, of `partitions`.
        last: the state in the last record there; None for a tombstone.
        producer_id: that of the last record with one.
    """

    transactional_id: str
    was: int
    belongs: int
    partitions: int
    last: TransactionState | None
    producer_id: ProducerId | None

    @property
    def log(self) -> TopicPartition:
        """The partition that has the records."""
        return log_numbered(self.was)


def moved_text(moved: MovedId) -> str:
    """What happened, as a sentence."""
    return (
        f"The {_CHANGED}: the records of this id are in {moved.log}, and with {moved.partitions} partitions it belongs "
        f"to {log_numbered(moved.belongs)}."
    )


def last_text(moved: MovedId) -> str:
    """What its last record there says about its transaction."""
    what = f"Its last record there{_of_producer(moved)}"
    match moved.last:
        case TransactionState.ONGOING:
            return f"{what} is Ongoing: no end was decided, so as far as the log shows nothing of it was committed."
        case TransactionState.PREPARE_COMMIT | TransactionState.PREPARE_ABORT | TransactionState.PREPARE_EPOCH_FENCE:
            return f"{what} is {moved.last}: its end was decided, and a marker may be missing."
        case None:
            return f"{what} is a tombstone: it had expired there."
        case _:
            return f"{what} is {moved.last}: no transaction of it was open there."


def _of_producer(moved: MovedId) -> str:
    return f", of producer id {moved.producer_id}," if moved.producer_id is not None else ""


def known_text(moved: MovedId, producer_id: ProducerId) -> str:
    """What that means for an id that a coordinator knows, with this producer id."""
    if moved.producer_id != producer_id:
        return f"{last_text(moved)} Its application has started again since, with producer id {producer_id}."
    return (
        "Its coordinator still knows it. After the next restart of the brokers none does: end its transaction before."
    )


def fence_text(moved: MovedId) -> str:
    """Why a fence of such an id does not help."""
    return (
        f"no coordinator finds it, but it has not expired. {moved_text(moved)} {last_text(moved)} A fence would create "
        f"the id again in {log_numbered(moved.belongs)}, with another producer id: it would end nothing, and fence "
        "nobody. Who has the former producer id cannot begin or end a transaction (INVALID_PRODUCER_ID_MAPPING)"
    )
