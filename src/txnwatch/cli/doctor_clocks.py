"""The rows of `txnwatch doctor` about clocks: which broker's clock differs from that of this machine, and by how much.

Two clocks that agree within 5 s are well enough. What could not be compared is named, and is not said to agree. Pure.

Apart: doctor_rows.py is long enough.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from txnwatch.cli.doctor_rows import CheckRow, Health
from txnwatch.cli.output import duration
from txnwatch.state.model.clocks import Clock
from txnwatch.state.model.values import BrokerId, DurationMs
from txnwatch.streaming.checks.clock_bounds import SeenClocks

APART_MS: Final = DurationMs(5_000)
_HERE = "this machine"
_SHOWS_AGES = "find-hanging, explain, list, describe, status"
_AHEAD = (
    "ahead of",
    "the commands that read once show ages that are too low by as much, and find overdue transactions that much later",
)
_BEHIND = "behind", "the commands that read once show ages that are too high by as much"
_OF_A_WATCH = "`run` compares the times of one clock only, so its verdicts stay true"
_NTP = "`timedatectl` or `chronyc tracking` shows whether NTP works"
_METRIC = "txnwatch_broker_clock_offset_seconds of a running watch has the clocks of all coordinators"


class _Difference(NamedTuple):
    """How far a clock is ahead of ours, or behind it: at least so much, and exactly so much or not."""

    by_ms: DurationMs
    is_ahead: bool
    is_exact: bool


def clock_rows(seen: SeenClocks, brokers: Collection[BrokerId]) -> Iterator[CheckRow]:
    """A warning for each clock that differs, one row for those that agree, and one for those that were not compared."""
    clocks = {node: clock for node, clock in sorted(seen.all.items()) if clock.is_possible}
    different = {node: difference for node, clock in clocks.items() if (difference := _difference(clock)) is not None}
    agree = [node for node, clock in clocks.items() if node not in different and _agrees(clock)]
    is_ours = not agree and len(different) > 1 and len({difference.is_ahead for difference in different.values()}) == 1
    for node, difference in different.items():
        yield _different(_name(node, brokers), difference, is_ours=is_ours)
    if agree:
        detail = f"agree within {duration(APART_MS)}: {', '.join(_name(node, brokers) for node in agree)}"
        yield CheckRow("clock", _HERE, Health.OK, detail, "-", None)
    unknown = sorted(set(brokers) - different.keys() - set(agree))
    if unknown:
        yield _not_compared(unknown, seen.brokers, is_nothing_known=not (different or agree))


def _difference(clock: Clock) -> _Difference | None:
    is_exact = clock.highest_ms is not None and clock.highest_ms - clock.lowest_ms <= APART_MS
    if clock.lowest_ms > APART_MS:
        return _Difference(clock.lowest_ms, is_ahead=True, is_exact=is_exact)
    if clock.highest_ms is not None and clock.highest_ms < -APART_MS:
        return _Difference(DurationMs(-clock.highest_ms), is_ahead=False, is_exact=is_exact)
    return None


def _agrees(clock: Clock) -> bool:
    return clock.highest_ms is not None and clock.lowest_ms >= -APART_MS and clock.highest_ms <= APART_MS


def _different(name: str, difference: _Difference, *, is_ours: bool) -> CheckRow:
    apart = duration(difference.by_ms) + ("" if difference.is_exact else " or more")
    side, effect = _AHEAD if difference.is_ahead else _BEHIND
    detail = f"its clock is {apart} {side} the clock of this machine: {effect}. {_OF_A_WATCH}"
    others = f"set the clock that is wrong, that of this machine or that of {name}"
    ours = "set the clock of this machine: all clocks that could be compared differ from it in the same direction"
    return CheckRow("clock", name, Health.WARNING, detail, _SHOWS_AGES, f"{ours if is_ours else others} ({_NTP})")


def _not_compared(unknown: list[BrokerId], stamped: Mapping[BrokerId, Clock], *, is_nothing_known: bool) -> CheckRow:
    """A warning only if no clock could be compared: then that of this machine may be wrong, too."""
    ages = [DurationMs(-stamped[node].lowest_ms) for node in unknown if node in stamped]
    newest = f"their newest timestamp there is {duration(min(ages))} old" if ages else "they have no timestamp there"
    detail = f"not compared: nothing was written to the coordinators' log during this check, and {newest}"
    subject = f"brokers {', '.join(map(str, unknown))}" if len(unknown) > 1 else f"broker {unknown[0]}"
    if not is_nothing_known:
        return CheckRow("clock", subject, Health.OK, detail, "-", None)
    fix = f"run doctor again while transactional applications write; {_METRIC}"
    return CheckRow("clock", subject, Health.WARNING, detail, _SHOWS_AGES, fix)


def _name(node: BrokerId, brokers: Collection[BrokerId]) -> str:
    return f"broker {node}" if node in brokers else f"controller {node}"
