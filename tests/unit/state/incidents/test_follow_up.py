"""The affected groups of an open incident while some brokers do not answer."""

from __future__ import annotations

from support.fake_admin import FakeAdmin
from support.fake_groups import FakeGroups
from support.incidents import an_event
from support.plans import FollowUpReads
from txnwatch.state.incidents.checking import Surroundings
from txnwatch.state.model.incident import AffectedGroup, ConnectSetting, ConnectUse, GroupState
from txnwatch.state.model.ports import PartitionReading
from txnwatch.state.model.values import TopicPartition

ORDERS = TopicPartition("orders", 0)
LSO = 100


class Looks:
    """One partition with two groups at the last stable offset, read again and again."""

    def __init__(self) -> None:
        self.groups = FakeGroups()
        self.groups.commit("billing", ORDERS, LSO)
        self.groups.commit("search", ORDERS, LSO)
        self.follow_up = FollowUpReads(FakeAdmin(), self.groups, lambda _: None)
        self.now_ms, self.end = 0, 120

    def look(self, seconds: int = 10) -> dict[str, str]:
        self.now_ms += seconds * 1000
        self.end += 10
        reading = PartitionReading(ORDERS, last_stable_offset=LSO, high_watermark=self.end)
        return by_group(self.follow_up.around({ORDERS: reading}, self.now_ms)[ORDERS])


def by_group(found: Surroundings) -> dict[str, str]:
    assert found.consumer_groups is not None
    return {one.group_id: str(one.state) for one in found.consumer_groups}


def test_a_group_that_an_incomplete_answer_lacks_stays_affected() -> None:
    looks = Looks()
    looks.look()
    assert looks.look() == {"billing": "stopped", "search": "stopped"}
    looks.groups.hidden.add("search")
    assert looks.look() == {"billing": "stopped", "search": "stopped"}
    assert looks.look() == {"billing": "stopped", "search": "stopped"}


def test_what_connect_keeps_on_a_partition_stays_known() -> None:
    looks = Looks()
    looks.groups.connect["orders"] = use = ConnectUse(topic="orders", setting=ConnectSetting.CONFIGS)
    reading = PartitionReading(ORDERS, last_stable_offset=LSO, high_watermark=120)
    event = looks.follow_up.around({ORDERS: reading}, 1)[ORDERS].added_to(an_event(partition=0))
    looks.groups.connect.clear()  # not all brokers have listed their groups
    assert looks.follow_up.around({ORDERS: reading}, 2)[ORDERS].added_to(event).connect == event.connect == use


def test_a_group_without_an_answer_is_never_stopped() -> None:
    looks = Looks()
    assert looks.look() == {"billing": "at_risk", "search": "at_risk"}
    looks.groups.hidden.add("search")
    assert looks.look() == {"billing": "stopped", "search": "at_risk"}
    looks.groups.hidden.clear()
    assert looks.look() == {"billing": "stopped", "search": "stopped"}


def test_a_complete_answer_clears_a_group_that_is_no_longer_affected() -> None:
    looks = Looks()
    looks.look()
    looks.groups.hidden.add("search")
    looks.look()
    looks.groups.commit("search", ORDERS, LSO + 5)
    assert looks.look() == {"billing": "stopped", "search": "at_risk"}
    looks.groups.hidden.clear()
    assert looks.look() == {"billing": "stopped"}


def test_an_incomplete_answer_that_has_the_group_clears_it() -> None:
    looks = Looks()
    looks.look()
    looks.groups.problems.append("broker 3 did not answer")
    looks.groups.commit("search", ORDERS, LSO + 5)
    assert looks.look() == {"billing": "stopped"}


def test_after_a_restart_an_incomplete_answer_keeps_the_groups_of_the_published_event() -> None:
    looks = Looks()
    looks.groups.hidden.add("search")
    stopped = AffectedGroup(group_id="search", state=GroupState.STOPPED, committed_offset=LSO, hidden_lag=20)
    event = an_event(topic="orders", partition=0, consumer_groups=(stopped,))
    reading = PartitionReading(ORDERS, last_stable_offset=LSO, high_watermark=130)
    found = looks.follow_up.around({ORDERS: reading}, 1_000, [event])[ORDERS]
    assert by_group(found) == {"billing": "at_risk", "search": "stopped"}
