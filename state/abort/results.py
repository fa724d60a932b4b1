"""The values for a decision about a marker, and for its result."""

from __future__ import annotations

ABORT, COMMIT, DRY_RUN, REFUSED = "abort", "commit", "dry_run", "refused"  # decisions
VERIFIED, STILL_OPEN, FAILED, UNKNOWN = "verified", "still_open", "failed", "unknown"  # results
DECISIONS = (ABORT, COMMIT, DRY_RUN, REFUSED)
RESULTS = (VERIFIED, STILL_OPEN, FAILED, UNKNOWN)
