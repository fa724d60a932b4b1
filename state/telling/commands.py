"""The next command, with the connection settings of the run that suggests it. Pure: no I/O, no clock.

Law: a command is built from the fields of an event, and never taken from it. Whoever may write the events topic or
Redis can store any command there, and can name a healthy transaction as one that hangs. So an event that was read from
there leads to a command that only reads (`look_at`); that one reads everything again, and prints the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Final

from txnwatch.state.abort.fencing import may_begin_again
from txnwatch.state.model.incident import EventsFlags, ExpectedOutcome, IncidentEvent, PublishedEvents, start_of
from txnwatch.state.model.ownership import NO_OWNERS, OwnerLookup
from txnwatch.state.model.transaction import DescribedTransaction, ProducerIdentity
from txnwatch.state.model.values import CoordinatorAccess, PartitionOffset, TopicPartition, is_topic_name
from txnwatch.state.model.verdicts import RULE_OF
from txnwatch.state.text import shell_line


@dataclass(frozen=True, slots=True)
class Origin:
    """What all events of one run share.

    `command_config` is the run's client properties file; `coordinator_view` is how its evidence was found; `owners` is
    the table of owners; `cluster_name` is None for the cluster id; `instance` is the name of the watch, None for a
    command; `published` reads the events topic, for a command that shows what watchers say.
    """

    cluster_id: str
    bootstrap_servers: str
    command_config: str | None = None
    events: EventsFlags = field(default_factory=EventsFlags)
    coordinator_view: CoordinatorAccess = CoordinatorAccess.LOG
    owners: OwnerLookup = NO_OWNERS
    cluster_name: str | None = None
    instance: str | None = None
    published: Callable[[], PublishedEvents] = PublishedEvents

    @property
    def cluster(self) -> str:
        """How the cluster is called: its name, or its id."""
        return self.cluster_name if self.cluster_name is not None else self.cluster_id


def origin_without_cluster(bootstrap_servers: str | None = None, command_config: object = None) -> Origin:
    """The same where no cluster is asked, and a server may not be given."""
    return Origin("", bootstrap_servers or "SERVER", str(command_config) if command_config is not None else None)


_LOOK: Final = "txnwatch explain "
_FENCE: Final = "txnwatch fence "


def audit_again(origin: Origin) -> str:
    """The command that makes all checks of the audit."""
    return _command(origin, "audit")


def explain_partition(origin: Origin, partition: TopicPartition) -> str:
    """The command that explains what holds the partition."""
    return _look(origin, topic=partition.topic, partition=str(partition.partition))


def describe_producers(origin: Origin, partition: TopicPartition) -> str:
    """The command that lists the producers of the partition, with what each has open."""
    return _command(origin, "describe-producers", topic=partition.topic, partition=str(partition.partition))


def explain_id(origin: Origin, transactional_id: str) -> str:
    """The command that explains what the transactional id is doing."""
    return _look(origin, transactional_id=transactional_id)


def explain_group(origin: Origin, group_id: str) -> str:
    """The command that explains what a consumer group waits for."""
    return _look(origin, group=group_id)


def explain_named(origin: Origin, name: str) -> str:
    """The command that explains whatever has this name, for example a topic or a partition."""
    return _command(origin, f"explain {name}")


def explain_producer(origin: Origin, producer_id: int) -> str:
    """The command that explains who has or had a producer id."""
    return explain_named(origin, str(producer_id))


def records_of_id(origin: Origin, transactional_id: str) -> str:
    """The command that decodes the records of a transactional id."""
    return _command(origin, "decode", transactional_id=transactional_id)


def find_hanging(origin: Origin) -> str:
    """The command that searches the whole cluster for hanging transactions."""
    return _command(origin, "find-hanging")


def list_open(origin: Origin) -> str:
    """The command that lists the open transactions of all ids, the oldest first."""
    return _command(origin, "list", duration_filter="0", sort="age")


def check_cluster(origin: Origin) -> str:
    """The command that checks brokers, rights, logs and clocks."""
    return _command(origin, "doctor")


def read_events(origin: Origin, incident_id: str) -> str:
    """The command that reads the events of an incident from the events topic."""
    return _command(origin, "events", incident=incident_id, **_flags_to_read_events(origin))


def rehearse_end(
    origin: Origin, event: IncidentEvent, owner: DescribedTransaction | None, said: ExpectedOutcome | None = None
) -> str:
    """The command that shows the next step of an end: the fence, while the id may use the epoch of the data again.

    Else it is the abort, with the marker that fits what a watcher has said; it changes nothing.
    """
    if owner is not None and may_begin_again(owner, _written_by(event)):
        return f"{fence_owner(origin, event, owner.transactional_id)} --dry-run"
    return f"{_end_with(origin, event, said)} --dry-run"


def abort_marker(origin: Origin, place: PartitionOffset) -> str:
    """The command that writes the ABORT marker, for a person who knows more than the command."""
    return _abort(origin, place)


def with_command(origin: Origin, event: IncidentEvent, owner: DescribedTransaction | None = None) -> IncidentEvent:
    """The event of a finding of this process with its next command; `owner` is the id that has the producer id.

    Without a known outcome it is a look. An abort is refused while the id may begin a transaction under the epoch of
    the data, so the fence comes first.
    """
    if not RULE_OF[event.verdict].needs_marker or event.expected_outcome is ExpectedOutcome.UNKNOWN:
        return replace(event, suggested_command=look_at(origin, event))
    command = _end_with(origin, event, event.expected_outcome)
    if owner is not None and may_begin_again(owner, _written_by(event)):
        command = f"{fence_owner(origin, event, owner.transactional_id)} && {command}"
    return replace(event, suggested_command=command)


def _written_by(event: IncidentEvent) -> ProducerIdentity:
    return ProducerIdentity(event.producer_id, event.producer_epoch)


def look_at(origin: Origin, event: IncidentEvent) -> str | None:
    """The command that reads the incident's subject again, and changes nothing; None if the fields name no subject."""
    if event.topic is None:
        return explain_id(origin, event.transactional_id) if event.transactional_id is not None else None
    if event.partition is None or event.partition < 0 or not is_topic_name(event.topic):
        return None
    return explain_partition(origin, TopicPartition(event.topic, event.partition))


def as_read(origin: Origin, event: IncidentEvent) -> IncidentEvent:
    """An event that anybody may have written, with a command that is built here; an event without one gets none."""
    is_to_do = event.is_open and event.suggested_command is not None
    return replace(event, suggested_command=look_at(origin, event) if is_to_do else None)


def is_look(command: str) -> bool:
    """Whether a command of this module only reads."""
    return command.startswith(_LOOK)


def has_fence(command: str) -> bool:
    """Whether a command of this module fences an id before it ends a transaction."""
    return command.startswith(_FENCE)


def fence(origin: Origin, transactional_id: str, identity: ProducerIdentity) -> str:
    """The command that fences the client of a transactional id, if it still has this producer id and epoch."""
    return _change(origin, "fence", {"transactional_id": transactional_id, **_flags_of(identity)})


def fence_owner(origin: Origin, event: IncidentEvent, transactional_id: str) -> str:
    """The same for a hang, and only while its data hangs: a marker that came late has made the fence unnecessary."""
    owner = {"transactional_id": transactional_id, **_flags_of(_written_by(event))}
    return _change(origin, "fence", owner | _flags_at(start_of(event).place))


def _end_with(origin: Origin, event: IncidentEvent, outcome: ExpectedOutcome | None) -> str:
    """The abort with the marker of this outcome."""
    result = {"result": "commit"} if outcome is ExpectedOutcome.COMMIT else {}
    return _abort(origin, start_of(event).place, **result)


def _abort(origin: Origin, place: PartitionOffset, **flags: str) -> str:
    return _change(origin, "abort", _flags_at(place) | flags)


def _change(origin: Origin, verb: str, flags: Mapping[str, str]) -> str:
    """With the flags for the run's events, so that the change is published there."""
    return _command(origin, verb, **flags, **_flags_of_events(origin))


def _look(origin: Origin, **flags: str) -> str:
    """With the flags for the run's events: what a watcher says there is shown."""
    return _command(origin, "explain", **flags, **_flags_to_read_events(origin))


def _flags_to_read_events(origin: Origin) -> dict[str, str]:
    return {name: value for name, value in _flags_of_events(origin).items() if name != "events_format"}


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
    arguments = ["txnwatch", *verb.split()]
    for name, value in {**flags, **connection}.items():
        arguments += _flag(name.replace("_", "-"), value)
    return shell_line(arguments)


def _flag(name: str, value: str) -> list[str]:
    return [f"--{name}={value}"] if value.startswith("-") else [f"--{name}", value]
