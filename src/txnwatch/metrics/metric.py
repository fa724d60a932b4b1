"""What a metric is: its name, its type, its labels and its meaning."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

NAMESPACE = "txnwatch"


class Kind(StrEnum):
    """The types of Prometheus metrics."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """One metric; `is_read` means that its value is computed at the scrape."""

    group: str
    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str
    is_read: bool = False
    buckets: tuple[float, ...] = ()

    @property
    def full_name(self) -> str:
        """The name with its prefix, as a scrape has it."""
        return f"{NAMESPACE}_{self.name}"
