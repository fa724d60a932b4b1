"""The rows of `txnwatch doctor` about the push: the file of the targets, and whether each target can be reached.

A target may have told the watcher of this checkpoint that it wants no more events: then its row says so.

Law: no event is sent. A web hook is only connected to, because every request to it could be taken for an event.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from txnwatch.cli.doctor_rows import CheckRow, Health
from txnwatch.cli.output import utc
from txnwatch.push.alertmanager import STATUS_PATH
from txnwatch.push.http_client import Address, HttpClient
from txnwatch.push.journal import STOPPED, Journal, journal_name
from txnwatch.push.push_file import AlertmanagerTarget, HttpTarget, read_push_file
from txnwatch.state.model.errors import ConfigError, SinkError
from txnwatch.state.model.values import TimestampMs

_NEEDED_BY: Final = "run --push-file"


def push_rows(path: Path | None, positions: Path | None) -> Iterator[CheckRow]:
    """One row for each server of a target; one for the whole file if it is not valid, none without a file.

    `positions` is the directory in which the watcher keeps the positions of its targets; None if it is not known here.
    """
    if path is None:
        return
    try:
        file = read_push_file(path)
    except ConfigError as exc:
        yield CheckRow("push", str(path), Health.MISSING, str(exc), _NEEDED_BY, None)
        return
    for target in file.targets:
        for address in target.addresses:
            yield _row(target, address, positions)


def _row(target: HttpTarget, address: Address, positions: Path | None) -> CheckRow:
    subject = f"{target.name} {address.shown}"
    stopped_ms = _stopped_ms(positions / journal_name(target, address)) if positions is not None else None
    if stopped_ms is not None:
        detail = f"answered 410 at {utc(stopped_ms)}, so the watcher of this checkpoint sends it nothing"
        fix = "if it takes events again, start the watcher again; else remove it from the file"
        return CheckRow("push", subject, Health.MISSING, detail, _NEEDED_BY, fix)
    try:
        found = _reached(target, address)
    except SinkError as exc:
        return CheckRow("push", subject, Health.MISSING, str(exc), _NEEDED_BY, None)
    health, detail = found
    return CheckRow("push", subject, health, detail, _NEEDED_BY, None)


def _stopped_ms(path: Path) -> TimestampMs | None:
    """When the target answered that it wants no more events; None if it did not, or if nothing is known of it."""
    stopped = Journal(path, lambda _: None).values.get(STOPPED)
    return TimestampMs(stopped) if isinstance(stopped, int) else None


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
