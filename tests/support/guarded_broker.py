"""A broker with ACLs, a live transaction and a hang, and commands as a user whose rights the test sets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.acl_recipes import Grants
from support.answered import Answered, answered
from support.kafka_faults import stray_write
from support.raw_producer import CURRENT_TIMESTAMP, RawProducer
from support.servers import Clusters, connect, create_coordinators
from support.topics import commit_an_offset, create_topic
from txnwatch.config import EVENTS_TOPIC
from txnwatch.state.model.values import TimestampMs
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import set_verification

USER = "txnwatch"
IN_FORCE_S = 20.0
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",  # the user of the plain listener
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl.plain.sasl.jaas.config": f'{MODULE} user_{USER}="secret";',
}
LIVE, HANGING, OWNER = "orders-healthy", "orders-hanging", "the-owner"


@dataclass(frozen=True)
class Guarded:
    """The broker, and the rights of the user. `LIVE` has a transaction of the id `OWNER`, `HANGING` has a hang."""

    kafka: EmbeddedKafka
    config: Path
    grants: Grants

    @property
    def connection(self) -> tuple[str, ...]:
        """The flags of a command."""
        return ("--bootstrap-server", self.kafka.listener("SASL"), "--command-config", str(self.config))

    def ask(self, capsys: pytest.CaptureFixture[str], *command: str) -> Answered:
        """A command as the user."""
        return answered(capsys, *command, *self.connection)

    def ensure_events_topic(self) -> None:
        """Creates the events topic, if it is not there."""
        with closing(connect(self.kafka)) as cluster:
            if EVENTS_TOPIC not in cluster.refresh().topics:
                create_topic(cluster, EVENTS_TOPIC, config={"cleanup.policy": "compact"})


@contextmanager
def guarded_broker(
    clusters: Clusters, name: str, directory: Path, *, timestamp_ms: TimestampMs = CURRENT_TIMESTAMP
) -> Iterator[Guarded]:
    """Starts the broker, under this name of a cluster; the live transaction has a batch of this time."""
    listeners = {"SASL": "SASL_PLAINTEXT"}
    kafka = clusters.start(name, lambda: EmbeddedKafka(directory, listeners=listeners, properties=PROPERTIES))
    config = directory / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={MODULE} username="{USER}" password="secret";\n'
    )
    set_verification(kafka.bootstrap_servers, [1], enabled=False)
    create_coordinators(kafka)
    with closing(connect(kafka)) as cluster:
        (live,), (hanging,) = create_topic(cluster, LIVE), create_topic(cluster, HANGING)
        owner = RawProducer(cluster, OWNER, 600_000).init()
        owner.add(live)
        owner.produce(live, timestamp_ms=timestamp_ms)
        stray_write(cluster, "a-stray", hanging)
    commit_an_offset(kafka, live)
    yield Guarded(kafka, config, Grants(kafka.bootstrap_servers, USER))
    clusters.end(name)


def missing_rights(answer: dict[str, Any]) -> dict[str, str]:
    """The rights that doctor does not report as allowed, with the line that grants each."""
    return {
        row["subject"]: row["fix"] or "" for row in answer["rows"] if row["check"] == "right" and row["status"] != "ok"
    }
