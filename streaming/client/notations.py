"""How two settings of a connection are written: the addresses of brokers, and Java's notation of a login.

This module imports no library, because the settings are read before the JVM begins (docs/decisions/0032). So it is
separate from connection.py and security.py, which import kafka-python.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from txnwatch.state.model.errors import ConfigError
from txnwatch.state.text import is_host_name


class Endpoint(NamedTuple):
    """A broker's address."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """An endpoint written as host:port, or [v6]:port.

        Raises:
            ValueError: there is no port, it is not a number from 1 to 65535, or no host can have the name.
        """
        host, colon, port = text.strip().rpartition(":")
        if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"expected host:port, found {text.strip()!r}")
        name = host.strip("[]")
        if not is_host_name(name):
            raise ValueError(f"expected host:port, whose labels have 1 to 63 characters, found {text.strip()!r}")
        return cls(name, int(port))


def parse_bootstrap(text: str, name: str) -> tuple[Endpoint, ...]:
    """Parses a bootstrap list.

    Raises:
        ConfigError: the list is empty, or an entry is not host:port.
    """
    try:
        endpoints = tuple(Endpoint.parse(part) for part in text.split(",") if part.strip())
    except ValueError as exc:
        raise ConfigError(f"{name}: {exc}") from exc
    if not endpoints:
        raise ConfigError(f"{name}: expected host:port of at least one broker, found nothing")
    return endpoints


_ESCAPED = re.compile(r"\\(.)")
_JAAS_OPTION = re.compile(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")


def jaas_options(properties: Mapping[str, str]) -> dict[str, str]:
    """The options of the login module in `sasl.jaas.config`."""
    options = _JAAS_OPTION.findall(properties.get("sasl.jaas.config", ""))
    return {name: bare or _ESCAPED.sub(r"\1", double or single) for name, double, single, bare in options}
