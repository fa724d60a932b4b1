"""The row of one check of `txnwatch doctor`, and the command that grants a right. Pure: no I/O, no clock."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from txnwatch.cli.output import Line
from txnwatch.state.text.grant import Grantee


class Health(StrEnum):
    """The result of a check: `missing` keeps a command from working, `warning` does not."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class CheckRow:
    """One check. `needed_by` has the commands that cannot work without it."""

    check: str
    subject: str
    status: Health
    detail: str
    needed_by: str
    fix: Line | None


@dataclass(frozen=True, slots=True)
class Caller:
    """The user of this command, for the commands that grant a right.

    Attributes:
        principal: the name of the user in Kafka.
        events_topic: the topic of incident events.
    """

    bootstrap_server: str
    principal: str
    events_topic: str
    command_config: str | None = None


def grant_line(caller: Caller, operation: str, *resource: str) -> str:
    """The line that grants an operation on a resource, given as flags of kafka-acls.sh."""
    grantee = Grantee(caller.bootstrap_server, caller.principal, caller.command_config)
    return grantee.line(operation, *resource)
