"""The rows of `txnwatch doctor` about the push: the file of the targets, and whether each target can be reached.

Law: no event is sent. A web hook is only connected to, because every request to it could be taken for an event.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from txnwatch.cli.doctor_rows import CheckRow, Health
from txnwatch.push.alertmanager import STATUS_PATH
from txnwatch.push.http_client import Address, HttpClient
from txnwatch.push.push_file import AlertmanagerTarget, HttpTarget, read_push_file
from txnwatch.state.model.errors import ConfigError, SinkError

_NEEDED_BY: Final = "run --push-file"


def push_rows(path: Path | None) -> Iterator[CheckRow]:
    """One row for each server of a target; one for the whole file if it is not valid, none without a file."""
    if path is None:
        return
    try:
        file = read_push_file(path)
    except ConfigError as exc:
        yield CheckRow("push", str(path), Health.MISSING, str(exc), _NEEDED_BY, None)
        return
    for target in file.targets:
        for address in target.addresses:
            yield _row(target, address)


def _row(target: HttpTarget, address: Address) -> CheckRow:
    subject = f"{target.name} {address.shown}"
    try:
        found = _reached(target, address)
    except SinkError as exc:
        return CheckRow("push", subject, Health.MISSING, str(exc), _NEEDED_BY, None)
    health, detail = found
    return CheckRow("push", subject, health, detail, _NEEDED_BY, None)


def _reached(target: HttpTarget, address: Address) -> tuple[Health, str]:
    """What the server answers.

    Raises:
        SinkError: it does not answer, or a secret cannot be read.
    """
    if not isinstance(target, AlertmanagerTarget):
        HttpClient(address, target.ca_file).reach()
        return Health.OK, "accepts connections; no event was sent"
    status = HttpClient(address.below(STATUS_PATH), target.ca_file).request("GET", target.fixed_headers()).status
    if status == 200:
        return Health.OK, "answers"
    return Health.MISSING, f"{STATUS_PATH} answers {status}, expected 200"
