"""The doctor names the coordinator view that the rights allow, as `run` chooses it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.problems import a_problem
from txnwatch.cli.doctor import view_of, view_row
from txnwatch.cli.doctor_rows import Health
from txnwatch.state.model.values import CoordinatorAccess
from txnwatch.state.model.verdicts import undetected_text
from txnwatch.streaming.checks.checkup import Checkup
from txnwatch.streaming.checks.preflight import DESCRIBE, READ

LOG = "__transaction_state"
READS = Checkup({}, None, {LOG: frozenset({READ, DESCRIBE})}, (), (), None, None, 0)
DENIED = (a_problem("TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),)
ONLY_DESCRIBES = replace(READS, topic_operations={LOG: frozenset({DESCRIBE})})
HIDDEN = replace(READS, topic_operations={}, has_unseen_log=True)

CASES = {
    "the log may be read": (READS, "log"),
    "the broker does not report operations": (replace(READS, topic_operations={LOG: None}), "log"),
    "no transaction was begun yet": (replace(READS, topic_operations={}), "log"),
    "the log may not be read": (ONLY_DESCRIBES, "api"),
    "a coordinator is away": (replace(ONLY_DESCRIBES, id_problems=(a_problem("no leader"),)), "api"),
    "an id is hidden": (replace(ONLY_DESCRIBES, id_problems=DENIED), "none"),
    "a broker is too old to list ids": (replace(ONLY_DESCRIBES, id_problems=None), "none"),
    "the log is hidden": (HIDDEN, "none"),
    "the log is not shown, and a broker cannot list ids": (
        replace(READS, topic_operations={}, id_problems=None),
        "none",
    ),
}


@pytest.mark.parametrize(("found", "view"), CASES.values(), ids=CASES.keys())
def test_the_view_follows_from_the_rights(found: Checkup, view: str) -> None:
    row = view_row(found, "auto")
    assert view_of(found, "auto") == view
    assert row.detail.partition(":")[0] == view
    assert row.status is (Health.OK if view == "log" else Health.WARNING)
    assert view == "log" or undetected_text(CoordinatorAccess(view)) in row.detail


CONFIGURED = {
    "log": (READS, "log", Health.OK),
    "api instead of the log": (READS, "api", Health.OK),
    "api before the first transaction": (replace(READS, topic_operations={}), "api", Health.OK),
    "none instead of the log": (READS, "none", Health.OK),
    "log without a right": (ONLY_DESCRIBES, "log", Health.MISSING),
    "api without a right": (replace(READS, id_problems=DENIED), "api", Health.MISSING),
    "api, and the log is hidden": (HIDDEN, "api", Health.MISSING),
    "none without a right": (HIDDEN, "none", Health.OK),
}


@pytest.mark.parametrize(("found", "view", "health"), CONFIGURED.values(), ids=CONFIGURED.keys())
def test_a_configured_view_is_taken_and_fails_without_its_rights(found: Checkup, view: str, health: Health) -> None:
    row = view_row(found, view)
    assert view_of(found, view) == view
    assert (row.detail.partition(":")[0], row.status) == (view, health)
    assert ("`run` does not start" in row.detail) is (health is Health.MISSING)
