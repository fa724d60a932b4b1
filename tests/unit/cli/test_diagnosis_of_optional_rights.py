"""Which row doctor shows for the right on share groups."""

from __future__ import annotations

import pytest

from txnwatch.cli.doctor import optional_rights
from txnwatch.cli.doctor_rows import Caller, CheckRow, Health
from txnwatch.state.text import Grantee
from txnwatch.streaming.admin.groups import GroupRights
from txnwatch.streaming.checks.checkup import Checkup

CALLER = Caller(Grantee("a:1", "User:watcher"), "txnwatch.events")


def share_group_rows(rights: GroupRights) -> list[CheckRow]:
    found = Checkup(
        brokers={},
        cluster_operations=None,
        topic_operations={},
        without_leader=(),
        id_problems=(),
        events_problem=None,
        newest_stamp_ms=None,
        asked_ms=0,
        group_rights=rights,
    )
    return [row for row in optional_rights(found, CALLER) if row.subject == "DescribeConfigs on all share groups"]


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


def test_brokers_without_share_groups_need_no_right_on_them() -> None:
    assert share_group_rows(GroupRights()) == []
