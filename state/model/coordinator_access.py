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


ACCESS_MEANS: dict[CoordinatorAccess, str] = {
    CoordinatorAccess.LOG: "the coordinators' log (`__transaction_state`) is read: every verdict",
    CoordinatorAccess.API: "the coordinators are asked about data that stays open (ListTransactions, "
    "DescribeTransactions): `hanging`, and `stray_write` with two epochs in one span; no verdict about the age of a "
    "transaction, and no expected outcome",
    CoordinatorAccess.NONE: "only the logs of the partitions are read: data that is open for longer than any "
    "transaction may be is `late`, with its producer id and without a transactional id; nothing is `hanging`",
}

# What a watch does not detect, as text for its operator.
NOT_DETECTED: dict[CoordinatorAccess, str] = {
    CoordinatorAccess.API: "late, stuck_prepare and long_running transactions are not detected, the outcome of a hang "
    "is unknown, and nothing is aborted automatically",
    CoordinatorAccess.NONE: "no hang is proven, and no transactional id is known; only data that is open for longer "
    "than any transaction may be is reported, as late",
}
