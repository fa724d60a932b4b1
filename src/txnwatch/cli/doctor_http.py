"""The row of `txnwatch doctor` about the HTTP port of `run`: who reaches the page and the metrics.

Law: no port is opened and no request is sent.

Apart: the other rows are about the cluster, or about the targets of a push.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final

from txnwatch.cli.doctor_rows import CheckRow, Health
from txnwatch.state.model.errors import ConfigError

HTTP_SETTINGS: Final = ("http_port", "http_host", "http_web_config_file")
_NEEDED_BY: Final = "run --http-port"


def http_rows(parsed: argparse.Namespace) -> Iterator[CheckRow]:
    """One row if `run` serves HTTP; a warning if everybody who reaches the address can read the page."""
    if parsed.http_port is None:
        return
    from txnwatch.web.server import is_private  # noqa: PLC0415 - imports Starlette, which no other check needs
    from txnwatch.web.web_config import read_web_config  # noqa: PLC0415 - imports bcrypt

    where = f"{parsed.http_host}:{parsed.http_port}"
    try:
        web = read_web_config(parsed.http_web_config_file)
    except ConfigError as exc:
        yield CheckRow("http", where, Health.MISSING, str(exc), _NEEDED_BY, None)
        return
    if is_private(parsed, web):
        detail = "reached from this machine, or with a password or a certificate"
        yield CheckRow("http", where, Health.OK, detail, _NEEDED_BY, None)
        return
    detail = "no users: whoever reaches this address reads the names of topics, ids and groups on the page"
    fix = "set basic_auth_users in --http-web-config-file (docs/hardening.md), or --http-host 127.0.0.1"
    yield CheckRow("http", where, Health.WARNING, detail, _NEEDED_BY, fix)
