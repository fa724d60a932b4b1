"""Reads the events topic with a command's flags."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from txnwatch.cli.output import LOG
from txnwatch.cluster_connection import options_of
from txnwatch.librdkafka import decoder, events_keys, librdkafka_config, registry_codec
from txnwatch.setting_sources import client_properties
from txnwatch.sinks.delivery.encoding import Keys
from txnwatch.sinks.delivery.events_topic import read_events
from txnwatch.state.incidents.heartbeat import TopicRecord


def keys_of(parsed: argparse.Namespace) -> Keys | None:
    """The keys of `--events-key-file`; None without the flag.

    Raises:
        ConfigError: the file has no key, or cannot be read.
    """
    path = Path(parsed.events_key_file) if parsed.events_key_file else None
    return events_keys(path, LOG.warning)


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
