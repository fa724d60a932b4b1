"""Checks of transactional ids by their records in the coordinators' log. Pure: no I/O, no clock.

Apart: one subject a file.
"""

from __future__ import annotations

from collections.abc import Iterator

from txnwatch.state.audit.audit_facts import AuditedId, AuditFacts
from txnwatch.state.audit.audit_table import Basis, ExposureSeverity
from txnwatch.state.audit.exposures import Exposure, SeenValue, exposure, remedy
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, log_numbered
from txnwatch.state.text import quoted

_CRITICAL, _WARN, _INFO = ExposureSeverity


def misplaced_ids(facts: AuditFacts) -> Iterator[Exposure]:
    """KAFKA-20029: partitions were added to the coordinators' log."""
    count = len(facts.log.partitions) if facts.log is not None else 0
    found = [one for one in (facts.ids or {}).values() if one.own_partition != one.log_partition]
    if found:
        newest = max(found, key=lambda one: one.last.timestamp_ms)
        first = found[0]
        yield exposure(
            "coordinator-partitions",
            _CRITICAL,
            f"{len(found)} transactional ids have live records in a partition of {TRANSACTION_STATE_TOPIC} that is not "
            f"theirs; the newest is of {newest.last.timestamp_ms} ms",
            Basis.PROVEN,
            [quoted(one.name) for one in found],
            [
                SeenValue("Metadata", f"partitions of {TRANSACTION_STATE_TOPIC}", str(count)),
                SeenValue("Fetch", f"{log_numbered(first.log_partition)}@{first.last.offset}", quoted(first.name)),
            ],
            [remedy("coordinator-partitions", "restart")],
            ids=tuple(one.name for one in found),
            key=TRANSACTION_STATE_TOPIC,
        )


def reused_producer_ids(facts: AuditFacts) -> Iterator[Exposure]:
    """Two transactional ids with one producer id."""
    by_producer: dict[int, list[AuditedId]] = {}
    for one in (facts.ids or {}).values():
        by_producer.setdefault(one.last.producer_id, []).append(one)
    shared = {producer: found for producer, found in sorted(by_producer.items()) if len(found) > 1}
    if shared:
        producer, found = next(iter(shared.items()))
        names = [one.name for of in shared.values() for one in of]
        yield exposure(
            "producer-id-reused",
            _CRITICAL,
            f"{len(shared)} producer ids belong to several transactional ids: a marker of one ends data of another",
            Basis.PROVEN,
            [quoted(name) for name in names],
            [
                SeenValue(
                    "Fetch", f"{log_numbered(one.log_partition)}@{one.last.offset}", f"{quoted(one.name)}, {producer}"
                )
                for one in found
            ],
            [remedy("producer-id-reused", "restart")],
            ids=tuple(names),
        )
