"""The cluster connection of a one-off command, from bootstrap servers and a client properties file.

Separate from `app.py`, so that such a command does not import what only `run` needs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from txnwatch.setting_sources import client_properties
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.source.options import SourceOptions, parse_options


def options_of(bootstrap_server: str, command_config: Path | None) -> SourceOptions:
    """The connection options: addresses and security.

    Raises:
        ConfigError: an address is not host:port, or the properties file cannot be read.
    """
    properties = {f"kafka.{name}": value for name, value in client_properties(command_config).items()}
    return parse_options({**properties, "kafka.bootstrap.servers": bootstrap_server, "subscribePattern": ".*"})


@contextlib.contextmanager
def connected(bootstrap_server: str, command_config: Path | None, *, timeout_s: float) -> Iterator[Cluster]:
    """Connects to a cluster and reads its metadata, for the duration of one command.

    Raises:
        BrokerError: no broker answers.
        ConfigError: see `options_of`.
    """
    options = options_of(bootstrap_server, command_config)
    cluster = Cluster(options.bootstrap, options.security, timeout_s=timeout_s)
    with contextlib.closing(cluster):
        cluster.refresh()
        yield cluster
