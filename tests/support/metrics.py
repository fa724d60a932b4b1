"""The content of a scrape, read with Prometheus' own parser."""

from __future__ import annotations

import urllib.request

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class Scrape:
    """One scrape: families by name, values by name and labels."""

    def __init__(self, text: str) -> None:
        self.families: dict[str, Metric] = {
            family.name: family for family in text_string_to_metric_families(text) if family.name.startswith("txnwatch")
        }
        self._values: Samples = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    @classmethod
    def of(cls, registry: CollectorRegistry) -> Scrape:
        return cls(generate_latest(registry).decode())

    @classmethod
    def at(cls, url: str) -> Scrape:
        with urllib.request.urlopen(url, timeout=10.0) as answer:
            return cls(answer.read().decode())

    def value(self, name: str, **labels: str) -> float | None:
        """The sample, None if there is none."""
        return self._values.get((f"txnwatch_{name}", tuple(sorted(labels.items()))))

    def labels(self) -> set[str]:
        """Every label that is used."""
        return {label for _, labels in self._values for label, _ in labels}

    def label_values(self) -> set[str]:
        """Every value of a label."""
        return {value for _, labels in self._values for _, value in labels}
