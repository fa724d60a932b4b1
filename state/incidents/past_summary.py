"""How often, whose, how long and how ended: the incidents of a while in numbers, and as CSV and Markdown. Pure.

An incident counts in the window if it was open at any moment of it. It is counted once, also if it was opened before
the window or is still open, and each number says so. A transaction on several partitions counts on each of them.

Law: names are text of others. In CSV no cell begins like a formula; in Markdown a name is a code span that nothing
leaves, so that it makes no link, mention or column.
"""

from __future__ import annotations

import csv
import io
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, NamedTuple

from txnwatch.state.incidents.heartbeat import AHEAD_MS
from txnwatch.state.incidents.past_incidents import IncidentHistory, PastIncident
from txnwatch.state.model.errors import SkipReason
from txnwatch.state.model.values import DurationMs, TimestampMs, rfc3339
from txnwatch.state.telling.statements import END_MEANS
from txnwatch.state.text import duration_text, printable, utc_text


class Facet(StrEnum):
    """What incidents are counted by."""

    OWNER = "owner"
    TRANSACTIONAL_ID = "transactional_id"
    PARTITION = "partition"
    VERDICT = "verdict"
    DAY = "day"


BEFORE: Final = "before"  # the day of what was opened before the window
STILL_OPEN: Final = "still_open"
_NO_PLACE, _NO_ID = "no partition", "no transactional id"


class PastWindow(NamedTuple):
    """From when to when; `to_ms` is now."""

    from_ms: TimestampMs
    to_ms: TimestampMs


class PastGroup(NamedTuple):
    """Incidents that have something in common, in numbers.

    Attributes:
        still_open: how many are open by their last event.
        opened_before: how many were opened before the window.
        median_ms, longest_ms, total_ms: for how long at least; of an open one until now, also before the window.
        last_ms: when the last one was opened.
        ends: how they ended, with numbers.
    """

    by: Facet
    name: str
    incidents: int
    still_open: int
    opened_before: int
    median_ms: DurationMs
    longest_ms: DurationMs
    total_ms: DurationMs
    last_ms: TimestampMs
    verdicts: tuple[tuple[str, int], ...]
    ends: tuple[tuple[str, int], ...]


class PastSummary(NamedTuple):
    """The incidents of a window.

    Attributes:
        incidents: the last one first.
        by_hand: how many aborts by hand were told beside them.
        ahead: how many were left out, because their last event is from the future.
        elsewhere: how many are of other clusters.
        skipped: how many records of the topic were no events.
        complete_since_ms: since when no incident is missing because there are too many.
    """

    window: PastWindow
    incidents: Sequence[PastIncident]
    by_hand: int
    ahead: int
    elsewhere: int
    skipped: Mapping[SkipReason, int]
    complete_since_ms: TimestampMs

    @property
    def still_open(self) -> int:
        """How many are open by their last event."""
        return sum(incident.kind.how is None for incident in self.incidents)

    @property
    def opened_before(self) -> int:
        """How many were opened before the window."""
        return sum(incident.since_ms < self.window.from_ms for incident in self.incidents)

    @property
    def is_complete(self) -> bool:
        """Whether no incident of the window is missing because there are too many."""
        return self.complete_since_ms <= self.window.from_ms

    def groups(self, by: Facet) -> list[PastGroup]:
        """The numbers of each group: the days in order, else the most frequent first."""
        by_key: dict[str, list[PastIncident]] = {}
        for incident in self.incidents:
            for key in _KEYS[by](incident, self.window):
                by_key.setdefault(key, []).append(incident)
        groups = [self._group(by, key, members) for key, members in by_key.items()]
        return sorted(groups, key=_day if by is Facet.DAY else _most_first)

    def _group(self, by: Facet, name: str, members: Sequence[PastIncident]) -> PastGroup:
        lengths = [incident.length_ms(self.window.to_ms) for incident in members]
        return PastGroup(
            by,
            name,
            incidents=len(members),
            still_open=sum(incident.kind.how is None for incident in members),
            opened_before=sum(incident.since_ms < self.window.from_ms for incident in members),
            median_ms=DurationMs(int(statistics.median(lengths))),
            longest_ms=max(lengths),
            total_ms=DurationMs(sum(lengths)),
            last_ms=max(incident.since_ms for incident in members),
            verdicts=_counts(str(incident.kind.verdict) for incident in members),
            ends=_counts(str(incident.kind.how or STILL_OPEN) for incident in members),
        )


def summary_of(history: IncidentHistory, window: PastWindow, cluster_id: str | None = None) -> PastSummary:
    """The incidents of a window; `cluster_id`: only those of this cluster."""
    now = [incident for incident in history.incidents if incident.time_ms <= window.to_ms + AHEAD_MS]
    ahead = len(history.incidents) - len(now)
    inside = [incident for incident in now if incident.overlaps(*window)]
    ours = [incident for incident in inside if cluster_id in {None, incident.subject.cluster_id}]
    watched = [incident for incident in ours if not incident.kind.is_by_hand]
    return PastSummary(
        window,
        sorted(watched, key=lambda incident: (-incident.since_ms, incident.incident_id)),
        by_hand=len(ours) - len(watched),
        ahead=ahead,
        elsewhere=len(inside) - len(ours),
        skipped=dict(history.skipped),
        complete_since_ms=history.complete_since_ms,
    )


def _counts(names: Iterable[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(Counter(names).items(), key=lambda item: (-item[1], item[0])))


def _most_first(group: PastGroup) -> tuple[int, int, str]:
    return -group.incidents, -group.total_ms, group.name


def _day(group: PastGroup) -> tuple[bool, str]:
    return group.name != BEFORE, group.name


def _day_of(incident: PastIncident, window: PastWindow) -> tuple[str, ...]:
    if incident.since_ms < window.from_ms:
        return (BEFORE,)
    return (f"{datetime.fromtimestamp(incident.since_ms // 1000, UTC):%Y-%m-%d}",)


_KEYS: Final[Mapping[Facet, Callable[[PastIncident, PastWindow], Sequence[str]]]] = {
    Facet.OWNER: lambda incident, _: (incident.subject.owner,),
    Facet.TRANSACTIONAL_ID: lambda incident, _: (
        incident.subject.name if incident.subject.name is not None else _NO_ID,
    ),
    Facet.PARTITION: lambda incident, _: incident.subject.places or (_NO_PLACE,),
    Facet.VERDICT: lambda incident, _: (str(incident.kind.verdict),),
    Facet.DAY: _day_of,
}


# In words.


def how_ended(incident: PastIncident) -> str:
    """How an incident ended, and by whom."""
    if incident.kind.how is None:
        return "still open"
    by = "" if incident.kind.by in {None, "unknown"} else f" by {str(incident.kind.by).replace('_', ' ')}"
    return f"{END_MEANS[incident.kind.how]}{by}"


def headline_of(summary: PastSummary) -> str:
    """The summary in one sentence."""
    count = len(summary.incidents)
    since = utc_text(summary.window.from_ms)
    if not count:
        return f"No incident since {since}."
    parts = [f"{count:,} {'incident' if count == 1 else 'incidents'} since {since}"]
    if summary.opened_before:
        parts.append(f"{summary.opened_before:,} opened before")
    if summary.still_open:
        parts.append(f"{summary.still_open:,} still open")
    longest = max(incident.length_ms(summary.window.to_ms) for incident in summary.incidents)
    return f"{', '.join(parts)}. The longest was open for at least {duration_text(longest)}."


def remarks(summary: PastSummary) -> Iterator[str]:
    """What the numbers do not have, one sentence each."""
    if summary.by_hand:
        yield f"{summary.by_hand:,} aborts by hand have incidents of their own, which are not counted."
    if summary.ahead:
        yield f"{summary.ahead:,} incidents are left out: their last event is from the future."
    if summary.elsewhere:
        yield f"{summary.elsewhere:,} incidents of other clusters are left out."
    for why, count in summary.skipped.items():
        yield f"{count:,} {'record was' if count == 1 else 'records were'} no valid event ({why})."
    if not summary.is_complete:
        yield f"There are too many: some that ended before {utc_text(summary.complete_since_ms)} are missing."


# As CSV.

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
INCIDENT_COLUMNS: Final = (
    *("incident_id", "cluster_id", "verdict", "severity", "since", "ended", "state", "opened_before", "seconds"),
    *("how", "by", "owner", "transactional_id", "producer_id", "partitions"),
)


def as_csv(summary: PastSummary, by: Facet | None = None) -> str:
    """A row for each incident, or for each group."""
    incidents = (_cells(incident, summary) for incident in summary.incidents)
    rows = map(_group_cells, summary.groups(by)) if by is not None else incidents
    columns = GROUP_COLUMNS if by is not None else INCIDENT_COLUMNS
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerows([columns, *([_cell(value) for value in row] for row in rows)])
    return text.getvalue()


def _cell(value: str | int) -> str | int:
    """A cell; a text that a spreadsheet takes for a formula gets an apostrophe before it."""
    if isinstance(value, int):
        return value
    shown = printable(value)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown


def _cells(incident: PastIncident, summary: PastSummary) -> tuple[str | int, ...]:
    kind, about, to_ms = incident.kind, incident.subject, summary.window.to_ms
    more = (f"and {about.more_places} more",) if about.more_places else ()
    return (
        *(incident.incident_id, about.cluster_id, str(kind.verdict), str(kind.severity)),
        rfc3339(incident.since_ms),
        rfc3339(incident.ended_ms) if incident.ended_ms is not None else "",
        "ended" if kind.how is not None else STILL_OPEN,
        "yes" if incident.since_ms < summary.window.from_ms else "no",
        incident.length_ms(to_ms) // 1000,
        *(str(kind.how or ""), str(kind.by or ""), about.owner, about.name or "", about.producer_id),
        " ".join((*about.places, *more)),
    )


GROUP_COLUMNS: Final = PastGroup._fields


def _group_cells(group: PastGroup) -> tuple[str | int, ...]:
    return (
        *(str(group.by), group.name, *group[2:8], rfc3339(group.last_ms)),
        *("; ".join(f"{name} {count}" for name, count in counts) for counts in (group.verdicts, group.ends)),
    )


# As Markdown, for a ticket.

_TICKS: Final = re.compile("`+")
_ROWS: Final = 10
_LISTED: Final = 50


def as_markdown(summary: PastSummary, title: str, facets: Sequence[Facet]) -> str:
    """The numbers of each facet, and the last incidents; the lists have limits, and say so."""
    to = utc_text(summary.window.to_ms)
    lines = [f"### Incidents of {_code(title)} until {to}", "", headline_of(summary), ""]
    lines += [line for remark in remarks(summary) for line in (remark, "")]
    for by in facets:
        groups = summary.groups(by)
        shown = groups if by is Facet.DAY else groups[:_ROWS]
        lines += _table((by.replace("_", " "), *_NUMBERS), map(_numbers, shown))
        lines += [f"and {len(groups) - len(shown):,} more", ""] if len(groups) > len(shown) else []
    shown_ones = summary.incidents[:_LISTED]
    columns = ("since", "verdict", "partition", "transactional id", "owner", "open for at least", "end", "incident")
    lines += _table(columns, (_told(incident, summary) for incident in shown_ones))
    if len(summary.incidents) > _LISTED:
        lines += [f"and {len(summary.incidents) - _LISTED:,} more", ""]
    source = (
        "Source: the events topic, which others may be able to write. Look again (`txnwatch explain`) before you act."
    )
    return "\n".join([*lines, source, ""])


_NUMBERS: Final = ("incidents", "still open", "opened before", "median", "longest", "in all", "ends")


def _numbers(group: PastGroup) -> tuple[str, ...]:
    times = (duration_text(length_ms) for length_ms in (group.median_ms, group.longest_ms, group.total_ms))
    ends = ", ".join(f"{count} {how.replace('_', ' ')}" for how, count in group.ends)
    return (
        _code(group.name),
        *(f"{count:,}" for count in (group.incidents, group.still_open, group.opened_before)),
        *times,
        ends,
    )


def _told(incident: PastIncident, summary: PastSummary) -> tuple[str, ...]:
    about = incident.subject
    more = f" and {about.more_places} more" if about.more_places else ""
    before = " (before)" if incident.since_ms < summary.window.from_ms else ""
    return (
        f"{utc_text(incident.since_ms)}{before}",
        str(incident.kind.verdict).replace("_", " "),
        f"{', '.join(map(_code, about.places))}{more}",
        _code(about.name) if about.name is not None else f"producer {about.producer_id}",
        _code(about.owner),
        duration_text(incident.length_ms(summary.window.to_ms)),
        how_ended(incident),
        f"`{incident.incident_id}`",
    )


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    cells = [columns, ["---"] * len(columns), *rows]
    return [*(f"| {' | '.join(row)} |" for row in cells), ""]


def _code(text: str) -> str:
    """A code span: its fence is longer than every run of backticks in it, and it has no bar of a table."""
    shown = printable(text).replace("|", "\\x7c")
    fence = "`" * (max((len(ticks) for ticks in _TICKS.findall(shown)), default=0) + 1)
    pad = " " if shown.startswith("`") or shown.endswith("`") or not shown.strip() else ""
    return f"{fence}{pad}{shown}{pad}{fence}"
