"""SASL GSSAPI: the login by Kerberos, with the library of MIT Kerberos through the package `gssapi` (an extra).

With a keytab, the library gets and renews the ticket itself. Without one, it uses the ticket cache of the user.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

from txnwatch.state.model.errors import BrokerError, ConfigError
from txnwatch.streaming.client.sasl_messages import Exchange

GSSAPI: Final = "GSSAPI"
_CACHE: Final = "MEMORY:txnwatch"
_WITHOUT_LAYER: Final = 1  # RFC 4752: authentication only; TLS protects the connection
_LIMITS = struct.Struct(">BBH")


@dataclass(frozen=True, slots=True)
class KerberosLogin:
    """A Login by Kerberos.

    Attributes:
        service: the first part of the brokers' principals.
        principal, keytab: ours; None for the ticket cache.
    """

    service: str
    principal: str | None = None
    keytab: str | None = None

    @property
    def mechanism(self) -> str:
        """See Login."""
        return GSSAPI

    @property
    def user(self) -> str:
        """See Login; the brokers' default rules keep the first part of the principal."""
        return self.principal.partition("@")[0].partition("/")[0] if self.principal is not None else "of the ticket"

    def exchange(self, host: str, protocol: str) -> Exchange:
        """See Login.

        Raises:
            ConfigError: the package `gssapi` is not installed.
            BrokerError: Kerberos gives no ticket.
        """
        del protocol
        return _Exchange(self, host)


class _Exchange:
    """The messages of one authentication (RFC 4752), as kafka-python's class SaslMechanism has them."""

    def __init__(self, login: KerberosLogin, host: str) -> None:
        self._gssapi = _library()
        self._is_done = False
        self._is_last = False
        self._where = f"Kerberos for {login.service}@{host}"
        try:
            self._context = self._new_context(login, host)
            self._next: bytes | None = self._context.step()
        except self._gssapi.exceptions.GSSError as exc:
            raise self._error(exc) from exc

    def _new_context(self, login: KerberosLogin, host: str) -> Any:
        gssapi = self._gssapi
        credentials = None
        if login.keytab is not None:
            name = gssapi.Name(login.principal, gssapi.NameType.kerberos_principal)
            store = {"client_keytab": login.keytab, "ccache": _CACHE}
            credentials = gssapi.Credentials(name=name, usage="initiate", store=store)
        service = gssapi.Name(f"{login.service}@{host}", gssapi.NameType.hostbased_service)
        return gssapi.SecurityContext(name=service, creds=credentials, usage="initiate", mech=gssapi.MechType.kerberos)

    def auth_bytes(self) -> bytes:
        """The next message to the broker."""
        self._is_done = self._is_last
        return self._next or b""

    def receive(self, message: bytes) -> None:
        """Takes the broker's answer."""
        if self._is_done:
            return
        try:
            if not self._context.complete:
                self._next = self._context.step(message)
                return
            offered, *_ = _LIMITS.unpack(self._context.unwrap(message).message)
            if not offered & _WITHOUT_LAYER:
                raise BrokerError(f"{self._where}: the broker demands a security layer, which Kafka does not have")
            self._next = self._context.wrap(_LIMITS.pack(_WITHOUT_LAYER, 0, 0), False).message
            self._is_last = True
        except (self._gssapi.exceptions.GSSError, struct.error) as exc:
            raise self._error(exc) from exc

    def is_done(self) -> bool:
        """Whether the last message was sent."""
        return self._is_done

    def _error(self, exc: Exception) -> BrokerError:
        return BrokerError(f"{self._where}: {' '.join(str(exc).split())}")


def _library() -> Any:
    try:
        import gssapi  # noqa: PLC0415 - an extra
    except (ImportError, OSError) as exc:
        found = "the package gssapi is missing" if isinstance(exc, ModuleNotFoundError) else str(exc)
        raise ConfigError(
            f"sasl.mechanism GSSAPI needs `pip install 'txnwatch[kerberos]'` and the libraries of MIT Kerberos: {found}"
        ) from exc
    return gssapi
