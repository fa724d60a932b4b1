"""How many bytes `run` would move: they cost money where traffic out of a zone is paid. Pure: no I/O, no clock."""

from __future__ import annotations

from txnwatch.cli.check_row import Caller, CheckRow, Health, grant_line
from txnwatch.state.model.coordinator_access import CoordinatorAccess
from txnwatch.state.model.ids import TRANSACTION_STATE_TOPIC
from txnwatch.state.model.quantities import DurationMs
from txnwatch.state.text.lists import some
from txnwatch.streaming.admin.coordinator_log_bytes import LogBytes
from txnwatch.streaming.admin.write_rates import WriteRates
from txnwatch.streaming.source.census_bytes import CensusBytes

_DAY_S = 86_400
_LOG = f"{TRANSACTION_STATE_TOPIC}, the coordinators' log"
_CENSUS = "censuses, which read no records"
_NAMED = 3
_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")


def egress_row(found: WriteRates, topics: str, caller: Caller) -> CheckRow:
    """One row: what `run --topics` would read in a day, and the topics with the most bytes."""
    subject = f"scan of --topics {topics}"
    if found.problem is not None:
        fix = grant_line(caller, "Describe", "--cluster")
        return CheckRow("egress", subject, Health.WARNING, f"cannot be estimated: {found.problem}", "-", fix)
    largest = sorted(found.by_topic, key=lambda name: -found.by_topic[name])
    named = [f"{name} {_a_day(found.by_topic[name])}" for name in largest if found.by_topic[name]]
    most = f": {some(named, _NAMED)}" if named else ""
    total = _a_day(sum(found.by_topic.values()))
    detail = f"about {total} a day by the writes of the last hour{most}"
    return CheckRow("egress", subject, Health.OK, detail, "-", None)


def log_row(found: LogBytes | None, access: CoordinatorAccess, caller: Caller) -> CheckRow:
    """One row: what `run` reads of the coordinators' log; `found` is None if the view `access` does not read it."""
    if found is None:
        return CheckRow("egress", _LOG, Health.OK, f"not read: the coordinator view is {access}", "-", None)
    detail = f"about {_a_day(found.per_second)} a day by the records of the last hour"
    if found.unread:
        detail = f"{detail}, without {found.unread} partitions that could not be read"
    if found.size is not None:
        detail = f"{detail}; a start without a checkpoint reads the whole log: {_amount(found.size)}"
        return CheckRow("egress", _LOG, Health.WARNING if found.unread else Health.OK, detail, "-", None)
    why = f": {found.problem}" if found.problem is not None else ""
    detail = f"{detail}; a start without a checkpoint reads the whole log, whose size is not shown{why}"
    return CheckRow("egress", _LOG, Health.WARNING, detail, "-", grant_line(caller, "Describe", "--cluster"))


def census_row(scanned: CensusBytes, others: CensusBytes, heal_ms: DurationMs, pause_ms: DurationMs) -> CheckRow:
    """One row: what the censuses of `run` would move in a day, with these pauses between two of them."""
    heal_s, pause_s = heal_ms / 1000, pause_ms / 1000
    parts = [
        f"{found.partitions} {what} partitions every {interval_s:.0f} s {_a_day(found.moved / interval_s)}"
        for what, found, interval_s in (("other", others, pause_s), ("scanned", scanned, heal_s))
        if found.partitions
    ]
    total = _a_day(others.moved / pause_s + scanned.moved / heal_s)
    one = _amount(others.moved + scanned.moved)
    failed = others.failed + scanned.failed
    detail = f"about {total} a day{': ' if parts else ''}{', '.join(parts)}; one census of all moved {one}"
    if not failed:
        return CheckRow("egress", _CENSUS, Health.OK, detail, "-", None)
    return CheckRow("egress", _CENSUS, Health.WARNING, f"{detail}; {failed} partitions were not described", "-", None)


def _a_day(bytes_per_second: float) -> str:
    return _amount(bytes_per_second * _DAY_S)


def _amount(count: float) -> str:
    amount, unit = count, 0
    while amount >= 1000 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    return f"{amount:.0f} {_UNITS[unit]}" if unit == 0 or amount >= 100 else f"{amount:.1f} {_UNITS[unit]}"
