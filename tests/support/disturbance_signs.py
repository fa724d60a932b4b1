"""What metrics and lines of the log show during a disturbance: the words of the page, and how a test checks them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from support.disturbance_results import DisturbanceResult
from support.metrics import Scrape

_CLOCKS_S, _CLOCK_ERROR_S = 600.0, 30.0
_SLOWER = 1.5


@dataclass(frozen=True)
class Sign:
    """What a metric shows.

    Attributes:
        words: for the page.
        is_in: whether a result has it.
    """

    words: str
    is_in: Callable[[DisturbanceResult], bool]


DOWN = Sign("`txnwatch_up` is 0", lambda result: result.up == 0)
UNPROVEN = Sign("`txnwatch_unproven_partitions` is above 0", lambda result: result.unproven > 0)
RESTARTED = Sign("`txnwatch_query_starts_total` rises", lambda result: result.query_starts > 0)
THROTTLED = Sign(
    "`txnwatch_throttled_seconds_total` rises, at the latest when the micro-batch completes",
    lambda result: result.throttled_s > 0,
)
WAITING = Sign("`txnwatch_sink_waiting_events` is above 0", lambda result: result.waiting > 0)
SLOW = Sign(
    "`txnwatch_batch_duration_seconds` rises",
    lambda result: result.batch_s > _SLOWER * result.batch_before_s > 0,
)
FORWARD = Sign(
    "`txnwatch_broker_clock_offset_seconds` is near 600",
    lambda result: abs(result.clock_offset_s - _CLOCKS_S) < _CLOCK_ERROR_S,
)
BACK = Sign(
    "`txnwatch_broker_clock_offset_seconds` is near -600",
    lambda result: abs(result.clock_offset_s + _CLOCKS_S) < _CLOCK_ERROR_S,
)


def is_said(line: str, lines: Iterable[str]) -> bool:
    """Whether one of the lines has this text; `...` stands for any text."""
    pattern = re.compile(".*".join(map(re.escape, line.split("..."))))
    return any(pattern.search(one) for one in lines)


def kind_of(line: str) -> str:
    """A line without its numbers and without what differs from run to run."""
    return re.sub(r"\d+", "N", re.sub(r" /\S+", " FILE", line))


@dataclass
class SignsSeen:
    """The metrics while a disturbance is in effect: the worst values, and how much the counters rise."""

    up: float = 1.0
    unproven: float = 0.0
    waiting: float = 0.0
    clock_offset_s: float = 0.0
    _first: dict[str, float] = field(default_factory=dict)
    _last: dict[str, float] = field(default_factory=dict)

    def look(self, found: Scrape | None) -> None:
        """Takes a scrape, None if there was no answer."""
        if found is None:
            return
        self.look_at_counters(found)
        self.up = min(self.up, found.value("up") or 0.0)
        unproven = sum(found.value("unproven_partitions", log=log) or 0.0 for log in ("data", "coordinator"))
        self.unproven = max(self.unproven, unproven)
        waiting = sum(sample.value for sample in found.families["txnwatch_sink_waiting_events"].samples)
        self.waiting = max(self.waiting, waiting)
        offsets = [sample.value for sample in found.families["txnwatch_broker_clock_offset_seconds"].samples]
        self.clock_offset_s = max([self.clock_offset_s, *offsets], key=abs)

    def look_at_counters(self, found: Scrape | None) -> None:
        """Takes only the counters: some rise when the micro-batch of the disturbance completes, after its end."""
        if found is None:
            return
        throttled = found.families["txnwatch_throttled_seconds"].samples
        self._last = {
            "query_starts": found.value("query_starts_total") or 0.0,
            "batches": found.value("batch_duration_seconds_count") or 0.0,
            "batches_s": found.value("batch_duration_seconds_sum") or 0.0,
            "throttled_s": sum(sample.value for sample in throttled if sample.name.endswith("_total")),
        }
        self._first = self._first or self._last

    def rise(self, name: str) -> float:
        """How much a counter has risen."""
        return self._last.get(name, 0.0) - self._first.get(name, 0.0)

    @property
    def batch_s(self) -> float:
        """The mean duration of a micro-batch that has completed meanwhile; 0 if none has."""
        return self.rise("batches_s") / (self.rise("batches") or 1.0)
