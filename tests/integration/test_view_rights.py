"""The recipes of the coordinator views `api` and `none` on a real broker, with one right taken away at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.acl_recipes import (
    CLUSTER_CONFIGS,
    DESCRIBE_GROUPS,
    DESCRIBE_IDS,
    DESCRIBE_LOG,
    PUBLISH,
    READ_DATA,
    READ_GROUP_OFFSETS,
    TOPIC_CONFIGS,
    VIEW_API,
    VIEW_NONE,
    Right,
)
from support.guarded_broker import Guarded, guarded_broker, missing_rights
from support.kafka_faults import stray_write
from support.servers import Clusters, connect
from support.topics import create_topic, unique
from support.waiting import eventually
from support.watch import READY_S, RunningWatch, events_about
from txnwatch.state.model.values import TopicPartition

PAGE = Path(__file__).parents[2] / "docs" / "rights.md"
RECIPES = {"api": VIEW_API, "none": VIEW_NONE}
IN_VIEW_NONE_S = 60.0  # the limit of 5 s, the scan interval and 10 s more, and the time until a micro-batch sees it
HANG_S = 30.0
Answer = dict[str, Any]


@pytest.fixture(scope="module")
def guarded(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_broker(clusters, "view_rights", tmp_path_factory.mktemp("view-rights")) as found:
        found.ensure_events_topic()
        yield found


@pytest.fixture
def doctor(guarded: Guarded, capsys: pytest.CaptureFixture[str]) -> Callable[[str], Answer]:
    """The answer of doctor for one view."""
    return lambda view: guarded.ask(capsys, "doctor", "--coordinator-view", view).answer


def view_row(answer: Answer) -> tuple[str, str]:
    (row,) = [row for row in answer["rows"] if row["check"] == "view"]
    return row["status"], row["detail"]


def without(view: str, right: Right) -> tuple[Right, ...]:
    return (*(other for other in RECIPES[view] if other is not right), *PUBLISH)


@pytest.mark.parametrize("view", RECIPES)
def test_the_whole_recipe_allows_the_view_and_no_better_one(
    guarded: Guarded, doctor: Callable[[str], Answer], view: str
) -> None:
    guarded.grants.set((*RECIPES[view], *PUBLISH))
    status, detail = view_row(doctor(view))
    assert (status, detail.partition(":")[0]) == ("ok", view)
    status, detail = view_row(doctor("auto"))
    assert (status, detail.partition(":")[0]) == ("warning", view)


COMMON = {
    READ_DATA: "Read on topics",
    READ_GROUP_OFFSETS: "Read on topic __consumer_offsets",
    DESCRIBE_GROUPS: "Describe on all consumer groups",
    CLUSTER_CONFIGS: "DescribeConfigs on the cluster",
    TOPIC_CONFIGS: "DescribeConfigs on topics",
}
OF_THE_VIEW = {DESCRIBE_LOG: "on topic __transaction_state", DESCRIBE_IDS: "Describe on all transactional ids"}
DOCTOR_WITHOUT = [("api", right) for right in (*COMMON, *OF_THE_VIEW)] + [("none", right) for right in COMMON]


@pytest.mark.matrix
@pytest.mark.parametrize(("view", "right"), DOCTOR_WITHOUT, ids=str)
def test_doctor_names_a_right_that_is_missing_and_whether_the_view_is_still_allowed(
    guarded: Guarded, doctor: Callable[[str], Answer], view: str, right: Right
) -> None:
    guarded.grants.set(without(view, right))
    answer = doctor(view)
    subject = (COMMON | OF_THE_VIEW)[right]
    (fix,) = [fix for name, fix in missing_rights(answer).items() if subject in name]
    assert fix
    is_allowed = right not in OF_THE_VIEW
    assert view_row(answer)[0] == ("ok" if is_allowed else "missing")
    assert view_row(doctor("auto"))[1].partition(":")[0] == (view if is_allowed else "none")


@dataclass(frozen=True)
class Reported:
    """What `run` does in a view without one right.

    Attributes:
        line: a part of its lines.
        ends: whether it ends before Spark starts.
        is_found: whether it opens the incident about a hang.
    """

    line: str = ""
    ends: bool = False
    is_found: bool = True

    @property
    def cell(self) -> str:
        """As docs/rights.md shows it."""
        what = "the same" if self.is_found else "nothing"
        return "ends" if self.ends else f"{what}, reported" if self.line else what


OF_GROUPS = "the list of affected groups is incomplete: hidden groups are not listed: GROUP_AUTHORIZATION_FAILED"
RUN_WITHOUT: dict[tuple[str, Right], Reported] = {
    ("api", READ_DATA): Reported("0 topics, 0 partitions", is_found=False),
    ("api", DESCRIBE_LOG): Reported("the right DESCRIBE", ends=True),
    ("api", DESCRIBE_IDS): Reported("transactional ids: ", ends=True),
    ("api", READ_GROUP_OFFSETS): Reported(),
    ("api", DESCRIBE_GROUPS): Reported(OF_GROUPS),
    ("api", CLUSTER_CONFIGS): Reported(),
    ("api", TOPIC_CONFIGS): Reported(),
    ("none", READ_DATA): Reported("0 topics, 0 partitions", is_found=False),
    ("none", READ_GROUP_OFFSETS): Reported(),
    ("none", DESCRIBE_GROUPS): Reported(OF_GROUPS),
    ("none", CLUSTER_CONFIGS): Reported("set --max-transaction-timeout-ms", is_found=False),
    ("none", TOPIC_CONFIGS): Reported(),
}


@pytest.mark.long
@pytest.mark.parametrize(("view", "right"), RUN_WITHOUT, ids=str)
def test_run_in_a_view_without_one_right(guarded: Guarded, tmp_path: Path, view: str, right: Right) -> None:
    expected = RUN_WITHOUT[view, right]
    guarded.grants.set(without(view, right))
    _, bootstrap, *connection = guarded.connection
    # Without the right to read it, the limit must come from the brokers: then nothing is reported.
    limit = ("--max-transaction-timeout-ms", "5000") if view == "none" and right is not CLUSTER_CONFIGS else ()
    flags = ("--topics", "orders.*", "--coordinator-view", view, *limit, *connection)
    with (
        closing(connect(guarded.kafka)) as cluster,
        RunningWatch(bootstrap, tmp_path / "checkpoint", *flags) as watch,
    ):
        if expected.ends:
            eventually(lambda: watch.has_ended, READY_S, "the end of the run")
            (line,) = watch.lines
            assert watch.exit_code == 1
            assert expected.line in line
            return
        (hanging,) = create_topic(cluster, unique("orders-view"))
        if right is READ_DATA:
            watch.until(expected.line)
        else:
            watch.until_ready()
        owner = stray_write(cluster, f"of-{hanging.topic}", hanging)
        found = is_found(guarded, hanging, HANG_S if view == "api" else IN_VIEW_NONE_S)
        assert found is expected.is_found
        if expected.line:
            watch.until(expected.line)
        if found:
            (event, *_) = events_about(guarded.kafka.bootstrap_servers, hanging)
            assert event.verdict == ("hanging" if view == "api" else "late")
            assert event.producer_id == owner.producer_id


def is_found(guarded: Guarded, partition: TopicPartition, timeout_s: float) -> bool:
    """Whether an incident about the partition is opened in time."""
    try:
        eventually(lambda: events_about(guarded.kafka.bootstrap_servers, partition), timeout_s, "an incident")
    except pytest.fail.Exception:
        return False
    return True


ON_THE_PAGE = {
    READ_DATA: "READ on the topics",
    DESCRIBE_LOG: "DESCRIBE on `__transaction_state`",
    DESCRIBE_IDS: "DESCRIBE on transactional ids",
    READ_GROUP_OFFSETS: "READ on `__consumer_offsets`",
    DESCRIBE_GROUPS: "DESCRIBE on groups",
    CLUSTER_CONFIGS: "DESCRIBE_CONFIGS on the cluster",
    TOPIC_CONFIGS: "DESCRIBE_CONFIGS on the topics",
}


def test_the_page_has_the_line_of_the_view_api_and_what_run_does_in_each_view_without_each_right() -> None:
    page = PAGE.read_text()
    assert DESCRIBE_LOG.line() in page
    for right, name in ON_THE_PAGE.items():
        cells = [RUN_WITHOUT[view, right].cell if right in RECIPES[view] else "not needed" for view in RECIPES]
        assert f"| {name} | {' | '.join(cells)} |\n" in page
    assert {right for _, right in RUN_WITHOUT} == {*ON_THE_PAGE}
