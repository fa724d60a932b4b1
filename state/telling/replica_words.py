"""What is said about partitions with too few in-sync replicas or without a leader: what is missing, and what to do.

A restart of the broker that has the last in-sync replica takes the partition offline. So the brokers that must not be
restarted are named beside those that have to come back. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from txnwatch.state.model.partition_replicas import PartitionReplicas
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, BrokerId
from txnwatch.state.text import grouped, some

_NAMED = 3
BLOCKED_MEANS = "neither a marker nor a record with acks=all can be written"
LAST_MEANS = "a restart of the broker that is in sync takes the partition offline"


def replicas_text(state: PartitionReplicas) -> str:
    """The replicas of a partition as a part of a sentence."""
    if state.leader is None:
        last = f", in sync last: {_brokers(state.in_sync_last)}" if state.in_sync_last else ""
        return f"no leader (replicas on {_brokers(state.replicas)}{last})"
    least = f", min.insync.replicas {state.min_in_sync}" if state.min_in_sync is not None else ""
    return f"{len(state.in_sync)} of {len(state.replicas)} in sync{_missing(state)}{least}"


def blocked_lines(blocked: Sequence[PartitionReplicas]) -> Iterator[str]:
    """What is missing, and what cannot be written because of it; partitions of which the same is said share a line."""
    for text, names in grouped((str(state.partition), _blocked_text(state)) for state in blocked).items():
        yield f"{some(names, _NAMED)}: {text}."


def _blocked_text(state: PartitionReplicas) -> str:
    if state.partition.topic == TRANSACTION_STATE_TOPIC:
        return (
            f"{replicas_text(state)}: the coordinator cannot write its log, so no transaction of its ids begins or ends"
        )
    return f"{replicas_text(state)}: {BLOCKED_MEANS}"


def last_lines(last: Sequence[PartitionReplicas]) -> Iterator[str]:
    """Which brokers must not be restarted, although their partitions can be written as far as it is known."""
    for text, names in grouped((str(state.partition), _last_text(state)) for state in last).items():
        yield f"{some(names, _NAMED)}: {text}"


def _last_text(state: PartitionReplicas) -> str:
    unknown = " If min.insync.replicas, which is not shown, is above 1, no marker can be written there."
    doubt = unknown if state.min_in_sync is None else ""
    return f"{replicas_text(state)}: {LAST_MEANS}. Do not restart {_brokers(state.in_sync)}.{doubt}"


def repair_step(blocked: Iterable[PartitionReplicas]) -> str:
    """What to do, and which brokers must not be restarted meanwhile."""
    return " ".join(dict.fromkeys(_repair(state) for state in blocked))


def _repair(state: PartitionReplicas) -> str:
    if state.leader is None:
        if state.in_sync_last:
            return f"Bring {_brokers(state.in_sync_last, 'or')} back: no other broker may lead it."
        return f"Bring {_brokers(state.replicas)} back: which of them may lead it is not known."
    behind = tuple(broker for broker in state.missing if broker not in state.away)
    back = (
        f"Bring {_wanted(state, state.away)} back"
        if state.away
        else f"Find out why {_brokers(behind)} does not catch up"
    )
    return f"{back}; do not restart {_brokers(state.in_sync, 'or')}."


def _wanted(state: PartitionReplicas, away: tuple[BrokerId, ...]) -> str:
    """The brokers that have to come back: any of them, or all."""
    lacking = (state.min_in_sync or 0) - len(state.in_sync)
    return _brokers(away, "or" if lacking < len(away) else "and")


def _missing(state: PartitionReplicas) -> str:
    behind = tuple(broker for broker in state.missing if broker not in state.away)
    parts = [
        f"{_brokers(brokers)} {'is' if len(brokers) == 1 else 'are'} {what}"
        for brokers, what in ((state.away, "missing"), (behind, "behind"))
        if brokers
    ]
    return f" ({', '.join(parts)})" if parts else ""


def _brokers(brokers: Sequence[BrokerId], word: str = "and") -> str:
    """`broker 1`, `brokers 1 and 2`, `broker 1 or 2`."""
    *first, last = map(str, brokers)
    if not first:
        return f"broker {last}"
    return f"{'brokers' if word == 'and' else 'broker'} {', '.join(first)} {word} {last}"
