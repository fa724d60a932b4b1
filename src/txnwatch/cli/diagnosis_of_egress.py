"""How many bytes a scan would read from the brokers: they cost money where traffic out of a zone is paid. Pure."""

from __future__ import annotations

from txnwatch.cli.check_row import Caller, CheckRow, Health, grant_line
from txnwatch.state.text.lists import some
from txnwatch.streaming.admin.write_rates import WriteRates

_DAY_S = 86_400
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
    detail = f"about {total} a day by the writes of the last hour{most}; a census of a topic reads no records"
    return CheckRow("egress", subject, Health.OK, detail, "-", None)


def _a_day(bytes_per_second: float) -> str:
    amount, unit = bytes_per_second * _DAY_S, 0
    while amount >= 1000 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    return f"{amount:.0f} {_UNITS[unit]}" if unit == 0 or amount >= 100 else f"{amount:.1f} {_UNITS[unit]}"
