"""What `explain` says about a transactional id that several clients use.

Apart: the answer about an id is made elsewhere, and this adds to it. Pure: no I/O, no clock.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from txnwatch.cli.explanation import Explanation
from txnwatch.cli.output import duration, utc
from txnwatch.state.evidence.contention import Contention, SeriesOf
from txnwatch.state.model.values import DurationMs, TimestampMs, elapsed

CONTENDED = "contended"
_RECENT_MS: Final = DurationMs(5 * 60_000)
_IDLE = "idle"


def with_contention(explained: Explanation, series: Contention | None, now_ms: TimestampMs) -> Explanation:
    """The answer about an id with its last series of takeovers, behind its first line.

    An id without a transaction is not idle while the series lasts: the next takeover comes.
    """
    if series is None:
        return explained
    is_recent = elapsed(series.last_ms, now_ms) <= _RECENT_MS
    first, *others = explained.text
    state = CONTENDED if is_recent and explained.state == _IDLE else explained.state
    return replace(explained, state=state, text=(first, *_lines(series, is_recent=is_recent), *others))


def _lines(series: Contention, *, is_recent: bool) -> tuple[str, ...]:
    words = _WORDS[series.of]
    lasted_ms = DurationMs(series.last_ms - series.first_ms)
    return (
        (
            f"{words.who.format(use='use' if is_recent else 'used')}: {series.inits} InitProducerIds in "
            f"{duration(lasted_ms)}, from {utc(series.first_ms)} to {utc(series.last_ms)} (epochs "
            f"{series.first_epoch} to {series.last_epoch}), and {series.aborted} transactions were aborted, "
            f"{words.each}."
        ),
        f"The log does not name the clients. {words.do}",
    )


class _SeriesWords(NamedTuple):
    """What is said about a series."""

    who: str
    each: str
    do: str


_TWO = _SeriesWords(
    "Two clients {use} this id, or one that starts again and again",
    "each for the InitProducerId that follows it",
    "Give each instance that runs at the same time a transactional id of its own. If there is only one, find out why "
    "it starts again.",
)
_WORDS: Final = {
    SeriesOf.TAKEOVERS: _TWO,
    SeriesOf.EITHER: _TWO._replace(each="each right before the next InitProducerId, for it or by the client itself"),
    SeriesOf.OWN: _SeriesWords(
        "A client that aborts and asks for a new epoch after each error, or that starts again and again",
        "each by the client itself, right before the next InitProducerId",
        "Look for the error in the log of the client: librdkafka asks for a new epoch after each one.",
    ),
}
