"""A description counts only by the broker that leads the id's part of the coordinators' log, before and after."""

from __future__ import annotations

from support.fake_brokers import LEADERS, NAMES, FakeBrokers
from txnwatch.state.model.transaction import NotDescribed, UnknownTransactionalId
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC as LOG
from txnwatch.state.model.values import Problem
from txnwatch.streaming.admin.transaction_requests import FORMER_NUMBER
from txnwatch.streaming.client.metadata import PartitionInfo


def test_the_answer_of_the_leader_counts() -> None:
    found = FakeBrokers().describe(*NAMES)
    assert found == {name: UnknownTransactionalId(name, number) for number, name in enumerate(NAMES, start=1)}


def test_the_answer_of_a_broker_that_does_not_lead_the_partition_of_the_id_does_not_count() -> None:
    found = FakeBrokers(found={NAMES[0]: 2}).describe(*NAMES)
    assert found == {
        NAMES[0]: NotDescribed(
            NAMES[0], Problem(f"broker 2 answered, but it does not lead {LOG}-0").with_hint(FORMER_NUMBER)
        ),
        NAMES[1]: UnknownTransactionalId(NAMES[1], 2),
    }


def test_the_answer_of_a_leader_that_loses_its_partition_meanwhile_does_not_count() -> None:
    for after in (PartitionInfo(2, 1), PartitionInfo(1, 2)):
        brokers = FakeBrokers()
        brokers.on_describe = lambda: brokers.__setattr__("leaders", [after, LEADERS[1]])  # noqa: B023
        found = brokers.describe(*NAMES)
        assert found == {
            NAMES[0]: NotDescribed(NAMES[0], Problem(f"the leader of {LOG}-0 changed during the request")),
            NAMES[1]: UnknownTransactionalId(NAMES[1], 2),
        }


def test_no_leaders_are_compared_if_the_log_is_hidden() -> None:
    found = FakeBrokers(leaders=None).describe(*NAMES)
    assert found == {name: UnknownTransactionalId(name, number) for number, name in enumerate(NAMES, start=1)}
