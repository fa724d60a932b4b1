"""What SASL needs on a connection: a login, whose messages kafka-python's mechanisms compute."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kafka.net.sasl import get_sasl_mechanism

from txnwatch.streaming.client.sasl_messages import Exchange, NoDataExchange, ScramExchange

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

    def exchange(self, host: str, protocol: str) -> Exchange:
        """The messages of one authentication."""


@dataclass(frozen=True, slots=True)
class PasswordLogin:
    """A Login by user and password: PLAIN or SCRAM."""

    mechanism: str
    user: str
    password: str = field(repr=False)

    def exchange(self, host: str, protocol: str) -> Exchange:
        """See Login."""
        computed = get_sasl_mechanism(self.mechanism)(
            host=host,
            security_protocol=protocol,
            sasl_mechanism=self.mechanism,
            sasl_plain_username=self.user,
            sasl_plain_password=self.password,
        )
        if self.mechanism == "PLAIN":
            return NoDataExchange(self.mechanism, computed, has_reason=False)
        return ScramExchange(self.mechanism, computed)


def jaas_options(properties: Mapping[str, str]) -> dict[str, str]:
    """The options of the login module in `sasl.jaas.config`."""
    found = _JAAS_OPTION.findall(properties.get("sasl.jaas.config", ""))
    return {name: bare or _ESCAPED.sub(r"\1", double or single) for name, double, single, bare in found}
