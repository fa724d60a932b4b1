"""Which row doctor shows for the rights that no command needs to start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from txnwatch.cli.doctor import of_the_watch, optional_rights
from txnwatch.cli.doctor_rows import Caller, CheckRow, Health
from txnwatch.cli.main import parser
from txnwatch.cli.one_shot import take_settings
from txnwatch.state.model.values import CONSUMER_OFFSETS_TOPIC, ErrorCode
from txnwatch.state.text import Grantee
from txnwatch.streaming.admin.group_rights import GroupRights
from txnwatch.streaming.checks.checkup import Checkup
from txnwatch.streaming.checks.preflight import DESCRIBE, DESCRIBE_CONFIGS, READ, Operations, TopicRights

CALLER = Caller(Grantee("a:1", "User:watcher"), "txnwatch.events")


def checkup(
    operations: dict[str, Operations] | None = None,
    rights: GroupRights | None = None,
    offsets: TopicRights | None = None,
) -> Checkup:
    return Checkup(
        brokers={},
        cluster_operations=None,
        topic_operations=operations or {},
        replicas=(),
        id_problems=(),
        events_problem=None,
        group_rights=rights or GroupRights(),
        internal_rights={CONSUMER_OFFSETS_TOPIC: offsets or TopicRights()},
    )


def rows(found: Checkup, subject: str) -> list[CheckRow]:
    return [row for row in optional_rights(found, CALLER) if row.subject == subject]


def share_group_rows(rights: GroupRights) -> list[CheckRow]:
    return rows(checkup(rights=rights), "DescribeConfigs on all share groups")


ALLOWED, REFUSED = frozenset({READ, DESCRIBE, DESCRIBE_CONFIGS}), frozenset({READ, DESCRIBE})
ABSENT, HIDDEN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_right_on_the_settings_of_the_topics_of_a_prefix_is_enough() -> None:
    """An event has no policy of the events topic or of an internal topic, so no right is missing there."""
    shown = {"orders-a": ALLOWED, "orders-b": ALLOWED, "txnwatch.events": REFUSED, "__share_group_state": REFUSED}
    (row,) = rows(checkup(shown), "DescribeConfigs on topics")
    assert (row.status, row.fix) == (Health.OK, None)


@pytest.mark.parametrize(
    ("names", "flags"),
    [
        (["a"], "--topic a"),
        (["a", "b"], "--topic a --topic b"),
        (["a", "b", "c", "d"], "--topic a --topic b --topic c --topic d"),
        ([f"t{number}" for number in range(51)], "--topic TOPIC_PREFIX --resource-pattern-type prefixed"),
        ([], "--topic TOPIC_PREFIX --resource-pattern-type prefixed"),
    ],
    ids=["one", "two", "four", "too many", "none is shown"],
)
def test_the_line_grants_the_settings_of_no_other_topic(names: list[str], flags: str) -> None:
    (row,) = rows(checkup(dict.fromkeys(names, REFUSED)), "DescribeConfigs on topics")
    assert row.fix is not None
    assert row.fix.endswith(f"--operation DescribeConfigs {flags}")


def test_no_right_is_asked_for_on_a_topic_that_run_would_not_watch() -> None:
    flags = ["--bootstrap-server", "a:1", "--topics", "orders.*", "--census-topics", "clicks"]
    parsed = parser(("doctor",)).parse_args(["doctor", *flags])
    take_settings(parsed)
    names = ("orders-a", "clicks", "payments", "__consumer_offsets", "txnwatch.events")
    kept = of_the_watch(checkup(dict.fromkeys(names, REFUSED)), parsed)
    assert set(kept.topic_operations) == set(names) - {"payments"}


OFFSETS = {
    "a fresh cluster": (
        TopicRights(ALLOWED, ABSENT),
        Health.OK,
        "does not exist yet: no group has committed an offset",
    ),
    "a broker that reports no rights": (
        TopicRights(None, ABSENT),
        Health.OK,
        "does not exist yet: no group has committed an offset",
    ),
    "it exists": (TopicRights(ALLOWED), Health.OK, "allowed"),
    "hidden": (
        TopicRights(frozenset(), HIDDEN),
        Health.WARNING,
        "not shown: no group has committed an offset, or a right is missing",
    ),
}


@pytest.mark.parametrize(("offsets", "health", "detail"), OFFSETS.values(), ids=OFFSETS.keys())
def test_the_topic_of_group_offsets_is_missing_only_if_a_right_is(
    offsets: TopicRights, health: Health, detail: str
) -> None:
    (row,) = rows(checkup(offsets=offsets), "Read on topic __consumer_offsets")
    assert (row.status, row.detail) == (health, detail)
    assert (row.fix is None) is (health is Health.OK)


@pytest.mark.parametrize(
    ("may_read", "health", "detail"),
    [
        (True, Health.OK, "allowed"),
        (False, Health.WARNING, "not allowed: an incident does not name the share groups that have stopped"),
        (None, Health.WARNING, "no answer, or the broker is too old to report it"),
    ],
    ids=["allowed", "refused", "no answer"],
)
def test_the_right_on_share_groups_is_a_row(*, may_read: bool | None, health: Health, detail: str) -> None:
    (row,) = share_group_rows(GroupRights(has_share_groups=True, may_read_isolation=may_read))
    assert (row.status, row.detail, row.needed_by) == (health, detail, "run")
    assert (row.fix is not None) == (may_read is False)


def test_a_member_of_the_groups_of_watchers_that_is_none_is_named() -> None:
    assert rows(checkup(), "members of txnwatch-speaker-c-*") == []
    one = "kafka-ui at 10.0.0.7 in txnwatch-speaker-c-01234567"
    found = replace(checkup(), lease_group="txnwatch-speaker-c-", strangers=(one,))
    (row,) = rows(found, "members of txnwatch-speaker-c-*")
    assert row.status is Health.WARNING
    assert row.detail == f"{one} is no watcher: while it has the lease of the group, no watcher publishes"


def test_brokers_without_share_groups_need_no_right_on_them() -> None:
    assert share_group_rows(GroupRights()) == []
