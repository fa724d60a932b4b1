"""All decoders that are fuzzed, by name."""

from __future__ import annotations

from fuzz import broker_targets, event_targets, log_targets
from fuzz.target import Target

TARGETS: dict[str, Target] = {
    one.name: one for one in (*log_targets.TARGETS, *broker_targets.TARGETS, *event_targets.TARGETS)
}
