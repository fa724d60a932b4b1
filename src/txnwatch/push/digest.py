"""How many messages a chat gets, and what a digest says: a storm is told as one. Pure: no I/O, and time is an argument.

Apart: it is pure, and webhook.py sends.

A chat gets at most so many messages a minute, and one digest more. If more events wait than are left of them, all that
wait are told in one digest. So a few incidents are told one by one, and a thousand are one message.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from txnwatch.push.message import harmless, message_of, page_of, words_of
from txnwatch.state.model.incident import IncidentEvent, latest
from txnwatch.state.model.ownership import WITHOUT_OWNER
from txnwatch.state.model.values import NO_TIME, DurationMs, TimestampMs
from txnwatch.state.telling.folding import FoldedIncidents, fold, harm
from txnwatch.state.telling.statements import how_it_ended

MINUTE_MS: Final = DurationMs(60_000)
MOST_CAUSES: Final = 8
LONGEST_DIGEST: Final = 4_000  # Slack divides a longer text, also in a code block
_LONGEST_PLACE: Final = 80


class Portion(NamedTuple):
    """What the next message tells: so many of the first events that wait, after a time."""

    events: int
    wait_ms: DurationMs = NO_TIME


class MessagePace:
    """The messages of the last minute.

    Args:
        most: how many a chat gets in a minute.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._sent: deque[TimestampMs] = deque()
        self._digest_ms: TimestampMs | None = None

    def next_portion(self, waiting: int, now_ms: TimestampMs) -> Portion:
        """What the next message tells of the events that wait."""
        while self._sent and not 0 <= now_ms - self._sent[0] < MINUTE_MS:  # the clock may have been set back
            self._sent.popleft()
        if waiting <= self._most - len(self._sent):
            return Portion(min(waiting, 1))
        since_ms = now_ms - self._digest_ms if self._digest_ms is not None else MINUTE_MS
        return Portion(waiting, DurationMs(MINUTE_MS - since_ms) if 0 <= since_ms < MINUTE_MS else NO_TIME)

    def sent(self, events: int, now_ms: TimestampMs) -> None:
        """Counts a message about so many events."""
        if events > 1 or len(self._sent) >= self._most:
            self._digest_ms = now_ms
        else:
            self._sent.append(now_ms)


def text_of(events: Sequence[IncidentEvent], external_url: str | None, before: IncidentEvent | None = None) -> str:
    """One event as a message, several as a digest; `before` is the event before a single one."""
    if len(events) == 1:
        return message_of(events[0], external_url, before).as_text(events[0].status)
    return digest_of(events, external_url)


def digest_of(events: Iterable[IncidentEvent], external_url: str | None) -> str:
    """The incidents by their causes, and the worst open one whole."""
    incidents = list(latest(events).values())
    folds = fold(sorted(incidents, key=harm))
    left = len(folds) - MOST_CAUSES
    head = f"{_count(len(incidents), 'incident')} of {_count(len(folds), 'cause')}: {_counts(incidents)}"
    lines = [
        f"[DIGEST] {_clusters(folds)}: {head}",
        *(f"{_counts(alike.incidents)}: {_cause(alike)}" for alike in folds[:MOST_CAUSES]),
        *([f"{_count(left, 'more cause')}."] if left > 0 else []),
        *([f"Page: {page_of(external_url)}"] if external_url is not None else []),
    ]
    return "\n".join([*lines, *_worst(folds[0].incidents[0], external_url, sum(map(len, lines)) + len(lines))])


def _worst(event: IncidentEvent, external_url: str | None, length: int) -> list[str]:
    """The worst incident if it is open, whole if its message has place behind so many characters."""
    if not event.is_open:
        return []
    message = message_of(event, external_url)
    whole = f"The worst one:\n{message.as_text(event.status)}"
    return [whole if length + len(whole) <= LONGEST_DIGEST else f"The worst one: {message.summary}"]


def _clusters(folds: Iterable[FoldedIncidents]) -> str:
    names = dict.fromkeys(harmless(alike.cause.cluster, _LONGEST_PLACE) for alike in folds)
    return ", ".join(names)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _counts(incidents: Sequence[IncidentEvent]) -> str:
    """How many are open, and how the others ended."""
    is_open = sum(event.is_open for event in incidents)
    ends = Counter(how_it_ended(event) for event in incidents if not event.is_open)
    how = ", ".join(f"{number:,} {end}" for end, number in ends.most_common())
    parts = ([f"{is_open:,} open"] if is_open or not ends else []) + (
        [f"{ends.total():,} over ({how})"] if ends else []
    )
    return ", ".join(parts)


def _cause(alike: FoldedIncidents) -> str:
    cause, first = alike.cause, alike.incidents[0]
    reason = f" ({cause.reason})" if cause.reason is not None else ""
    if cause.topic is not None:
        place = f"on topic {harmless(cause.topic, _LONGEST_PLACE)}"
    elif cause.prefix is not None:
        place = f"of ids that begin with {harmless(cause.prefix, _LONGEST_PLACE)}"
    else:
        place = "of no known application"
    is_owned = first.owner is not None and cause.owner != WITHOUT_OWNER
    owner = harmless(first.owner.whom_to_call) if first.owner is not None and is_owned else "not known"
    return f"{words_of(first)}{reason} {place}, owner: {owner}"
