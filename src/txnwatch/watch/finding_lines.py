"""Reports findings that an operator should know and that are not incidents: gaps, and a wrong copy of a log."""

from __future__ import annotations

from typing import NamedTuple

from txnwatch.state.model.facts import NoticeKind
from txnwatch.state.model.findings import Finding, PartitionAlarm, ViewHealed


class FindingLine(NamedTuple):
    """A warning about a finding, and the name under which findings of its kind are counted."""

    counted_as: str
    text: str


def line_of(finding: Finding) -> FindingLine | None:
    """The warning about a finding; None if it needs none."""
    match finding:
        case PartitionAlarm(notice):
            where = "" if notice.kind is NoticeKind.HIDDEN else f" [{notice.from_offset}, {notice.to_offset})"
            return FindingLine(f"partitions {notice.kind}", f"{notice.kind} {notice.partition}{where}: {notice.detail}")
        case ViewHealed():
            return FindingLine(
                f"view mismatches ({finding.mismatch})",
                f"producer id {finding.producer_id} on {finding.partition} from {finding.start_offset}: "
                f"{finding.mismatch} at its leader, but not in our copy of the log; the leader is right",
            )
    return None
