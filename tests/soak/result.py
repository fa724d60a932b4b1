"""What a soak came to: its figures, and each rule that it broke."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from soak.coordinator_log import CoordinatorLog
from soak.hangs import Hang
from soak.samples import Sample
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.verdicts import Verdict

# What may grow from the second sixth of a run to its last sixth (the medians): a part, and an amount for noise.
BOUNDS: dict[str, tuple[float, float]] = {
    "memory": (0.10, 32e6),
    "disk": (0.10, 4e6),
    "descriptors": (0.05, 10.0),
}
SHORTEST_S = 1_800.0  # a shorter run is warming up for too large a part of its time
SHOWN_BY_THE_LOG = {Verdict.LATE, Verdict.STUCK_PREPARE}


@dataclass(frozen=True)
class Growth:
    """How one sum changed; `most` is the largest value that it may have at the end."""

    begin: float
    end: float
    most: float

    @property
    def is_flat(self) -> bool:
        """Whether it grew within its bound."""
        return self.end <= self.most


def growth_of(samples: Sequence[Sample], seconds: float) -> dict[str, Growth]:
    """The growth of each sum; nothing for a run that is too short."""
    if seconds < SHORTEST_S:
        return {}
    sums: dict[str, Callable[[Sample], float]] = {
        "memory": lambda one: sum(one.pss.values()),
        "disk": lambda one: sum(one.disk.values()),
        "descriptors": lambda one: sum(one.descriptors.values()),
    }
    first = [one for one in samples if seconds / 6 <= one.at_s < seconds / 3]
    last = [one for one in samples if seconds * 5 / 6 <= one.at_s < seconds]
    found = {}
    for name, of in sums.items():
        begin, end = (statistics.median(of(one) for one in part) for part in (first, last))
        part, amount = BOUNDS[name]
        found[name] = Growth(begin, end, begin + max(begin * part, amount))
    return found


def is_true(event: IncidentEvent, hangs: Sequence[Hang], log: CoordinatorLog) -> bool:
    """Whether a verdict is right: it is about one of our hangs, or the coordinators' log shows the same."""
    if event.verdict == Verdict.HANGING:
        return any(hang.producer_id == event.producer_id for hang in hangs)
    return event.verdict in SHOWN_BY_THE_LOG and log.is_true(event)


def false_verdicts(events: Sequence[IncidentEvent], hangs: Sequence[Hang], log: CoordinatorLog) -> list[str]:
    """Every verdict that is not right."""
    return [
        f"{event.status} {event.verdict}/{event.reason} {event.subject} {event.transactional_id} {event.evidence}"
        for event in events
        if not is_true(event, hangs, log)
    ]


def counts_of(events: Sequence[IncidentEvent]) -> dict[str, int]:
    """How many events there were, by verdict and status."""
    return dict(sorted(Counter(f"{event.verdict} {event.status}" for event in events).items()))


def write(path: Path, result: dict[str, Any], samples: Sequence[Sample]) -> None:
    """Writes everything to one file."""
    rows = ",\n  ".join(json.dumps(asdict(sample)) for sample in samples)
    text = json.dumps(result, indent=1, sort_keys=True).removesuffix("\n}")
    path.write_text(f'{text},\n "samples": [\n  {rows}\n ]\n}}\n')
