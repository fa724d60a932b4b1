"""`txnwatch status`: the open incidents and the watchers, from Redis or the events topic.

It prints the incidents that `txnwatch run` has opened and not yet resolved, the oldest first; it asks no broker about
transactions. An empty list is a good sign only while a watcher evaluates barriers, and only for the partitions
about which it proves something. The heartbeats of the watchers show both.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from txnwatch.cli.events_read import keys_of, read_events_topic
from txnwatch.cli.flag_types import redis_url
from txnwatch.cli.one_shot import add_connection_flags, add_events_flags, add_output_flags, with_command_from_here
from txnwatch.cli.output import DETAIL, CommandAnswer, Duration, Line, NotChecked, Time, write
from txnwatch.cli.watchers import Watcher, listed, not_reached, watchers_of
from txnwatch.sinks.delivery.redis_views import read_shown
from txnwatch.sinks.delivery.skipped_records import SkippedRecords
from txnwatch.state.events.heartbeat import Heartbeat
from txnwatch.state.events.watch_coverage import last_of_each, uncovered, undetected, unwatched
from txnwatch.state.model.errors import BadEventError, ConfigError
from txnwatch.state.model.ids import ProducerId
from txnwatch.state.model.incident import IncidentEvent, latest
from txnwatch.state.model.incident_payload import GroupState
from txnwatch.state.model.quantities import TimestampMs, elapsed
from txnwatch.state.model.verdicts import Verdict
from txnwatch.state.text.lists import grouped, some
from txnwatch.streaming.client.clock import wall_clock_ms

_NAMED = 3


@dataclass(frozen=True, slots=True)
class OpenIncident:
    """One open incident; `txnwatch events --format json` has every field of its events."""

    verdict: str
    reason: Annotated[str | None, DETAIL]
    topic: str | None
    partition: int | None
    transactional_id: str | None
    producer_id: Annotated[ProducerId, DETAIL]
    open_since_ms: Annotated[Time, DETAIL]
    age_ms: Duration
    hidden_records: int | None
    stopped_groups: tuple[str, ...]
    incident_id: Annotated[str, DETAIL]
    suggested_command: Line


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
        "is active, because none has evaluated a barrier within the last minute; then an empty list proves nothing. 1: "
        "the answer is incomplete: records that could not be read, and partitions on which an active watcher proves "
        "nothing, are listed as not checked. 0: a watcher is active, everything was read, and no partition is "
        "unproven. The coordinator view `api` alone does not change the exit code: the last line names the verdicts "
        "that it does not detect. With the view `none` no hang is proven, so the answer is always incomplete.",
    )
    add_connection_flags(parser, is_required=False)
    add_events_flags(parser)
    parser.add_argument(
        "--redis-url", type=redis_url, metavar="URL", help="redis://host:port/db that `txnwatch run` fills"
    )
    add_output_flags(parser, found_if="an incident is open")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Prints the open incidents and the watchers; see the description for the exit code."""
    found, now_ms = _read(parsed), wall_clock_ms()
    last = last_of_each(found.heartbeats, now_ms)
    watchers = watchers_of(last, now_ms)
    alone = unwatched(found.clusters, last, now_ms)
    missing = not_reached(uncovered(last, now_ms))
    clusters = sorted(found.clusters)
    summary = _summary(found, watchers, alone, is_whole=not missing)
    answer = CommandAnswer(
        "status",
        clusters[0] if len(clusters) == 1 else "",
        OpenIncident,
        [_row(with_command_from_here(event, parsed), now_ms) for event in found.incidents],
        (*found.problems, *missing),
        "; ".join([*summary, *_not_detected(undetected(last, now_ms))]),
        found=bool(found.incidents),
        notes=tuple(watcher.line() for watcher in listed(watchers)),
        also={"watchers": [watcher.members() for watcher in listed(watchers)]},
        unwatched=bool(alone) or not watchers,
    )
    write(answer, parsed.format, is_wide=parsed.wide)
    return answer.exit_code(fail_on_found=parsed.fail_on_found)


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
    for found in read_events_topic(parsed):
        if isinstance(found, BadEventError):
            bad.take(found)
        elif isinstance(found, IncidentEvent):
            events.append(found)
        elif isinstance(found, Heartbeat):
            beats.append(found)
    open_now = sorted((event for event in latest(events).values() if event.is_open), key=lambda one: one.open_since_ms)
    problems = [
        NotChecked(
            f"{count} records of {parsed.events_topic}" if count > 1 else f"a record of {parsed.events_topic}", why
        )
        for why, count in ((f"{kind}, the last: {bad.last[kind]}", count) for kind, count in bad.counts.items())
    ]
    clusters = {event.cluster_id for event in open_now} | {beat.cluster_id for beat in beats}
    return _StatusFound(clusters, open_now, beats, problems)


def _summary(
    found: _StatusFound, watchers: Sequence[Watcher], alone: Sequence[str], *, is_whole: bool
) -> Iterator[str]:
    """The parts of one line: whether an incident is open, whether a watcher is active, and whether all is covered."""
    if found.incidents:
        wrong = ""
    elif found.problems:
        wrong = "no open incident was read, but not everything could be read"
    else:
        wrong = "no open incident"
    if not watchers:
        coverage = "no watcher is active: no heartbeat was found here"
    elif alone:
        since = "none has evaluated a barrier within the last minute"
        coverage = f"no watcher of cluster {some(alone, _NAMED)} is active: {since}"
    elif not is_whole:
        coverage = "a watcher is active, but it proves nothing on the partitions that are not checked"
    else:
        coverage = "" if wrong == "" else "a watcher is active"
    yield from filter(None, (wrong, coverage))


def _not_detected(verdicts: Mapping[str, tuple[Verdict, ...]]) -> Iterator[str]:
    """One part for each list of verdicts: which clusters have no watcher that detects them."""
    for names, clusters in grouped(verdicts.items()).items():
        yield f"no watcher of cluster {some(clusters, _NAMED)} detects {', '.join(names)}"


def _row(event: IncidentEvent, now_ms: TimestampMs) -> OpenIncident:
    return OpenIncident(
        verdict=event.verdict,
        reason=event.reason,
        topic=event.topic,
        partition=event.partition,
        transactional_id=event.transactional_id,
        producer_id=event.producer_id,
        open_since_ms=event.open_since_ms,
        age_ms=elapsed(event.open_since_ms, now_ms),
        hidden_records=event.hidden_records,
        stopped_groups=tuple(group.group_id for group in event.consumer_groups if group.state is GroupState.STOPPED),
        incident_id=event.incident_id,
        suggested_command=event.suggested_command or "",
    )
