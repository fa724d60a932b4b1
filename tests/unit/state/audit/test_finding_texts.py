"""What a finding says: it has the state of now, it names the most urgent partition, and no two findings disagree."""

from __future__ import annotations

import pytest

from support.audited import broker, facts, log, offsets, topic
from txnwatch.state.audit.audit_facts import AuditFacts
from txnwatch.state.audit.auditing import audit

RETENTION, CLEANER = "delete.retention.ms", "log.cleaner.enable"


def said(of: AuditFacts, check: str) -> list[str]:
    return [row.finding for row in audit(of).exposures if row.check.name == check]


@pytest.mark.parametrize(
    ("release", "expected"),
    [("4.2", "no transaction there can end"), ("4.3", "the transactions that end get no marker there")],
)
def test_what_one_replica_means_agrees_with_what_the_coordinators_do(release: str, expected: str) -> None:
    (text,) = said(facts(topic(replicas=[2]), brokers=[broker(release) for _ in range(3)]), "replication")
    assert text.endswith(f"one replica: while its broker is away, {expected}")


def test_of_one_broker_nothing_is_said_that_needs_a_second_one() -> None:
    """The coordinator is away with the partition: no transaction ends, so none skips a marker."""
    of = facts(topic(replicas=[1]), log(replicas=[1]), brokers=[broker("4.4")])
    (text,) = said(of, "replication")
    assert text.endswith("one replica: while its broker is away, no transaction there can end")
    (text,) = said(of, "marker-skipped")
    assert text.endswith("a transaction that ends then hangs there; with one broker none ends then")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"replicas": [2]}, "if one broker is away, 1 partition with transactional data has no leader: a transaction"),
        ({"leader": None}, "1 partition with transactional data has no leader now: a transaction"),
    ],
)
def test_a_leader_that_is_missing_now_is_said_to_be_so(given: dict[str, object], expected: str) -> None:
    of = facts(topic(**given), brokers=[broker("4.4") for _ in range(3)])
    (row,) = [one for one in audit(of).exposures if one.check.name == "marker-skipped"]
    assert expected in row.finding
    has_step = any(one.text == "bring the brokers back that have the partition" for one in row.remedies)
    assert has_step is ("leader" in given)


def test_a_leader_that_is_missing_now_hides_no_partition_that_is_near_it() -> None:
    gone, near = topic("gone", leader=None), topic("near", replicas=[2])
    of = facts(near, gone, brokers=[broker("4.4") for _ in range(3)])
    (row,) = [one for one in audit(of).exposures if one.check.name == "marker-skipped"]
    assert "has no leader now, and 1 more if one broker is away: a transaction" in row.finding
    assert list(row.examples) == ["gone-0", "near-0"]


def test_of_the_replicas_that_are_away_that_with_the_least_time_is_named() -> None:
    hour = topic(name="hour", settings={"cleanup.policy": "compact", RETENTION: "3600000"}, in_sync=[1, 2])
    minute = topic(name="minute", settings={"cleanup.policy": "compact", RETENTION: "60000"}, in_sync=[1, 2])
    text, _ = said(facts(hour, minute), "compaction-race")
    assert text.startswith("2 partitions of compacted topics have")
    assert text.endswith("that of minute-0 must be back within 60000 ms")


def test_where_nothing_is_compacted_no_marker_is_lost_by_compaction() -> None:
    away = offsets(settings={RETENTION: "1000"}, in_sync=[1, 2])
    off, on = ([broker("3.9", settings={CLEANER: value}) for _ in range(3)] for value in ("false", "true"))
    assert not said(facts(away, brokers=off), "compaction-race")
    assert said(facts(away, brokers=[*off[:2], on[0]]), "compaction-race")
