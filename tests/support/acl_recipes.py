"""The ACLs of each use of txnwatch: the recipes of docs/rights.md, which tests grant and take away on a real broker."""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from txnwatch.config import EVENTS_TOPIC
from txnwatch.state.model.ids import TRANSACTION_STATE_TOPIC

_FLAG = {
    ResourceType.TOPIC: "--topic",
    ResourceType.GROUP: "--group",
    ResourceType.TRANSACTIONAL_ID: "--transactional-id",
    ResourceType.BROKER: "--cluster",
}


@dataclass(frozen=True, slots=True)
class Right:
    """One operation on one resource; `name` may end in `*`: then it is a prefix."""

    operation: AclOperation
    resource: ResourceType
    name: str = "kafka-cluster"

    def __str__(self) -> str:
        """As docs/rights.md names it."""
        where = "the cluster" if self.resource is ResourceType.BROKER else f"{_FLAG[self.resource][2:]} `{self.name}`"
        return f"{self.operation.name} on {where.replace('transactional-id', 'transactional id')}"

    def line(self) -> str:
        """The line of kafka-acls.sh that grants it."""
        words = "".join(word.capitalize() for word in self.operation.name.split("_"))
        flag = _FLAG[self.resource]
        name, is_prefix = self.name.rstrip("*") or "*", self.name.endswith("*") and self.name != "*"
        resource = flag if flag == "--cluster" else f"{flag} '{name}'"
        pattern = " --resource-pattern-type prefixed" if is_prefix else ""
        return f"--add --allow-principal User:txnwatch --operation {words} {resource}{pattern}"

    def binding(self, principal: str) -> AclBinding:
        """The ACL for a user."""
        is_prefix = self.name.endswith("*") and self.name != "*"
        pattern = ResourcePatternType.PREFIXED if is_prefix else ResourcePatternType.LITERAL
        name = self.name.rstrip("*") if is_prefix else self.name
        return AclBinding(
            self.resource, name, pattern, f"User:{principal}", "*", self.operation, AclPermissionType.ALLOW
        )


READ_DATA = Right(AclOperation.READ, ResourceType.TOPIC, "orders*")
READ_LOG = Right(AclOperation.READ, ResourceType.TOPIC, TRANSACTION_STATE_TOPIC)
READ_GROUP_OFFSETS = Right(AclOperation.READ, ResourceType.TOPIC, "__consumer_offsets")
DESCRIBE_IDS = Right(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "*")
DESCRIBE_GROUPS = Right(AclOperation.DESCRIBE, ResourceType.GROUP, "*")
CLUSTER_CONFIGS = Right(AclOperation.DESCRIBE_CONFIGS, ResourceType.BROKER)
TOPIC_CONFIGS = Right(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "orders*")
GROUP_CONFIGS = Right(AclOperation.DESCRIBE_CONFIGS, ResourceType.GROUP, "*")
CREATE_EVENTS = Right(AclOperation.CREATE, ResourceType.TOPIC, EVENTS_TOPIC)
WRITE_EVENTS = Right(AclOperation.WRITE, ResourceType.TOPIC, EVENTS_TOPIC)
READ_EVENTS = Right(AclOperation.READ, ResourceType.TOPIC, EVENTS_TOPIC)
WRITE_MARKERS = Right(AclOperation.ALTER, ResourceType.BROKER)
HOLD_LEASE = Right(AclOperation.READ, ResourceType.GROUP, "txnwatch-abort-*")

COMMANDS = (READ_DATA, READ_LOG, READ_GROUP_OFFSETS, DESCRIBE_IDS, DESCRIBE_GROUPS)
WATCH = (*COMMANDS, CLUSTER_CONFIGS, TOPIC_CONFIGS)
SHARE_GROUPS = (GROUP_CONFIGS,)
PUBLISH = (CREATE_EVENTS, WRITE_EVENTS, READ_EVENTS)
ABORT = (WRITE_MARKERS, HOLD_LEASE)
READERS = (READ_EVENTS,)


class Grants:
    """Grants and revokes rights of one user on a broker, as a super user."""

    def __init__(self, bootstrap_servers: str, principal: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        self._principal = principal

    def set(self, wanted: tuple[Right, ...]) -> None:
        """The user has these rights and no others."""
        every = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            f"User:{self._principal}",
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        for future in self._admin.delete_acls([every]).values():
            future.result(30.0)
        bindings = [right.binding(self._principal) for right in wanted]
        for future in (self._admin.create_acls(bindings) if bindings else {}).values():
            future.result(30.0)
