"""The events topic of the commands: how they read it, and how `abort` and `fence` publish an operator's change there.

Law: what only publishing needs is imported when it publishes, because the commands that read start without it.
"""

from __future__ import annotations

import argparse
import contextlib
import getpass
import socket
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from txnwatch.cli.one_shot import add_events_flags, options_of
from txnwatch.cli.output import LOG
from txnwatch.config import CONFLUENT_AVRO
from txnwatch.librdkafka import EventsTopic, decoder, events_keys, events_topic, librdkafka_config, registry_codec
from txnwatch.setting_sources import client_properties
from txnwatch.sinks.delivery.encoding import FORMATS, Keys
from txnwatch.sinks.delivery.event_log import EventLog, read_events
from txnwatch.sinks.delivery.events_topic import KafkaEventsTopic
from txnwatch.state.incidents.heartbeat import TopicRecord
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.text import Grantee
from txnwatch.streaming.client.security import own_principal, principal_of

if TYPE_CHECKING:
    from txnwatch.sinks.abort.run_abort import KafkaOperatorsTopic, NoTopic
    from txnwatch.streaming.client.cluster import Cluster
    from txnwatch.streaming.source.options import SourceOptions

# Reading.


def read_events_topic(
    parsed: argparse.Namespace,
    of_history: Callable[[Iterable[TopicRecord]], Iterable[TopicRecord]] = iter,
    *,
    follow: bool = False,
) -> Iterator[TopicRecord]:
    """Reads the events topic that the flags name; `of_history` selects from the records before the new ones.

    Raises:
        BrokerError: the topic does not exist, or cannot be read to its end.
        ConfigError: the settings of the registry, the client properties or the keys are invalid.
    """
    config = librdkafka_config(options_of(parsed.bootstrap_server, parsed.command_config))
    properties = client_properties(parsed.command_config)
    decode = decoder(registry_codec(parsed.schema_registry_url, properties, parsed.events_topic))
    return read_events(config, parsed.events_topic, of_history, follow=follow, decode=decode, keys=keys_of(parsed))


def keys_of(parsed: argparse.Namespace) -> Keys | None:
    """The keys of `--events-key-file`; None without the flag.

    Raises:
        ConfigError: the file has no key, or cannot be read.
    """
    path = Path(parsed.events_key_file) if parsed.events_key_file else None
    return events_keys(path, LOG.warning)


# Publishing.


def add_publishing_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of the events topic, for a command that writes to it."""
    add_events_flags(parser)
    parser.add_argument(
        "--events-format",
        choices=(*FORMATS, CONFLUENT_AVRO),
        help="encoding of the events (default: confluent-avro with a schema registry, else json)",
    )


def operator_name() -> str:
    """The name of the user and of the host, for the events."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def topic_of(parsed: argparse.Namespace) -> EventsTopic:
    """The events topic that the flags name.

    Raises:
        ConfigError: the settings of the registry, the client properties or the keys are invalid.
    """
    return events_topic(
        parsed.events_topic,
        parsed.events_format,
        parsed.schema_registry_url,
        client_properties(parsed.command_config),
        keys_of(parsed),
    )


@contextlib.contextmanager
def publishing(
    parsed: argparse.Namespace, cluster: Cluster, options: SourceOptions, events: EventsTopic, change: str
) -> Iterator[KafkaOperatorsTopic | NoTopic]:
    """Opens the events topic; a cluster that is not watched has no such topic, and it is not created.

    `change` is the noun for the warnings.

    Raises:
        AuthorizationError: the user may not write to it.
    """
    from txnwatch.sinks.abort.run_abort import KafkaOperatorsTopic, NoTopic  # noqa: PLC0415 - readers start without it
    from txnwatch.streaming.checks.preflight import check_write  # noqa: PLC0415
    from txnwatch.streaming.client.hidden_topics import hidden_topics  # noqa: PLC0415

    if events.name not in cluster.refresh().topics:
        hidden = hidden_topics(cluster, [events.name]).get(events.name)
        if hidden is not None:
            LOG.warning(f"events topic {events.name!r}: no event of this {change} is published: {hidden}")
        yield NoTopic()
        return
    is_configured = parsed.command_config is not None
    grantee = Grantee(parsed.bootstrap_server, principal_of(options.security), is_configured=is_configured)
    check_write(cluster, events.name, grantee)
    config = librdkafka_config(options)
    with contextlib.ExitStack() as closing:
        topic = closing.enter_context(
            contextlib.closing(KafkaEventsTopic(config, events.name, events.encoding, keys=events.keys))
        )
        log = None
        try:
            log = closing.enter_context(
                contextlib.closing(EventLog(config, events.name, events.decode, events.keys, report=LOG.warning))
            )
            operators = KafkaOperatorsTopic(topic, log, own_principal(options.security))
        except BrokerError as exc:
            LOG.warning(f"{exc}: this {change} is not told on the incident of a watch")
            operators = KafkaOperatorsTopic(topic, None, own_principal(options.security))
        yield operators
