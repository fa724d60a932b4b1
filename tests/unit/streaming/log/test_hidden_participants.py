"""Partitions that the coordinators' log names and Metadata does not show: the task reports them and requests them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from support.facts import ORDERS, PAYMENTS, BucketRun, notice, seen, transaction
from support.problems import a_problem
from txnwatch.state.detection.reading import ALL_READ, unread_in
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.facts import Fact, NoticeKind
from txnwatch.state.model.findings import CensusReason, CensusRequest, Finding, PartitionAlarm
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.client.metadata import Metadata, PartitionInfo, TopicInfo
from txnwatch.streaming.log.hidden_participants import hidden_participants
from txnwatch.streaming.source.offsets import Position
from txnwatch.streaming.source.options import parse_options

OPTIONS = parse_options({"kafka.bootstrap.servers": "a:1", "subscribePattern": "orders|payments|gone"})
REFUSED, UNKNOWN = a_problem("TOPIC_AUTHORIZATION_FAILED"), a_problem("UNKNOWN_TOPIC_OR_PARTITION")
GONE, UNWANTED = TopicPartition("gone", 0), TopicPartition("audit", 0)
HIDDEN = notice(NoticeKind.HIDDEN, 0)


class Asked:
    """As much of a Cluster as this takes: orders is shown, payments is hidden, gone is not there."""

    def __init__(self) -> None:
        self.metadata = Metadata("cluster", {}, {"orders": TopicInfo("orders", "id", {0: PartitionInfo(1, 0)})})
        self.asked: list[str] = []
        self.is_away = False

    def named(self, topics: Iterable[str]) -> Mapping[str, TopicInfo]:
        if self.is_away:
            raise BrokerError("no broker answered")
        self.asked += topics
        return {name: TopicInfo(name, "", {}, REFUSED if name == "payments" else UNKNOWN) for name in topics}


@pytest.fixture
def cluster() -> Asked:
    return Asked()


def hidden(cluster: Asked, *facts: Fact, known: Iterable[TopicPartition] = ()) -> list[TopicPartition]:
    at = {partition: Position("id", 0, 0, 0, leader=1) for partition in known}
    found = hidden_participants(facts, at, OPTIONS.wants, cluster)  # type: ignore[arg-type]
    assert all(fact.kind is NoticeKind.HIDDEN for fact in found)  # type: ignore[union-attr]
    return [fact.partition for fact in found]  # type: ignore[union-attr]


def test_a_hidden_participant_is_reported(cluster: Asked) -> None:
    assert hidden(cluster, transaction(1, S.ONGOING, ORDERS, PAYMENTS, GONE)) == [PAYMENTS]
    assert cluster.asked == ["gone", "payments"], "by name, and only what is not shown"


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.COMPLETE_ABORT])
def test_so_is_one_that_a_transaction_had(cluster: Asked, state: S) -> None:
    assert hidden(cluster, transaction(1, state, PAYMENTS)) == [PAYMENTS]


def test_known_and_excluded_partitions_are_not_requested(cluster: Asked) -> None:
    assert hidden(cluster, transaction(1, S.ONGOING, ORDERS, PAYMENTS, UNWANTED), seen(0, 9), known=[PAYMENTS]) == []
    assert cluster.asked == []


def test_without_answers_nothing_is_reported_as_gone(cluster: Asked) -> None:
    cluster.is_away = True
    assert hidden(cluster, transaction(1, S.ONGOING, GONE)) == [GONE]


def wanted(emitted: list[Finding]) -> list[TopicPartition]:
    return [
        finding.partition
        for finding in emitted
        if isinstance(finding, CensusRequest) and finding.why is CensusReason.HIDDEN
    ]


def test_the_planner_is_asked_until_it_knows_of_it() -> None:
    run = BucketRun()
    first = run.batch(HIDDEN)
    assert [finding.notice for finding in first if isinstance(finding, PartitionAlarm)] == [HIDDEN]
    assert wanted(first) == [ORDERS]
    assert wanted(run.batch()) == [ORDERS], "a request can be lost"
    assert wanted(run.batch(stale_data=frozenset({ORDERS}))) == []
    assert run.unproven[0].partitions == (ORDERS,)
    assert wanted(run.batch()) == []


def test_but_not_for_ever() -> None:
    run = BucketRun()
    asked = [wanted(run.batch(*([HIDDEN] if not number else []))) for number in range(20)]
    assert asked[5] == [ORDERS]
    assert asked[-1] == []


def test_it_is_no_gap() -> None:
    run = BucketRun()
    run.batch(HIDDEN)
    assert unread_in(run.bucket.readings) == ALL_READ
