"""The file by which the driver tells the source what it wants: replaced as a whole, and never a reason to fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from txnwatch.state.model.findings import CensusReason
from txnwatch.state.model.values import NEVER_MS, TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.streaming.source.driver_file import (
    DriverFile,
    DriverRequests,
    NextBarrierDue,
    read_driver_file,
)
from txnwatch.streaming.source.planner import RereadRequest

ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 1)
NOTHING = DriverRequests()
names = st.sampled_from(["orders", "orders-1", "-", "a.b-c_d", TRANSACTION_STATE_TOPIC])
partitions = st.builds(TopicPartition, names, st.integers(0, 99))
offsets = st.integers(-1, 2**62)


@pytest.fixture
def file(tmp_path: Path) -> DriverFile:
    return DriverFile(tmp_path / "driver.json")


def wanted(file: DriverFile) -> DriverRequests:
    return read_driver_file(str(file.path))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(
    requests=st.frozensets(
        st.builds(RereadRequest, partitions, offsets, st.none() | st.sampled_from(CensusReason)), max_size=4
    ),
    next_due=st.none() | st.builds(NextBarrierDue, st.integers(0), st.integers(0, NEVER_MS)),
)
def test_a_value_is_read_as_it_was_written(
    file: DriverFile,
    requests: frozenset[RereadRequest],
    next_due: NextBarrierDue | None,
) -> None:
    file.write(requests, next_due)
    found = wanted(file)
    assert (found.requests, found.next_due) == (requests, next_due)
    assert list(file.path.parent.iterdir()) == [file.path], "nothing is left beside it"


def test_each_value_replaces_the_one_before_as_a_whole(file: DriverFile) -> None:
    file.write([RereadRequest(ORDERS, 5), RereadRequest(PAYMENTS, None)], NextBarrierDue(7, NEVER_MS))
    file.write([RereadRequest(ORDERS, 7)], None)
    assert wanted(file) == DriverRequests(frozenset([RereadRequest(ORDERS, 7)]))
    with file.path.open() as reading:
        file.write((), NextBarrierDue(8, 0))
        assert reading.read() == '{"requests":[["orders-0",7,""]],"next_due":null,"volumes":{}}'
    assert wanted(file) == DriverRequests(next_due=NextBarrierDue(8, 0))


def test_without_a_file_nothing_is_wanted(file: DriverFile) -> None:
    assert read_driver_file(None) == NOTHING
    assert wanted(file) == NOTHING
    assert read_driver_file(str(file.path.parent)) == NOTHING


def stored(requests: str = "[]", next_due: str = "null") -> bytes:
    return f'{{"requests":{requests},"next_due":{next_due},"volumes":{{}}}}'.encode()


DAMAGED = {
    "empty": b"",
    "cut": b'{"requests":[["orders-0", ',
    "zeros after a power failure": bytes(16),
    "no text": b"\xff\xfe",
    "a list": b"[]",
    "a number": b"5",
    "a part is missing": b'{"requests":[["orders-0", 5, ""]]}',
    "no partition": stored('[["orders", 5, ""]]', "[7, 1]"),
    "a partition that is no number": stored('[["orders-x", 5, ""]]', "[7, 1]"),
    "no such reason": stored('[["orders-0", -1, "because"]]', "[7, 1]"),
    "no rows": stored("[5]"),
    "one number": stored('[["orders-0", 5, ""]]', "[7]"),
    "three numbers": stored('[["orders-0", 5, ""]]', "[7, 1, 2]"),
    "a text for a time": stored('[["orders-0", 5, ""]]', '[7, "1"]'),
    "too deep": stored(requests="[" * 100_000),
    "true for a number": stored('[["orders-0", 5, ""]]', "[true, 1]"),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED.keys())
def test_of_a_damaged_file_nothing_is_wanted_and_the_next_value_replaces_it(file: DriverFile, content: bytes) -> None:
    file.path.write_bytes(content)
    assert wanted(file) == NOTHING
    file.write([RereadRequest(ORDERS, 5)], None)
    assert wanted(file).requests == {RereadRequest(ORDERS, 5)}
