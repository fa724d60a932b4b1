"""The checks of transactional ids: their records fire them, and what looks alike does not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from support.audited import NOW_MS, an_id, broker, facts, found, record
from txnwatch.state.audit.audit_check import CheckGroup
from txnwatch.state.audit.audit_facts import AuditedId, LoggedState
from txnwatch.state.audit.audit_table import CHECKS
from txnwatch.state.audit.auditing import MOST_OF_A_CHECK, audit
from txnwatch.state.audit.id_checks import has_random_part, is_random, template_of
from txnwatch.state.model.transaction import TransactionState as S

DAY_MS, MINUTE_MS = 86_400_000, 60_000
BROKERS_3_9 = [broker("3.9") for _ in range(3)]


def at(state: S, offset: int, **more: Any) -> LoggedState:
    """A record `offset` seconds after the first one."""
    stamp = NOW_MS - DAY_MS // 24 + 1000 * offset
    values = {"timestamp_ms": stamp, "updated_ms": stamp, "start_ms": stamp - 500, "client_version": 0, **more}
    return record(state, offset=offset, **values)


def late(offset: int) -> LoggedState:
    """An abort at the timeout."""
    return at(S.PREPARE_ABORT, offset, start_ms=NOW_MS - DAY_MS // 24 + 1000 * offset - MINUTE_MS)


def whole(name: str, records: Iterable[LoggedState], **more: Any) -> AuditedId:
    """An id all of whose records are in the log."""
    return an_id(name, *records, whole_from_ms=0, **{"partition": 0, **more})


def fence(offset: int, **more: Any) -> list[LoggedState]:
    """A transaction that is open when its id is initialised."""
    raised: dict[str, Any] = {"producer_epoch": offset + 1}
    return [
        at(S.ONGOING, offset, producer_epoch=offset, **more),
        at(S.PREPARE_ABORT, offset + 1, **raised),
        at(S.COMPLETE_ABORT, offset + 1, **raised),
        at(S.EMPTY, offset + 2, **raised),
    ]


def random_ids(number: int = 100, **more: Any) -> list[AuditedId]:
    old = {"updated_ms": NOW_MS - 2 * DAY_MS, **more}
    return [whole(f"job-{n:08x}-4e1f-11ee-8c99-0242ac120002", [record(producer_id=n, **old)]) for n in range(number)]


FIRES = {
    "three timeouts": ("warn times-out", [whole("a", [late(1), late(2), late(3)])]),
    "three timeouts of one form": (
        "warn times-out",
        [whole(f"a-{n}", [at(S.PREPARE_ABORT, n, producer_id=n, start_ms=0)]) for n in range(3)],
    ),
    "one timeout": ("info times-out", [whole("a", [late(1)])]),
    "three fences": ("warn fenced-while-open", [whole("a", [*fence(1), *fence(60), *fence(120)])]),
    "a hundred used once": ("info one-shot-ids", random_ids()),
    "a hundred used once, and a timeout": (
        "warn one-shot-ids",
        [*random_ids(), whole("job-000000ff-4e1f-11ee-8c99-0242ac120002", [replace(late(1), producer_id=999)])],
    ),
    "16 minutes": ("info long-timeout", [an_id("a", record(timeout_ms=16 * MINUTE_MS))]),
    "an hour": ("warn long-timeout", [an_id("a", record(timeout_ms=60 * MINUTE_MS))]),
    "two phases": ("info long-timeout", [an_id("a", record(timeout_ms=2147483647))]),
    "an old client": ("info old-protocol", [an_id("a", record(S.ONGOING, client_version=0))]),
    "twenty aborts": ("info never-commits", [whole("a", [at(S.PREPARE_ABORT, n) for n in range(20)])]),
}
SILENT = {
    "an abort before the timeout": ("times-out", [whole("a", [at(S.PREPARE_ABORT, n) for n in range(3)])]),
    "timeouts in a part of the log with holes": ("times-out", [an_id("a", late(1), whole_from_ms=None)]),
    "two fences": ("fenced-while-open", [whole("a", [*fence(1), *fence(60)])]),
    "three fences in an hour": ("fenced-while-open", [whole("a", [*fence(1), *fence(1800), *fence(3500)])]),
    "an init with nothing open": (
        "fenced-while-open",
        [whole("a", [at(S.EMPTY, n, producer_epoch=n) for n in range(9)])],
    ),
    "aborts of a client": (
        "fenced-while-open",
        [whole("a", [replace(one, producer_epoch=0) for n in (1, 60, 120) for one in fence(n)])],
    ),
    "aborts of a client that raises its epoch": (
        "fenced-while-open",
        [whole("a", [one for n in (1, 60, 120) for one in fence(n, client_version=2)])],
    ),
    "99 ids": ("one-shot-ids", random_ids(99)),
    "ids in use": ("one-shot-ids", random_ids(updated_ms=NOW_MS)),
    "small numbers": (
        "one-shot-ids",
        [an_id(f"job-{n}", record(producer_id=n, updated_ms=NOW_MS - 2 * DAY_MS)) for n in range(200)],
    ),
    "15 minutes": ("long-timeout", [an_id("a", record(timeout_ms=15 * MINUTE_MS))]),
    "a new client": ("old-protocol", [an_id("a", record(S.ONGOING))]),
    "an id that has begun nothing": ("old-protocol", [an_id("a", record(S.EMPTY, client_version=0))]),
    "an abort by the broker": ("old-protocol", [an_id("a", record(S.COMPLETE_ABORT, client_version=0))]),
    "a record without the version": ("old-protocol", [an_id("a", record(S.ONGOING, client_version=None))]),
    "one commit": (
        "never-commits",
        [whole("a", [*(at(S.PREPARE_ABORT, n) for n in range(30)), at(S.PREPARE_COMMIT, 40)])],
    ),
    "19 aborts": ("never-commits", [whole("a", [at(S.PREPARE_ABORT, n) for n in range(19)])]),
}


@pytest.mark.parametrize("case", FIRES)
def test_it_fires(case: str) -> None:
    expected, ids = FIRES[case]
    of = facts(ids=ids)
    assert expected in found(of)
    for one in audit(of).exposures:
        assert one.severity in one.check.severities
        assert one.evidence
        assert one.remedies


@pytest.mark.parametrize("case", SILENT)
def test_a_near_miss_does_not_fire(case: str) -> None:
    unexpected, ids = SILENT[case]
    assert [one for one in found(facts(ids=ids)) if one.endswith(f" {unexpected}")] == []


def test_each_check_of_ids_has_rows_for_each_severity_and_a_near_miss() -> None:
    expected = {
        f"{level} {check.name}" for check in CHECKS if check.group is CheckGroup.IDS for level in check.severities
    }
    assert expected == {line for line, _ in FIRES.values()}
    assert {name for name, _ in SILENT.values()} == {line.split()[1] for line in expected}


def test_below_transaction_version_2_every_client_is_old() -> None:
    of = facts(ids=[an_id("a", record(S.ONGOING, client_version=0))], brokers=BROKERS_3_9)
    assert found(of) == []


def test_of_many_findings_of_a_check_the_worst_are_shown_and_the_others_counted() -> None:
    forms = [f"application{'x' * n}" for n in range(MOST_OF_A_CHECK + 5)]
    ids = [whole(form, [replace(late(1), producer_id=n)] * (1 + 2 * (n == 24))) for n, form in enumerate(forms)]
    result = audit(facts(ids=ids, brokers=BROKERS_3_9))
    assert len(result.exposures) == MOST_OF_A_CHECK
    assert result.exposures[0].severity == "warn"
    assert result.folded == {"times-out": 5}


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("checkout-7", "checkout-{n}"),
        ("ledger-6c84fb90-12c4-11e1-840d-7b25c5ee775a-2", "ledger-{uuid}-{n}"),
        ("sink-3f9a0bc1", "sink-{hex}"),
        ("run-1764365000000", "run-{random}"),
        ("job-0000000000000017", "job-{n}"),
        ("deadbeef", "deadbeef"),
        ("SINK-9F9A0BC1", "SINK-{n}F{n}A{n}BC{n}"),
        ("app-2876543210-g", "app-{random}-g"),
        ("app-0876543210", "app-{n}"),
        ("payments", "payments"),
    ],
)
def test_the_variable_parts_of_an_id_are_masked(name: str, form: str) -> None:
    assert template_of(name) == form
    assert is_random(form) == any(part in form for part in ("uuid", "hex", "random"))
    assert has_random_part(name) == is_random(form)


def test_a_very_long_id_is_its_own_form() -> None:
    assert template_of("1" * 32_767) == "1" * 32_767
