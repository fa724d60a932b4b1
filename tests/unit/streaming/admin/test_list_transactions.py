"""A listing is complete, or it names what is missing, whatever a broker or a partition of the log does."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from support.fake_brokers import DENIED, LOADING, NOT_COORDINATOR, FakeBrokers
from support.problems import a_problem
from txnwatch.state.model.ports import TransactionListing
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC as LOG
from txnwatch.state.model.values import Problem
from txnwatch.streaming.admin.transaction_requests import DESCRIBE_IDS, FORMER_NUMBER, BrokerListings, Filters
from txnwatch.streaming.admin.transactions import problem_lines
from txnwatch.streaming.client.hidden_topics import NOT_SHOWN
from txnwatch.streaming.client.metadata import PartitionInfo

REFUSED = a_problem("TOPIC_AUTHORIZATION_FAILED")


def texts(problems: Mapping[str, Problem]) -> dict[str, str]:
    return {what: str(why) for what, why in problems.items()}


def listed(found: BrokerListings) -> list[int]:
    return [row.producer_id for row in found.rows]


def test_a_whole_listing_has_no_problems() -> None:
    found = FakeBrokers().list()
    assert (listed(found), found.problems) == ([1, 2], {})


def test_before_the_first_id_there_is_no_log_and_nothing_is_missing() -> None:
    found = FakeBrokers(leaders=None, states={}).list()
    assert (found.problems, found.is_unused) == ({}, True)


def test_but_nothing_is_proven_by_the_absence_of_a_log() -> None:
    found = FakeBrokers(leaders=None, states={}).prove()
    assert found == TransactionListing((), *[(NOT_SHOWN.of(LOG),)] * 2, has_ids=False)


@pytest.mark.parametrize("filters", [Filters(), Filters(producer_ids=(7,))])
def test_if_there_are_ids_a_log_that_no_broker_shows_is_hidden(filters: Filters) -> None:
    brokers = FakeBrokers(leaders=None)
    assert brokers.list(filters).problems == {LOG: NOT_SHOWN}
    assert brokers.prove().silent == (NOT_SHOWN.of(LOG),)


NO_LEADER_WHY = "has no leader: its ids cannot be listed"
TOO_OLD = "broker 2 is too old: it does not support ListTransactions (Kafka 3.0 or later)"
LOSSES: dict[str, tuple[FakeBrokers, list[int], dict[str, str]]] = {
    "nobody leads a partition": (
        FakeBrokers(leaders=[PartitionInfo(None, 1), PartitionInfo(2, 0)], listing={1: "away"}),
        [2],
        {f"{LOG}-0": NO_LEADER_WHY, "coordinator 1": "away"},
    ),
    "nobody leads it, and who has lost it does not know": (
        FakeBrokers(leaders=[PartitionInfo(None, 1), PartitionInfo(2, 0)]),
        [2],
        {f"{LOG}-0": NO_LEADER_WHY},
    ),
    "a broker loads": (
        FakeBrokers(listing={2: LOADING}, describing={2: LOADING}),
        [1],
        {f"{LOG}-1": "broker 2: COORDINATOR_LOAD_IN_PROGRESS", "coordinator 2": "COORDINATOR_LOAD_IN_PROGRESS"},
    ),
    "it has not begun to load, and lists without an error": (
        FakeBrokers(describing={2: NOT_COORDINATOR}),
        [1, 2],
        {f"{LOG}-1": f"broker 2: NOT_COORDINATOR: {FORMER_NUMBER}"},
    ),
    "ids are hidden": (
        FakeBrokers(describing={1: DENIED, 2: DENIED}),
        [1, 2],
        {
            f"{LOG}-0": f"broker 1: TRANSACTIONAL_ID_AUTHORIZATION_FAILED: the right {DESCRIBE_IDS} is missing",
            f"{LOG}-1": f"broker 2: TRANSACTIONAL_ID_AUTHORIZATION_FAILED: the right {DESCRIBE_IDS} is missing",
        },
    ),
    "the log itself is hidden": (
        FakeBrokers(leaders=None, by_name=REFUSED),
        [1, 2],
        {LOG: "TOPIC_AUTHORIZATION_FAILED: its transactional ids are unknown"},
    ),
    "a broker does not answer": (
        FakeBrokers(listing={2: "timed out"}, describing={2: "timed out"}),
        [1],
        {"coordinator 2": "timed out"},
    ),
    "a broker is too old to list, and so to describe": (
        FakeBrokers(listing={2: TOO_OLD}, describing={2: "too old to describe"}),
        [1],
        {"coordinator 2": TOO_OLD},
    ),
}


@pytest.mark.parametrize(("brokers", "rows", "problems"), LOSSES.values(), ids=LOSSES.keys())
def test_everything_that_is_missing_is_named(brokers: FakeBrokers, rows: list[int], problems: dict[str, str]) -> None:
    found = brokers.list()
    assert (listed(found), texts(found.problems)) == (rows, problems)
    assert brokers.prove().problems == problem_lines(found.problems)


SILENCES: dict[str, list[str]] = {
    "a broker loads": ["coordinator 2"],
    "the log itself is hidden": [LOG],
    "a broker does not answer": ["coordinator 2"],
    "a broker is too old to list, and so to describe": ["coordinator 2"],
    "nobody leads a partition": ["coordinator 1"],
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_broker_without_an_answer_differs_from_a_missing_id(loss: str) -> None:
    brokers = LOSSES[loss][0]
    assert list(brokers.list().silent) == SILENCES.get(loss, [])
    assert len(brokers.prove().silent) == len(SILENCES.get(loss, []))


def test_a_coordinator_that_moves_meanwhile_is_reported() -> None:
    brokers = FakeBrokers()
    brokers.on_list = lambda: brokers.__setattr__("leaders", [PartitionInfo(2, 1), PartitionInfo(2, 0)])
    moved = "its coordinator moved to another broker during the listing"
    assert texts(brokers.list().problems) == {f"{LOG}-0": moved}


def test_a_leader_that_is_lost_meanwhile_is_reported_and_its_ids_do_not_count() -> None:
    brokers = FakeBrokers()
    brokers.on_list = lambda: brokers.__setattr__("leaders", [PartitionInfo(None, 1), PartitionInfo(2, 0)])
    found = brokers.list()
    assert (listed(found), texts(found.problems)) == ([2], {f"{LOG}-0": NO_LEADER_WHY})


def test_a_proof_does_not_rest_on_rows_of_a_log_that_is_hidden() -> None:
    brokers = FakeBrokers(leaders=None, by_name=REFUSED)
    assert brokers.prove().transactions == ()


def test_a_state_of_a_newer_broker_does_not_end_the_listing_of_all() -> None:
    found = FakeBrokers(states={1: "Ongoing", 2: "Frozen"}).list()
    assert listed(found) == [1]
    assert list(found.problems) == ["coordinator 2"]
    assert "upgrade txnwatch" in str(found.problems["coordinator 2"])


def test_a_reason_is_shown_once_however_many_partitions_have_it() -> None:
    problems = dict.fromkeys((f"{LOG}-{number}" for number in range(50)), REFUSED) | {"coordinator 3": Problem("away")}
    assert problem_lines(problems) == (
        Problem(f"{LOG}-0, {LOG}-1, {LOG}-2 and 47 more: TOPIC_AUTHORIZATION_FAILED", REFUSED.code),
        Problem("coordinator 3: away"),
    )


def test_a_refusal_keeps_its_code_in_every_list_that_names_it() -> None:
    found = FakeBrokers(describing={1: DENIED, 2: DENIED})
    assert [problem.is_denied for problem in found.prove().problems] == [True, True]
    hidden = FakeBrokers(leaders=None, by_name=REFUSED)
    assert [problem.is_denied for problem in hidden.list().problems.values()] == [True]
