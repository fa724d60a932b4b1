"""What the audit looks at does not grow with the topics times the ids: both can be many."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from support.audited import an_id, facts, record, topic
from txnwatch.state.audit.audit_facts import AuditedId
from txnwatch.state.audit.auditing import audit
from txnwatch.state.audit.exposures import exposed_ids


class _CountedIds(dict[str, AuditedId]):
    times = 0

    def values(self) -> Any:
        self.times += 1
        return super().values()

    def items(self) -> Any:
        self.times += 1
        return super().items()


def looks_at_all_ids(topics: int) -> int:
    counted = _CountedIds({f"id-{number}": an_id(f"id-{number}", record(producer_id=number)) for number in range(3)})
    short = (topic(f"topic-{number}", [2], settings={"retention.ms": "1"}) for number in range(topics))
    of = replace(facts(*short), ids=counted)
    for one in audit(of).exposures:
        exposed_ids(one, of)
    return counted.times


def test_the_ids_are_not_looked_at_once_for_each_topic() -> None:
    assert looks_at_all_ids(30) == looks_at_all_ids(1)
