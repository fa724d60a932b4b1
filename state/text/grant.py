"""The command line that grants a right, for messages and for `txnwatch doctor`. Pure: no I/O, no clock."""

from __future__ import annotations

from dataclasses import dataclass

from txnwatch.state.text.escape import shell_line


@dataclass(frozen=True, slots=True)
class Grantee:
    """The user who needs a right, and where it is granted.

    Attributes:
        principal: the name of the user in Kafka.
        command_config: the client properties file of the connection; None without one.
    """

    bootstrap_server: str
    principal: str
    command_config: str | None = None

    def line(self, operation: str, *resource: str) -> str:
        """The line of kafka-acls.sh that grants an operation on a resource, given as flags of kafka-acls.sh."""
        config = ("--command-config", self.command_config) if self.command_config is not None else ()
        return shell_line(
            [
                *("kafka-acls.sh", "--bootstrap-server", self.bootstrap_server, *config, "--add"),
                *("--allow-principal", self.principal, "--operation", operation, *resource),
            ]
        )
