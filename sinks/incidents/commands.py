"""The next command for an operator, ready to paste: with the connection settings of the run that suggests it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from txnwatch.state.model.coordinator_access import CoordinatorAccess
from txnwatch.state.model.ids import TopicPartition, is_topic_name
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.incident_payload import ExpectedOutcome
from txnwatch.state.model.quantities import Offset
from txnwatch.state.model.verdicts import Verdict
from txnwatch.state.text.escape import shell_line

_OUTCOMES = frozenset({ExpectedOutcome.ABORT, ExpectedOutcome.COMMIT, ExpectedOutcome.NONE})


@dataclass(frozen=True, slots=True)
class EventsFlags:
    """Where a run publishes its events, as flags; None omits the flag."""

    events_topic: str | None = None
    events_format: str | None = None
    schema_registry_url: str | None = None
    events_key_file: str | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """What all events of one run share.

    `command_config` is the run's client properties file; `coordinator_view` is how its evidence was found.
    """

    cluster_id: str
    bootstrap_servers: str
    command_config: str | None = None
    events: EventsFlags = field(default_factory=EventsFlags)
    coordinator_view: CoordinatorAccess = CoordinatorAccess.LOG


def explain_partition(origin: Origin, partition: TopicPartition) -> str:
    """The command that explains what holds the partition."""
    return _command(origin, "explain", topic=partition.topic, partition=str(partition.partition))


def explain_id(origin: Origin, transactional_id: str) -> str:
    """The command that explains what the transactional id is doing."""
    return _command(origin, "explain", transactional_id=transactional_id)


def rehearse_abort(origin: Origin, partition: TopicPartition, start_offset: Offset) -> str:
    """The command that shows what an abort would do, without the abort."""
    return f"{_abort(origin, partition, start_offset)} --dry-run"


def end_hanging(origin: Origin, partition: TopicPartition, start_offset: Offset, expected_outcome: str) -> str:
    """The command that writes the missing marker; if its kind is unknown, the command that explains the partition."""
    if expected_outcome == ExpectedOutcome.UNKNOWN:
        return explain_partition(origin, partition)
    result = {"result": ExpectedOutcome.COMMIT} if expected_outcome == ExpectedOutcome.COMMIT else {}
    return _abort(origin, partition, start_offset, **result)


def suggested(origin: Origin, event: IncidentEvent) -> str | None:
    """The command for an event that was read from the topic, built anew; the text of the command in it is not used.

    The command only saves typing: `abort` and `explain` read everything themselves.
    """
    if not event.is_open or event.suggested_command is None:
        return None
    if event.topic is None:
        return explain_id(origin, event.transactional_id) if event.transactional_id is not None else None
    if event.partition is None or event.partition < 0 or not is_topic_name(event.topic):
        return None
    partition, start = TopicPartition(event.topic, event.partition), event.txn_start_offset
    if event.verdict != Verdict.HANGING or start is None or start < 0 or event.expected_outcome not in _OUTCOMES:
        return explain_partition(origin, partition)
    return end_hanging(origin, partition, start, event.expected_outcome)


def fence(origin: Origin, transactional_id: str) -> str:
    """Kafka's own command that fences the client of a transactional id (KIP-939)."""
    arguments = ["kafka-transactions.sh", "--bootstrap-server", origin.bootstrap_servers]
    if origin.command_config is not None:
        arguments += ["--command-config", origin.command_config]
    return shell_line([*arguments, "forceTerminateTransaction", *_flag("transactionalId", transactional_id)])


def _abort(origin: Origin, partition: TopicPartition, start_offset: Offset, **flags: str) -> str:
    """With the flags for the run's events, so that the abort is published there."""
    where = {"topic": partition.topic, "partition": str(partition.partition), "start_offset": str(start_offset)}
    events = {name: value for name, value in asdict(origin.events).items() if value is not None}
    return _command(origin, "abort", **where, **flags, **events)


def _command(origin: Origin, verb: str, **flags: str) -> str:
    connection = {"bootstrap_server": origin.bootstrap_servers}
    if origin.command_config is not None:
        connection["command_config"] = origin.command_config
    arguments = ["txnwatch", verb]
    for name, value in {**flags, **connection}.items():
        arguments += _flag(name.replace("_", "-"), value)
    return shell_line(arguments)


def _flag(name: str, value: str) -> list[str]:
    return [f"--{name}={value}"] if value.startswith("-") else [f"--{name}", value]
