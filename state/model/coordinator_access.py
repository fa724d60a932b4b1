"""How a watch learns which transactions the coordinators have: from their log, from their answers, or not at all.

docs/decisions/0027-coordinator-view.md has what each of them proves.
"""

from __future__ import annotations

from enum import StrEnum


class CoordinatorAccess(StrEnum):
    """The source of the coordinators' view; the value is used in settings, events and metrics."""

    LOG = "log"
    API = "api"
    NONE = "none"
