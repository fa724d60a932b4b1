"""`txnwatch`, with a state that forgets idle producer ids after the given milliseconds instead of an hour.

The retention is no setting. Run as `python -m support.short_retention MILLISECONDS run ...`.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from txnwatch.cli.main import main
from txnwatch.config import RunSettings
from txnwatch.state.model.values import DurationMs
from txnwatch.state.model.verdicts import DetectionPolicy

if __name__ == "__main__":
    retention_ms = DurationMs(int(sys.argv.pop(1)))
    policy_of = RunSettings.policy.fget  # type: ignore[attr-defined]

    def shortened(settings: RunSettings) -> DetectionPolicy:
        return replace(policy_of(settings), idle_retention_ms=retention_ms)

    RunSettings.policy = property(shortened)  # type: ignore[method-assign, assignment]
    sys.exit(main())
