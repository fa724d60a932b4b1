"""Rights without which a part of the result is missing; no command reports this. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterator

from txnwatch.cli.check_row import Caller, CheckRow, Health, grant_line
from txnwatch.state.text.lists import some
from txnwatch.streaming.admin.topic_rights import DESCRIBE_CONFIGS, READ
from txnwatch.streaming.job.checkup import GROUP_OFFSETS, Checkup

_NAMED = 3
_NOT_ALLOWED = "not allowed"


def optional_rights(found: Checkup, caller: Caller) -> list[CheckRow]:
    """One row for each right; a row that is not ok names what is missing without it."""
    return [*_group_offsets(found, caller), *_topic_configs(found, caller), *_groups(found, caller)]


def _group_offsets(found: Checkup, caller: Caller) -> Iterator[CheckRow]:
    """Transactions that commit offsets hang in __consumer_offsets, and no other right shows that topic."""
    name, needed_by = f"Read on topic {GROUP_OFFSETS}", "find-hanging, run"
    rights = found.topic_operations.get(GROUP_OFFSETS)
    if rights is not None and READ in rights:
        yield CheckRow("right", name, Health.OK, "allowed", needed_by, None)
    elif GROUP_OFFSETS not in found.topic_operations:
        detail = "not shown: no group has committed an offset, or a right is missing; then a hang there is not detected"
        fix = grant_line(caller, "Read", "--topic", GROUP_OFFSETS)
        yield CheckRow("right", name, Health.WARNING, detail, needed_by, fix)


def _topic_configs(found: Checkup, caller: Caller) -> Iterator[CheckRow]:
    name, needed_by = "DescribeConfigs on topics", "run (cleanup_policy in events)"
    shown = {topic: rights for topic, rights in found.topic_operations.items() if topic[:2] != "__"}
    without = sorted(topic for topic, rights in shown.items() if rights is not None and DESCRIBE_CONFIGS not in rights)
    fix = grant_line(caller, "DescribeConfigs", "--topic", "*")
    if without:
        detail = f"{_NOT_ALLOWED} on {some(without, _NAMED)}: the field cleanup_policy of an event is empty"
        yield CheckRow("right", name, Health.WARNING, detail, needed_by, fix)
    elif not shown:
        yield CheckRow("right", name, Health.WARNING, "no topic is shown", needed_by, fix)
    else:
        yield CheckRow("right", name, Health.OK, "allowed", needed_by, None)


def _groups(found: Checkup, caller: Caller) -> Iterator[CheckRow]:
    rights = found.group_rights
    share_groups = (
        "DescribeConfigs on all share groups",
        rights.may_read_isolation,
        "run",
        "an incident does not name the share groups that have stopped",
        ("DescribeConfigs", "--group", "*"),
    )
    for name, allowed, needed_by, without, grant in (
        (
            "Describe on all consumer groups",
            rights.may_describe,
            "run",
            "an incident does not name the groups that have stopped",
            ("Describe", "--group", "*"),
        ),
        (
            f"Read on group {found.lease_group}",
            rights.may_lead,
            "run --auto-abort",
            "no instance gets the lease, so nothing is aborted automatically",
            ("Read", "--group", found.lease_group),
        ),
        *([share_groups] if rights.has_share_groups else []),
    ):
        if allowed is None:
            detail = "no answer, or the broker is too old to report it"
            yield CheckRow("right", name, Health.WARNING, detail, needed_by, None)
        elif allowed:
            yield CheckRow("right", name, Health.OK, "allowed", needed_by, None)
        else:
            fix = grant_line(caller, *grant)
            yield CheckRow("right", name, Health.WARNING, f"{_NOT_ALLOWED}: {without}", needed_by, fix)
