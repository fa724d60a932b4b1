"""The next command for an operator, ready to be pasted: txnwatch's own, with the connection of the run that says it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from txnwatch.state.ids import TopicPartition
from txnwatch.state.outcome import UNKNOWN

_COMMIT = "commit"


@dataclass(frozen=True, slots=True)
class Origin:
    """What every event of one run shares; `command_config` is the client properties file it was given."""

    cluster_id: str
    bootstrap_servers: str
    command_config: str | None = None


def explain_partition(origin: Origin, partition: TopicPartition) -> str:
    """What holds the partition."""
    return _command(origin, "explain", topic=partition.topic, partition=str(partition.partition))


def explain_id(origin: Origin, transactional_id: str) -> str:
    """What the transactional id is doing."""
    return _command(origin, "explain", transactional_id=transactional_id)


def rehearse_abort(origin: Origin, partition: TopicPartition, start_offset: int) -> str:
    """What ending it would mean, without ending it."""
    where = {"topic": partition.topic, "partition": str(partition.partition), "start_offset": str(start_offset)}
    return f"{_command(origin, 'abort', **where)} --dry-run"


def end_hanging(origin: Origin, partition: TopicPartition, start_offset: int, expected_outcome: str) -> str:
    """The marker that is missing; where nobody knows which one, the command that tells more."""
    if expected_outcome == UNKNOWN:
        return explain_partition(origin, partition)
    where = {"topic": partition.topic, "partition": str(partition.partition), "start_offset": str(start_offset)}
    return _command(origin, "abort", **where, **({"result": _COMMIT} if expected_outcome == _COMMIT else {}))


def _command(origin: Origin, verb: str, **flags: str) -> str:
    connection = {"bootstrap_server": origin.bootstrap_servers}
    if origin.command_config is not None:
        connection["command_config"] = origin.command_config
    words = ["txnwatch", verb]
    for name, value in {**flags, **connection}.items():
        flag = f"--{name.replace('_', '-')}"
        words += [f"{flag}={value}"] if value.startswith("-") else [flag, value]
    return shlex.join(words)
