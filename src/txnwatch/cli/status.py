"""`txnwatch status`: the open incidents and the watchers, from Redis or the events topic.

It prints the incidents that `txnwatch run` has opened and not yet resolved, the oldest first; it asks no broker about
transactions. An empty list is a good sign only while a watcher evaluates barriers, and only for the partitions
about which it proves something. The heartbeats of the watchers show both.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, NamedTuple, NoReturn

from txnwatch.cli.command_origin import as_seen_from_here
from txnwatch.cli.events_access import keys_of, read_events_topic
from txnwatch.cli.one_shot import (
    add_connection_flags,
    add_events_flags,
    add_output_flags,
    add_owners_flag,
    count,
    never,
    redis_url,
)
from txnwatch.cli.output import (
    DETAIL,
    IN_NOTES,
    AtLeast,
    CommandAnswer,
    Name,
    Names,
    NotChecked,
    Time,
    delivering,
    duration,
    print_error,
    row_of,
    utc,
    write,
)
from txnwatch.sinks.delivery.event_log import SkippedRecords
from txnwatch.sinks.delivery.redis_views import read_shown
from txnwatch.state.incidents.heartbeat import (
    Heartbeat,
    Missing,
    Uncovered,
    last_of_each,
    uncovered,
    undetected,
    unspoken,
    unwatched,
)
from txnwatch.state.model.errors import BadEventError, ConfigError, TxnwatchError
from txnwatch.state.model.incident import GroupState, IncidentEvent, latest
from txnwatch.state.model.values import CoordinatorAccess, DurationMs, ProducerId, TimestampMs, elapsed
from txnwatch.state.model.verdicts import Verdict
from txnwatch.state.model.verdicts import undetected as undetected_in
from txnwatch.state.telling.renderings import first_command, without_commands
from txnwatch.state.telling.statements import Told, tell
from txnwatch.state.text import counted, grouped, some
from txnwatch.streaming.client.clock import wall_clock_ms

# The watchers by their last heartbeats, as rows and as text. What they cover: state/incidents/heartbeat.py.

_NO_WATCHER, _NO_HEARTBEAT = "no watcher is active", "no heartbeat was found here"
_SILENT = "none has evaluated a barrier of the last minute"
_MOST = 20  # watchers to show: a user who may write to the topic or to Redis can forge any number of them


@dataclass(frozen=True, slots=True)
class Watcher:
    """One instance of `txnwatch run`, by its last heartbeat.

    Attributes:
        age_ms: how long ago it evaluated a barrier.
        is_active: whether it evaluates barriers now.
        doubt: why the heartbeat is not plausible; None if it is.
        undetected: the verdicts that its coordinator view does not detect.
    """

    heartbeat: Heartbeat
    age_ms: DurationMs
    is_active: bool
    doubt: str | None
    undetected: tuple[Verdict, ...]

    def members(self) -> dict[str, Any]:
        """The watcher as one JSON object: the members of the heartbeat, and those of this class."""
        own = {spec.name: getattr(self, spec.name) for spec in fields(self) if spec.name != "heartbeat"}
        return {**asdict(self.heartbeat), **own}

    def line(self) -> str:
        """The watcher as one line of text."""
        beat = self.heartbeat
        who = f"watcher {beat.instance} ({beat.version}) of cluster {beat.cluster_id}"
        if self.doubt is not None:
            return f"{who}: ignored, {self.doubt}"
        evaluated = f"{who}: evaluated barrier {beat.barrier} {duration(self.age_ms)} ago"
        lacks = f", which does not detect {', '.join(self.undetected)}" if self.undetected else ""
        view = f"coordinator view {beat.coordinator_view}{lacks}"
        if not beat.is_coordinator_read:
            return f"{evaluated} and proved nothing: {_why_nothing(beat)}; {view}"
        more = beat.unproven_partitions - len(beat.unproven_names)
        names = ", ".join(beat.unproven_names) + (f" and {more} more" if more > 0 else "")
        of_log = (
            f", {beat.unread_log_partitions} of them of the coordinators' log" if beat.unread_log_partitions else ""
        )
        beyond = f" ({_beyond(beat)})" if beat.beyond_partitions else ""
        undecided = f"{beat.undecided_spans} open transactions unproven, " if beat.undecided_spans else ""
        speaks = ", publishes the events" if beat.speaks else ""
        reach = (
            f"{beat.scanned_partitions} partitions scanned, {beat.census_partitions} by census{beyond}, "
            f"{beat.unproven_partitions} unproven{f' ({names})' if beat.unproven_names else ''}{of_log}, "
            f"at most {beat.furthest_behind} offsets behind, {undecided}{view}{speaks}"
        )
        failing = f"; does not deliver to {'; '.join(beat.failing_targets)}" if beat.failing_targets else ""
        return f"{evaluated}; {reach}{failing}"


def _beyond(beat: Heartbeat) -> str:
    """The partitions that are beyond the bytes per second, and what a scan adds there."""
    more = beat.beyond_partitions - len(beat.beyond_names)
    names = ", ".join(beat.beyond_names) + (f" and {more} more" if more > 0 else "")
    return f"{names} beyond --max-bytes-per-second: no stray writes and no exact counts there"


def _why_nothing(beat: Heartbeat) -> str:
    """Why a watcher proves nothing at all; one that does not use the coordinators' log needs only the partitions."""
    is_log_used = beat.coordinator_view == CoordinatorAccess.LOG
    return "no part of the coordinators' log is read to its end" if is_log_used else "it reads no partition"


def watchers_of(last: Iterable[Heartbeat], now_ms: TimestampMs) -> list[Watcher]:
    """The watchers of these heartbeats, in the same order."""
    return [
        Watcher(
            heartbeat=beat,
            age_ms=elapsed(beat.evaluated_ms, now_ms),
            is_active=beat.is_active(now_ms),
            doubt=beat.doubt(now_ms),
            undetected=undetected_in(CoordinatorAccess(beat.coordinator_view)),
        )
        for beat in last
    ]


def listed(watchers: Sequence[Watcher]) -> Sequence[Watcher]:
    """The watchers that are shown; whether a cluster is watched depends on all of them."""
    return watchers[:_MOST]


def not_reached(parts: Iterable[Uncovered]) -> tuple[NotChecked, ...]:
    """What active watchers prove nothing about, as parts of the answer that are not checked."""
    unproven = [missing for part in parts for missing in _not_checked(part)]
    if len(unproven) <= _MOST:
        return tuple(unproven)
    return (
        *unproven[:_MOST],
        NotChecked(f"{len(unproven) - _MOST} more", "other watchers prove nothing there"),
    )


def _not_checked(part: Uncovered) -> Iterator[NotChecked]:
    who = f"watcher {part.watcher.instance} of cluster {part.watcher.cluster_id}"
    match part.missing:
        case Missing.EVERYTHING:
            why = f"{who} proves nothing there: {_why_nothing(part.watcher)}"
            yield NotChecked(f"cluster {part.watcher.cluster_id}", why)
            return
        case Missing.HANGS:
            verdicts = ", ".join(undetected_in(CoordinatorAccess(part.watcher.coordinator_view)))
            why = f"{who} has the coordinator view none, and proves no hang; it does not detect {verdicts}"
            yield NotChecked(f"cluster {part.watcher.cluster_id}", why)
            return
        case Missing.LOG:
            yield from _of_log(part, who)
            return
        case Missing.DATA:
            why = f"{who} proves nothing there"
        case Missing.DECISION:
            for name in part.names:
                what, _, reason = name.partition(": ")
                yield NotChecked(what, f"{who} cannot prove whether this open data hangs: {reason}")
            if part.more:
                yield NotChecked(f"{part.more} more open transactions", f"{who} cannot prove whether they hang")
            return
        case Missing.WATCHER:
            why = f"{who} is silent, and no active watcher has the same settings of topics"
    yield from _each(part, dict.fromkeys(part.names, why), why)


def _of_log(part: Uncovered, who: str) -> Iterator[NotChecked]:
    """The parts of the coordinators' log that are not read, each with the brokers that must come back."""
    why = f"{who} cannot read this part of the coordinators' log, so nothing is proven about its ids"
    brokers = dict(entry.split(": ", 1) for entry in part.watcher.leaderless_names if ": " in entry)
    back = {name: f" until one of its replicas is back: {brokers[name]}" for name in part.names if name in brokers}
    yield from _each(part, {name: f"{why}{back.get(name, '')}" for name in part.names}, why)


def not_watched(alone: Iterable[str], watchers: Sequence[Watcher]) -> tuple[NotChecked, ...]:
    """The clusters without an active watcher, as parts of the answer that are not checked."""
    if not watchers:
        return (NotChecked("every cluster", f"{_NO_WATCHER}: {_NO_HEARTBEAT}"),)
    return tuple(NotChecked(f"cluster {name}", f"{_NO_WATCHER}: {_SILENT}") for name in alone)


def _each(part: Uncovered, why_of: Mapping[str, str], why: str) -> Iterator[NotChecked]:
    """The names, each with its reason, and how many more there are."""
    yield from (NotChecked(name, reason) for name, reason in why_of.items())
    if part.more:
        yield NotChecked(counted(part.more, "more partition" if part.names else "partition"), why)


# The command: its flags, and the open incidents that it shows.

_NAMED = 3
_PAUSE_S = 5
_CLEARED = "\x1b[H\x1b[J"  # the cursor at the top of an empty terminal


@dataclass(frozen=True, slots=True)
class OpenIncident:
    """One open incident; `txnwatch events --format json` has every field of its events."""

    verdict: str
    reason: Annotated[str | None, DETAIL]
    topic: str | None
    partition: int | None
    transactional_id: Name | None
    producer_id: Annotated[ProducerId, DETAIL]
    open_since_ms: Annotated[Time, DETAIL]
    age_ms: AtLeast
    hidden_records: int | None
    stopped_groups: Names
    waiting_groups: Annotated[Names, DETAIL]
    incident_id: Annotated[str, DETAIL]
    owner: str | None
    contact: Annotated[str | None, DETAIL]
    application: Annotated[str | None, DETAIL]
    suggested_command: Annotated[str, IN_NOTES]
    told: Annotated[tuple[Told, ...], IN_NOTES]

    @property
    def subject(self) -> str:
        """What is named in the text."""
        return f"{self.topic}-{self.partition}" if self.topic is not None else str(self.transactional_id)


class _StatusFound(NamedTuple):
    """The incidents and heartbeats that were read.

    Attributes:
        clusters: the clusters that need a watcher: those with an open incident or a heartbeat.
    """

    clusters: set[str]
    incidents: list[IncidentEvent]
    heartbeats: Sequence[Heartbeat]
    problems: list[NotChecked]


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse's private type
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "status",
        help="show the open incidents, and whether a watcher is active",
        description="Prints the open incidents, oldest first, and the last heartbeat of each watcher. It reads "
        "the first of these: (1) Redis, if --redis-url is given; (2) the events topic, if --bootstrap-server or "
        "--events-topic is given as a flag, and the address of the brokers is known; (3) Redis, if TXNWATCH_REDIS_URL "
        "or the --config file names one; (4) the events topic. The exit code of an answer is the first of these that "
        "applies. 3: an incident is open (only with --fail-on-found), with or without an active watcher. 4: no watcher "
        "is active, because none has evaluated a barrier of the last minute; then an empty list proves nothing. 1: "
        "the answer is incomplete: records that could not be read, and partitions on which an active watcher proves "
        "nothing, are listed as not checked. 0: a watcher is active, everything was read, and no partition is "
        "unproven. The coordinator view `api` alone does not change the exit code: the last line names the verdicts "
        "that it does not detect. With the view `none` no hang is proven, so the answer is always incomplete.",
    )
    add_connection_flags(parser, never)
    add_events_flags(parser)
    add_owners_flag(parser)
    parser.add_argument(
        "--redis-url", type=redis_url, metavar="URL", help="redis://host:port/db that `txnwatch run` fills"
    )
    parser.add_argument(
        "--watch",
        nargs="?",
        type=count,
        const=_PAUSE_S,
        metavar="SECONDS",
        help=f"show it again after this many seconds, until interrupted (without a number: {_PAUSE_S}); --format json "
        "prints one object per line",
    )
    add_output_flags(parser, found_if="an incident is open")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Prints the open incidents and the watchers; see the description for the exit code."""
    if parsed.watch is not None:
        _show_until_interrupted(parsed)
    answer = _answer(parsed)
    write(answer, parsed.format, is_wide=parsed.wide)
    return answer.exit_code(fail_on_found=parsed.fail_on_found)


def _show_until_interrupted(parsed: argparse.Namespace) -> NoReturn:
    """Shows each answer in place of the one before it on a terminal, else after it.

    A server that is away does not end this. Then the last answer stays, with the time at which it was read.

    Raises:
        TxnwatchError: there is no first answer.
    """
    is_first = True
    while True:
        try:
            answer = _answer(parsed)
        except TxnwatchError as exc:
            if is_first:
                raise
            print_error(exc)
        else:
            is_first = False
            if parsed.format == "text":
                with delivering():
                    print(end=_CLEARED if sys.stdout.isatty() else "")
                    print(f"{utc(wall_clock_ms())}, again in {parsed.watch} s, Ctrl-C ends it", flush=True)
            write(answer, parsed.format, is_wide=parsed.wide)
        time.sleep(parsed.watch)


def _answer(parsed: argparse.Namespace) -> CommandAnswer:
    status, now_ms = _read(parsed), wall_clock_ms()
    last = last_of_each(status.heartbeats, now_ms)
    watchers = watchers_of(last, now_ms)
    alone = unwatched(status.clusters, last, now_ms)
    missing = not_reached(uncovered(last, now_ms))
    clusters = sorted(status.clusters)
    summary = _summary(status, watchers, alone, is_whole=not missing)
    silent = not_watched(alone, watchers) if parsed.format == "json" else ()  # the summary of the text says it
    return CommandAnswer(
        "status",
        clusters[0] if len(clusters) == 1 else "",
        OpenIncident,
        [_row(as_seen_from_here(event, parsed), parsed.bootstrap_server, now_ms) for event in status.incidents],
        (*status.problems, *missing, *silent),
        "; ".join([*summary, *_not_detected(undetected(last, now_ms)), *map(_nobody_speaks, unspoken(last, now_ms))]),
        found=bool(status.incidents),
        notes=tuple(watcher.line() for watcher in listed(watchers)),
        also={"watchers": [watcher.members() for watcher in listed(watchers)]},
        unwatched=bool(alone) or not watchers,
    )


def _read(parsed: argparse.Namespace) -> _StatusFound:
    is_topic_meant = parsed.given & {"bootstrap_server", "events_topic"} and "redis_url" not in parsed.given
    if parsed.redis_url is not None and not (is_topic_meant and parsed.bootstrap_server is not None):
        shown = read_shown(parsed.redis_url, keys_of(parsed))
        problems = [NotChecked(key, why) for key, why in shown.unread.items()]
        return _StatusFound(set(shown.clusters), shown.incidents, shown.heartbeats, problems)
    if parsed.bootstrap_server is None:
        raise ConfigError("status: expected --redis-url or --bootstrap-server, found neither")
    events: list[IncidentEvent] = []
    beats: list[Heartbeat] = []
    bad = SkippedRecords(lambda _: None, wall_clock_ms)
    for record in read_events_topic(parsed):
        if isinstance(record, BadEventError):
            bad.take(record)
        elif isinstance(record, IncidentEvent):
            events.append(record)
        elif isinstance(record, Heartbeat):
            beats.append(record)
    open_now = sorted(
        (event for event in latest(events).values() if event.is_open), key=lambda event: event.open_since_ms
    )
    problems = [
        NotChecked(
            f"{count} records of {parsed.events_topic}" if count > 1 else f"a record of {parsed.events_topic}", why
        )
        for why, count in ((f"{kind}, the last: {bad.last[kind]}", count) for kind, count in bad.counts.items())
    ]
    clusters = {event.cluster_id for event in open_now} | {beat.cluster_id for beat in beats}
    return _StatusFound(clusters, open_now, beats, problems)


def _summary(
    status: _StatusFound, watchers: Sequence[Watcher], alone: Sequence[str], *, is_whole: bool
) -> Iterator[str]:
    """The parts of one line: whether an incident is open, whether a watcher is active, and whether all is covered."""
    if status.incidents:
        wrong = ""
    elif status.problems:
        wrong = "no open incident was read, but not everything could be read"
    else:
        wrong = "no open incident"
    if not watchers:
        coverage = f"{_NO_WATCHER}: {_NO_HEARTBEAT}"
    elif alone:
        coverage = f"no watcher of cluster {some(alone, _NAMED)} is active: {_SILENT}"
    elif not is_whole:
        coverage = "a watcher is active, but it proves nothing on the partitions that are not checked"
    else:
        coverage = "" if wrong == "" else "a watcher is active"
    yield from filter(None, (wrong, coverage))


def _not_detected(verdicts: Mapping[str, tuple[Verdict, ...]]) -> Iterator[str]:
    """One part for each list of verdicts: which clusters have no watcher that detects them."""
    for names, clusters in grouped(verdicts.items()).items():
        yield f"no watcher of cluster {some(clusters, _NAMED)} detects {', '.join(names)}"


def _nobody_speaks(cluster_id: str) -> str:
    return (
        f"no watcher of cluster {cluster_id} publishes events: one takes over within 10 s, unless another client has "
        "their lease, which txnwatch doctor names"
    )


def _row(event: IncidentEvent, address: str | None, now_ms: TimestampMs) -> OpenIncident:
    told = tell(event) if address is not None else without_commands(tell(event))
    return row_of(
        OpenIncident,
        event,
        age_ms=elapsed(event.open_since_ms, now_ms),
        stopped_groups=tuple(group.group_id for group in event.consumer_groups if group.state is GroupState.STOPPED),
        waiting_groups=tuple(group.group_id for group in event.waiting_groups),
        suggested_command=first_command(told) or "",
        told=told,
    )
