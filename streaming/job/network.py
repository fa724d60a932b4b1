"""Spark's network settings: loopback for a local master, authentication and encryption for a cluster.

Spark's RPC runs code that a client sends. By default it listens on an address of the host and authenticates nobody.
"""

from __future__ import annotations

from typing import Final

from txnwatch.state.text.redaction import NAMES_TO_HIDE
from txnwatch.streaming.job.masters import is_local

_LOOPBACK: Final = "127.0.0.1"
# A local master and a Kubernetes master make a secret for each start. For a standalone cluster an operator sets
# `spark.authenticate.secret`; without one the driver does not start. See docs/hardening.md.
_AUTHENTICATED: Final = {"spark.authenticate": "true"}
_LOCAL: Final = {"spark.driver.bindAddress": _LOOPBACK, "spark.driver.host": _LOOPBACK}
_ENCRYPTED: Final = {
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.saslFallback": "false",
    "spark.io.encryption.enabled": "true",  # shuffle files have transactional ids
}
# Spark shows options in plans and in its log, and all settings on the pages of its web server; by default it would show
# a JAAS configuration. A setting of a file system may be a secret whatever its name is.
_REDACTED: Final = rf"(?i){NAMES_TO_HIDE}|jaas|url|^(?:spark\.hadoop\.)?fs\."
_HIDDEN: Final = {"spark.redaction.regex": _REDACTED, "spark.sql.redaction.options.regex": _REDACTED}


def network_settings(master: str) -> dict[str, str]:
    """The network settings for a master, where the operator has not set others."""
    return {**_HIDDEN, **_AUTHENTICATED, **(_LOCAL if is_local(master) else _ENCRYPTED)}
