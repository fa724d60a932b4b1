"""The choice of the coordinator view, and the longest timeout that a transaction may have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from support.problems import a_problem
from txnwatch.state.model.errors import AuthorizationError
from txnwatch.state.model.ports import TransactionListing
from txnwatch.streaming.admin.kafka_settings import Settings
from txnwatch.streaming.checks import preflight
from txnwatch.streaming.checks.preflight import broker_timeouts, choose_view
from txnwatch.streaming.client.metadata import Metadata, PartitionInfo, TopicInfo
from txnwatch.watch.coverage import longest_timeout

LOG = "__transaction_state"
SHOWN = TopicInfo(LOG, "id", {0: PartitionInfo(1, 0)})
HIDDEN = TopicInfo(LOG, "", {}, a_problem("TOPIC_AUTHORIZATION_FAILED"))
UNREAD = [f"topic {LOG}: TOPIC_AUTHORIZATION_FAILED: the right READ on the topic is missing"]
DENIED = a_problem("TRANSACTIONAL_ID_AUTHORIZATION_FAILED")


def a_cluster(log: TopicInfo | None = SHOWN, version: int | None = 0) -> Any:
    topics = {LOG: log} if log is not None else {}
    shown = {name: topic for name, topic in topics.items() if not topic.is_hidden}
    connection = SimpleNamespace(endpoint="one", version=lambda _: version)
    return SimpleNamespace(
        known=Metadata("c", {1: "one", 2: "two"}, shown),
        any_connection=lambda: connection,
        node=lambda _: connection,
        metadata_from=lambda *_: Metadata("c", {}, topics),
    )


def choose(wanted: str, cluster: Any, *, refused: list[str], problems: tuple[Any, ...] = ()) -> Any:
    admin = SimpleNamespace(list_transactions=lambda _: TransactionListing((), problems))
    with (
        mock.patch.object(preflight, "refused_read", return_value=refused),
        mock.patch.object(preflight, "ClusterAdmin", return_value=admin),
    ):
        return choose_view(cluster, wanted)


AUTO = {
    "the log may be read": (a_cluster(), [], (), "log"),
    "no transaction was begun yet": (a_cluster(None), [], (), "log"),
    "an id is hidden, but the log is not": (a_cluster(), [], (DENIED,), "log"),
    "the log may not be read": (a_cluster(), UNREAD, (), "api"),
    "a coordinator does not answer now": (a_cluster(), UNREAD, (a_problem("no leader"),), "api"),
    "the log is hidden, and so are ids": (a_cluster(HIDDEN), [], (a_problem("TOPIC_AUTHORIZATION_FAILED"),), "none"),
    "neither the log nor the ids": (a_cluster(), UNREAD, (DENIED,), "none"),
    "a broker that cannot list ids": (a_cluster(version=None), UNREAD, (), "none"),
    "no log is shown, and nobody can be asked": (a_cluster(None, version=None), [], (), "none"),
}


@pytest.mark.parametrize(("cluster", "refused", "problems", "view"), AUTO.values(), ids=AUTO.keys())
def test_the_best_view_that_the_rights_allow(
    cluster: Any,
    refused: list[str],
    problems: tuple[Any, ...],
    view: str,
) -> None:
    found = choose("auto", cluster, refused=refused, problems=problems)
    assert found.access == view
    assert len(found.reasons) == ["log", "api", "none"].index(view), "a reason for each better view"


@pytest.mark.parametrize(("wanted", "problems"), [("log", ()), ("api", (DENIED,))])
def test_a_view_that_is_named_needs_its_rights(wanted: str, problems: tuple[Any, ...]) -> None:
    with pytest.raises(AuthorizationError, match="grant it to this user, or set --coordinator-view"):
        choose(wanted, a_cluster(), refused=UNREAD, problems=problems)


def test_a_named_log_that_is_not_shown_yet_is_waited_for() -> None:
    assert choose("log", a_cluster(None, version=None), refused=[]).access == "log"


@pytest.mark.parametrize("wanted", ["api", "none"])
def test_a_lower_view_can_be_named(wanted: str) -> None:
    assert choose(wanted, a_cluster(), refused=[]).access == wanted


LIMIT, TWO_PHASE = "transaction.max.timeout.ms", "transaction.two.phase.commit.enable"
TIMEOUTS = {
    "the largest counts": ([{LIMIT: "900000"}, {LIMIT: "3600000", TWO_PHASE: "false"}], 3_600_000, None),
    "one broker does not show it": ([{LIMIT: "900000"}, {}], None, "broker 2 does not show"),
    "two-phase transactions have no limit": (
        [{LIMIT: "1"}, {LIMIT: "1", TWO_PHASE: "true"}],
        None,
        "no timeout limits",
    ),
}


@pytest.mark.parametrize(("values", "limit_ms", "problem"), TIMEOUTS.values(), ids=TIMEOUTS.keys())
def test_the_longest_timeout(values: list[dict[str, str]], limit_ms: int | None, problem: str | None) -> None:
    answers = {node: Settings(found) for node, found in enumerate(values, 1)}
    with mock.patch.object(preflight, "settings_of", return_value=answers):
        found = longest_timeout(broker_timeouts(a_cluster()))
    assert found.ms == limit_ms
    assert (found.problem is None) if problem is None else problem in (found.problem or "")
