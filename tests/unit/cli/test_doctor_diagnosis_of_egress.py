"""The doctor estimates what a scan, the coordinators' log and the censuses move in a day."""

from __future__ import annotations

import pytest

from support.problems import a_problem
from txnwatch.cli.doctor_rows import Caller, Health, census_row, egress_row, log_row
from txnwatch.state.model.values import CoordinatorAccess, DurationMs
from txnwatch.state.text import Grantee
from txnwatch.streaming.checks.checkup import WINDOW_MS, CensusBytes, LogBytes, WriteRates, bytes_per_second

CALLER = Caller(Grantee("a:1", "User:watcher"), "txnwatch.events")
RATES = {
    "half of the log is of the last hour": (7_200_000, 0, 100, 50, 1_000.0),
    "all of it": (3_600_000, 40, 100, 40, 1_000.0),
    "retention has removed the beginning of the hour": (3_600_000, 40, 100, 10, 1_000.0),
    "nothing was written": (3_600_000, 0, 100, 100, 0.0),
    "an empty log": (0, 7, 7, 7, 0.0),
}


@pytest.mark.parametrize(("size", "start", "end", "since", "rate"), RATES.values(), ids=RATES.keys())
def test_the_rate_of_a_partition(size: int, start: int, end: int, since: int, rate: float) -> None:
    assert bytes_per_second(size, start, end, since, WINDOW_MS) == rate


def test_the_total_and_the_largest_topics_are_named() -> None:
    row = egress_row(WriteRates({"small": 1.0, "large": 5_000_000.0, "idle": 0.0}), ".*", CALLER)
    assert row.subject == "scan of --topics .*"
    assert row.detail == ("about 432 GB a day by the writes of the last hour: large 432 GB, small 86.4 kB")
    assert row.status is Health.OK


def test_a_missing_estimate_has_its_reason() -> None:
    row = egress_row(WriteRates({}, a_problem("CLUSTER_AUTHORIZATION_FAILED")), "orders", CALLER)
    assert row.status is Health.WARNING
    assert "CLUSTER_AUTHORIZATION_FAILED" in row.detail
    assert row.fix is not None


A_DAY = "about 86.4 MB a day by the records of the last hour"
START = "a start without a checkpoint reads the whole log"
LOG = CoordinatorAccess.LOG


def test_the_log_of_the_coordinators_counts_for_a_day_and_for_a_start() -> None:
    row = log_row(LogBytes(1_000.0, 25_000_000), LOG, CALLER)
    assert row.subject == "__transaction_state, the coordinators' log"
    assert (row.status, row.detail, row.fix) == (Health.OK, f"{A_DAY}; {START}: 25.0 MB", None)


@pytest.mark.parametrize("access", [CoordinatorAccess.API, CoordinatorAccess.NONE])
def test_a_view_without_the_log_reads_nothing_of_it(access: CoordinatorAccess) -> None:
    row = log_row(None, access, CALLER)
    assert (row.status, row.detail) == (Health.OK, f"not read: the coordinator view is {access}")


def test_a_size_of_the_log_that_is_not_shown_has_its_reason_and_the_right_that_shows_it() -> None:
    refused = a_problem("CLUSTER_AUTHORIZATION_FAILED")
    row = log_row(LogBytes(1_000.0, None, problem=refused), LOG, CALLER)
    assert row.status is Health.WARNING
    assert row.detail == f"{A_DAY}; {START}, whose size is not shown: CLUSTER_AUTHORIZATION_FAILED"
    assert row.fix is not None
    assert row.fix.endswith("--operation Describe --cluster")


def test_partitions_of_the_log_that_could_not_be_read_are_reported() -> None:
    row = log_row(LogBytes(1_000.0, 25_000_000, unread=2), LOG, CALLER)
    assert row.status is Health.WARNING
    assert row.detail == f"{A_DAY}, without 2 partitions that could not be read; {START}: 25.0 MB"


HEAL, PAUSE = DurationMs(60_000), DurationMs(5_000)


def test_censuses_count_for_each_of_their_intervals() -> None:
    row = census_row(CensusBytes(10, 60_000), CensusBytes(300, 5_000_000), HEAL, PAUSE)
    assert row.status is Health.OK
    assert row.detail == (
        "about 86.5 GB a day: 300 other partitions every 5 s 86.4 GB, 10 scanned partitions every 60 s 86.4 MB; "
        "one census of all moved 5.1 MB"
    )


def test_without_other_topics_only_the_scanned_partitions_count() -> None:
    row = census_row(CensusBytes(1, 60), CensusBytes(), HEAL, PAUSE)
    assert (
        row.detail == "about 86.4 kB a day: 1 scanned partitions every 60 s 86.4 kB; one census of all moved 60 bytes"
    )


def test_partitions_that_were_not_described_are_reported() -> None:
    row = census_row(CensusBytes(10, 60_000, failed=2), CensusBytes(3, 9, failed=1), HEAL, PAUSE)
    assert row.status is Health.WARNING
    assert row.detail.endswith("3 partitions were not described")
