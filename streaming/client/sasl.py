"""What SASL needs on a connection: a login, whose messages kafka-python's mechanisms compute."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from kafka.net.sasl import get_sasl_mechanism

from txnwatch.state.model.errors import BrokerError, WireError

PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_ESCAPED = re.compile(r"\\(.)")
_JAAS_OPTION = re.compile(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")


class Login(Protocol):
    """How a connection authenticates; hashable and picklable.

    Attributes:
        mechanism: the mechanism on the wire.
        user: for messages.
    """

    @property
    def mechanism(self) -> str: ...  # noqa: D102 - see the class
    @property
    def user(self) -> str: ...  # noqa: D102 - see the class

    def exchange(self, host: str, protocol: str) -> Any:
        """The messages of one authentication: an object of kafka-python's class SaslMechanism."""


@dataclass(frozen=True, slots=True)
class PasswordLogin:
    """A Login by user and password: PLAIN or SCRAM."""

    mechanism: str
    user: str
    password: str = field(repr=False)

    def exchange(self, host: str, protocol: str) -> Any:
        """See Login."""
        return get_sasl_mechanism(self.mechanism)(
            host=host,
            security_protocol=protocol,
            sasl_mechanism=self.mechanism,
            sasl_plain_username=self.user,
            sasl_plain_password=self.password,
        )


def take_message(exchange: Any, message: bytes) -> None:
    """Gives the broker's message to an exchange. kafka-python reads it without checks, so it can raise anything.

    Raises:
        WireError: the message cannot be used: it is damaged, or it does not prove that the broker knows the password.
        BrokerError: the mechanism has its own error.
    """
    try:
        exchange.receive(message)
    except BrokerError:
        raise
    except Exception as exc:
        kind = "no " if isinstance(exc, KeyError) else ""
        raise WireError("SASL message", 0, f"{kind}{exc}", "a message of the mechanism") from exc


def jaas_options(properties: Mapping[str, str]) -> dict[str, str]:
    """The options of the login module in `sasl.jaas.config`."""
    found = _JAAS_OPTION.findall(properties.get("sasl.jaas.config", ""))
    return {name: bare or _ESCAPED.sub(r"\1", double or single) for name, double, single, bare in found}
