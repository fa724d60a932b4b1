"""The ACLs of each use of txnwatch: the recipes of docs/rights.md, which tests grant and take away on a real broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from support.waiting import eventually
from txnwatch.config import EVENTS_TOPIC
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC

_TIMEOUT_S = 30.0
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

    @property
    def pattern(self) -> tuple[str, ResourcePatternType]:
        """The name of the resource, and how it is compared."""
        if self.name.endswith("*") and self.name != "*":
            return self.name.rstrip("*"), ResourcePatternType.PREFIXED
        return self.name, ResourcePatternType.LITERAL

    def line(self) -> str:
        """The line of kafka-acls.sh that grants it."""
        words = "".join(word.capitalize() for word in self.operation.name.split("_"))
        flag = _FLAG[self.resource]
        name, kind = self.pattern
        resource = flag if flag == "--cluster" else f"{flag} '{name}'"
        pattern = " --resource-pattern-type prefixed" if kind is ResourcePatternType.PREFIXED else ""
        return f"--add --allow-principal User:txnwatch --operation {words} {resource}{pattern}"

    def binding(self, principal: str, permission: AclPermissionType = AclPermissionType.ALLOW) -> AclBinding:
        """The ACL for a user."""
        name, pattern = self.pattern
        return AclBinding(self.resource, name, pattern, f"User:{principal}", "*", self.operation, permission)


READ_DATA = Right(AclOperation.READ, ResourceType.TOPIC, "orders*")
READ_LOG = Right(AclOperation.READ, ResourceType.TOPIC, TRANSACTION_STATE_TOPIC)
DESCRIBE_LOG = Right(AclOperation.DESCRIBE, ResourceType.TOPIC, TRANSACTION_STATE_TOPIC)
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
HOLD_LEASE = Right(AclOperation.READ, ResourceType.GROUP, "txnwatch-speaker-*")

COMMANDS = (READ_DATA, READ_LOG, READ_GROUP_OFFSETS, DESCRIBE_IDS)
WATCH = (*COMMANDS, DESCRIBE_GROUPS, CLUSTER_CONFIGS, TOPIC_CONFIGS)
VIEW_NONE = tuple(right for right in WATCH if right not in (READ_LOG, DESCRIBE_IDS))
VIEW_API = (*VIEW_NONE, DESCRIBE_LOG, DESCRIBE_IDS)
SHARE_GROUPS = (GROUP_CONFIGS,)
ON_EVENTS_TOPIC = (CREATE_EVENTS, WRITE_EVENTS, READ_EVENTS)
PUBLISH = (*ON_EVENTS_TOPIC, HOLD_LEASE)
ABORT = (WRITE_MARKERS,)
READERS = (READ_EVENTS,)


class Grants:
    """The rights of one user on a broker, set by a super user; each change is in force when the call returns."""

    def __init__(self, bootstrap_servers: str, principal: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        self._principal = principal

    def set(self, wanted: Iterable[Right]) -> None:
        """The user has these rights and no others."""
        self._delete([self._filter()])
        self.add(*wanted)

    def add(self, *rights: Right, permission: AclPermissionType = AclPermissionType.ALLOW) -> None:
        """The user has these rights, too; or they are denied to it."""
        bindings = [right.binding(self._principal, permission) for right in rights]
        for future in (self._admin.create_acls(bindings) if bindings else {}).values():
            future.result(_TIMEOUT_S)
        for right in rights:
            eventually(partial(self._found, self._filter(right, permission)), _TIMEOUT_S, f"{right} to be in force")

    def remove(self, *rights: Right, permission: AclPermissionType = AclPermissionType.ALLOW) -> None:
        """Takes back what `add` has added."""
        self._delete([self._filter(right, permission) for right in rights])

    @contextmanager
    def denied(self, *rights: Right) -> Iterator[None]:
        """The user does not have these rights, whatever else is granted."""
        try:
            self.add(*rights, permission=AclPermissionType.DENY)
            yield
        finally:
            self.remove(*rights, permission=AclPermissionType.DENY)

    def _delete(self, unwanted: list[AclBindingFilter]) -> None:
        for future in self._admin.delete_acls(unwanted).values():
            future.result(_TIMEOUT_S)
        for one in unwanted:
            eventually(lambda one=one: not self._found(one), _TIMEOUT_S, "the end of an ACL")

    def _found(self, wanted: AclBindingFilter) -> list[AclBinding]:
        found: list[AclBinding] = self._admin.describe_acls(wanted).result(_TIMEOUT_S)
        return found

    def _filter(
        self, right: Right | None = None, permission: AclPermissionType = AclPermissionType.ANY
    ) -> AclBindingFilter:
        """The ACLs of the user for one right, or for all."""
        operation, resource = (right.operation, right.resource) if right else (AclOperation.ANY, ResourceType.ANY)
        name, user = right.pattern[0] if right else None, f"User:{self._principal}"
        return AclBindingFilter(resource, name, ResourcePatternType.ANY, user, None, operation, permission)
