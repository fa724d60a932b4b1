"""What all events of one run share (`Origin`), and the next command for an operator, ready to paste, that has it.

Most modules import this one for `Origin` alone. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from txnwatch.state.abort.fencing import ProducerIdentity, may_begin_again
from txnwatch.state.model.incident import (
    ExpectedOutcome,
    IncidentEvent,
    start_of,
)
from txnwatch.state.model.ownership import NO_OWNERS, OwnerLookup
from txnwatch.state.model.transaction import DescribedTransaction
from txnwatch.state.model.values import (
    CoordinatorAccess,
    PartitionOffset,
    TopicPartition,
    is_topic_name,
)
from txnwatch.state.model.verdicts import Verdict
from txnwatch.state.text import shell_line

# What all events of one run share.


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

    `command_config` is the run's client properties file; `coordinator_view` is how its evidence was found; `owners` is
    the table of owners.
    """

    cluster_id: str
    bootstrap_servers: str
    command_config: str | None = None
    events: EventsFlags = field(default_factory=EventsFlags)
    coordinator_view: CoordinatorAccess = CoordinatorAccess.LOG
    owners: OwnerLookup = NO_OWNERS


# The next command, with the connection settings of the run that suggests it.

_OUTCOMES = frozenset({ExpectedOutcome.ABORT, ExpectedOutcome.COMMIT, ExpectedOutcome.NONE})


def explain_partition(origin: Origin, partition: TopicPartition) -> str:
    """The command that explains what holds the partition."""
    return _command(origin, "explain", topic=partition.topic, partition=str(partition.partition))


def explain_id(origin: Origin, transactional_id: str) -> str:
    """The command that explains what the transactional id is doing."""
    return _command(origin, "explain", transactional_id=transactional_id)


def read_events(origin: Origin, incident_id: str) -> str:
    """The command that reads the events of an incident from the events topic."""
    events = {name: value for name, value in _flags_of_events(origin).items() if name != "events_format"}
    return _command(origin, "events", incident=incident_id, **events)


def rehearse_abort(origin: Origin, place: PartitionOffset) -> str:
    """The command that shows what an abort would do, without the abort."""
    return f"{_abort(origin, place)} --dry-run"


class HangingData(NamedTuple):
    """A transaction that hangs: where it begins, who wrote it, and how it would have ended."""

    place: PartitionOffset
    written_by: ProducerIdentity
    expected_outcome: str


def data_of(incident: IncidentEvent) -> HangingData:
    """The data of an incident about a hanging transaction."""
    written_by = ProducerIdentity(incident.producer_id, incident.producer_epoch)
    return HangingData(start_of(incident).place, written_by, incident.expected_outcome)


def end_hanging(origin: Origin, data: HangingData, owner: DescribedTransaction | None) -> str:
    """The command that writes the missing marker; if its kind is unknown, the command that explains the partition.

    `owner` is the id that has the producer id. An abort is refused while it may begin a transaction under the epoch of
    the data, so the fence comes first.
    """
    if data.expected_outcome == ExpectedOutcome.UNKNOWN:
        return explain_partition(origin, data.place.partition)
    result = {"result": ExpectedOutcome.COMMIT} if data.expected_outcome == ExpectedOutcome.COMMIT else {}
    abort = _abort(origin, data.place, **result)
    if owner is None or not may_begin_again(owner, data.written_by):
        return abort
    return f"{fence_owner(origin, owner.transactional_id, data)} && {abort}"


def suggested(origin: Origin, event: IncidentEvent) -> str | None:
    """The command for an event that was read from the topic, built anew; the text of the command in it is not used.

    The command only saves typing: `abort` and `explain` read everything themselves. It is never `fence`: whoever may
    write the topic could name the id of a healthy application. An abort that is refused names the id to fence.
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
    written_by = ProducerIdentity(event.producer_id, event.producer_epoch)
    return end_hanging(origin, HangingData(PartitionOffset(partition, start), written_by, event.expected_outcome), None)


def fence(origin: Origin, transactional_id: str, identity: ProducerIdentity) -> str:
    """The command that fences the client of a transactional id, if it still has this producer id and epoch."""
    return _change(origin, "fence", {"transactional_id": transactional_id, **_flags_of(identity)})


def fence_owner(origin: Origin, transactional_id: str, data: HangingData) -> str:
    """The same, and only while its data hangs: a marker that came late has made the fence unnecessary."""
    owner = {"transactional_id": transactional_id, **_flags_of(data.written_by)}
    return _change(origin, "fence", owner | _flags_at(data.place))


def _abort(origin: Origin, place: PartitionOffset, **flags: str) -> str:
    return _change(origin, "abort", _flags_at(place) | flags)


def _change(origin: Origin, verb: str, flags: Mapping[str, str]) -> str:
    """With the flags for the run's events, so that the change is published there."""
    return _command(origin, verb, **flags, **_flags_of_events(origin))


def _flags_of_events(origin: Origin) -> dict[str, str]:
    return {name: value for name, value in asdict(origin.events).items() if value is not None}


def _flags_at(place: PartitionOffset) -> dict[str, str]:
    (topic, partition), start_offset = place
    return {"topic": topic, "partition": str(partition), "start_offset": str(start_offset)}


def _flags_of(identity: ProducerIdentity) -> dict[str, str]:
    return {"producer_id": str(identity.producer_id), "producer_epoch": str(identity.producer_epoch)}


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
