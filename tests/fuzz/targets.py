"""All decoders that are fuzzed, by name."""

from __future__ import annotations

from fuzz import broker_targets, cluster_targets, connection_targets, event_targets, log_targets, store_targets
from fuzz.target import Target

_FILES = (log_targets, broker_targets, cluster_targets, connection_targets, store_targets, event_targets)
TARGETS: dict[str, Target] = {one.name: one for file in _FILES for one in file.TARGETS}
