"""Evaluates all checks of the table over the facts. Pure: no I/O, no clock.

Law: a check that cannot be certain makes no finding. What it would need is in `missing`, once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from txnwatch.state.audit import broker_checks, id_checks, right_checks, topic_checks
from txnwatch.state.audit.audit_check import CheckGroup
from txnwatch.state.audit.audit_facts import AuditFacts
from txnwatch.state.audit.audit_table import CHECKS
from txnwatch.state.audit.exposures import AuditResult, Exposure

EVALUATED: Final[Mapping[str, Callable[[AuditFacts], Iterator[Exposure]]]] = {
    "marker-skipped": broker_checks.marker_skipped,
    "no-verification": broker_checks.no_verification,
    "old-transaction-version": broker_checks.old_transaction_version,
    "mixed-versions": broker_checks.mixed_versions,
    "stuck-prepare-bugs": broker_checks.stuck_prepare_bugs,
    "epoch-bugs": broker_checks.epoch_bugs,
    "late-gauge-blind": broker_checks.late_gauge_blind,
    "coordinator-log-config": topic_checks.coordinator_log_config,
    "coordinator-log-large": broker_checks.coordinator_log_large,
    "coordinator-partitions": id_checks.misplaced_ids,
    "producer-id-reused": id_checks.reused_producer_ids,
    "unclean-election": topic_checks.unclean_election,
    "replication": topic_checks.replication,
    "compaction-race": topic_checks.compaction_race,
    "retention-below-timeout": topic_checks.retention_below_timeout,
    "times-out": id_checks.times_out,
    "fenced-while-open": id_checks.fenced_while_open,
    "one-shot-ids": id_checks.one_shot_ids,
    "long-timeout": id_checks.long_timeout,
    "old-protocol": id_checks.old_protocol,
    "never-commits": id_checks.never_commits,
    "internal-writers": right_checks.internal_writers,
    "marker-writers": right_checks.marker_writers,
    "id-owners": right_checks.id_owners,
}
_NEEDS: Final = (broker_checks.releases_unknown, topic_checks.settings_unknown, topic_checks.unclean_unseen)
MOST_OF_A_CHECK: Final = 20  # findings; of more, the worst are shown and the others counted
_ORDER: Final = {group: at for at, group in enumerate(CheckGroup)}


def audit(facts: AuditFacts) -> AuditResult:
    """All findings: by group, the worst first, then by the number that is affected."""
    exposures = [exposure for check in CHECKS for exposure in EVALUATED[check.name](facts)]
    exposures.sort(key=lambda exposure: (_ORDER[exposure.check.group], exposure.severity.rank, -exposure.affected))
    times: Counter[str] = Counter()
    shown = []
    for exposure in exposures:
        times[exposure.check.name] += 1
        if times[exposure.check.name] <= MOST_OF_A_CHECK:
            shown.append(exposure)
    missing = (*facts.missing, *(need for needs in _NEEDS for need in needs(facts)))
    folded = {name: count - MOST_OF_A_CHECK for name, count in times.items() if count > MOST_OF_A_CHECK}
    return AuditResult(tuple(shown), tuple(dict.fromkeys(missing)), folded)
