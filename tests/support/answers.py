"""Answers of real brokers and of fakes, for tests that expect one and no problem."""

from __future__ import annotations

from txnwatch.state.model.ports import ListedOffset, TransactionAdmin
from txnwatch.state.model.transaction import DescribedTransaction, TransactionDescription, TransactionState
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.client.cluster import LATEST, Cluster


def described(admin: TransactionAdmin, name: str) -> DescribedTransaction:
    """The id as its coordinator describes it."""
    found = admin.describe_transactions([name])[name]
    assert isinstance(found, DescribedTransaction), found
    return found


def state_of(admin: TransactionAdmin, name: str) -> TransactionState | None:
    """The state of the id; None while it is not known or could not be described."""
    found = admin.describe_transactions([name])[name]
    return found.state if isinstance(found, DescribedTransaction) else None


def is_live(description: TransactionDescription) -> bool:
    """Whether a coordinator is known to have a live transaction of the id."""
    return isinstance(description, DescribedTransaction) and description.is_live


def listed(cluster: Cluster, partition: TopicPartition, timestamp: int = LATEST) -> ListedOffset:
    """Where the partition's log ends, or begins."""
    found = cluster.list_offsets([partition], timestamp=timestamp)[partition]
    assert isinstance(found, ListedOffset), found
    return found
