"""The file by which the job asks its source to read again: replaced as a whole, and never a reason to fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from txnwatch.state.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.streaming.control_file import read_wishes, write_wishes

ORDERS = TopicPartition("orders", 0)
names = st.sampled_from(["orders", "orders-1", "-", "a.b-c_d", TRANSACTION_STATE_TOPIC])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "wishes.json"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(wishes=st.dictionaries(st.builds(TopicPartition, names, st.integers(0, 99)), st.integers(-1, 2**62), max_size=4))
def test_wishes_are_read_as_they_were_written(path: Path, wishes: dict[TopicPartition, int]) -> None:
    write_wishes(path, wishes)
    assert read_wishes(path) == wishes


def test_wishes_replace_those_before_and_leave_nothing_beside_them(path: Path) -> None:
    write_wishes(path, {ORDERS: 5, TopicPartition("payments", 1): -1})
    write_wishes(path, {ORDERS: 7})
    assert read_wishes(path) == {ORDERS: 7}
    write_wishes(path, {})
    assert read_wishes(path) == {}
    assert list(path.parent.iterdir()) == [path]


def test_the_same_wishes_leave_the_file_alone(path: Path) -> None:
    payments = TopicPartition("payments", 1)
    write_wishes(path, {ORDERS: 5, payments: 6})
    written = path.stat()
    write_wishes(path, {payments: 6, ORDERS: 5})
    assert path.stat().st_ino == written.st_ino, "a replaced file is another one"


def test_a_reader_holds_whole_wishes_while_they_are_replaced(path: Path) -> None:
    write_wishes(path, {ORDERS: 5})
    with path.open() as reading:
        write_wishes(path, {ORDERS: 2**60})
        assert reading.read() == '{"orders-0": 5}'


def test_without_a_file_there_are_no_wishes(path: Path) -> None:
    assert read_wishes(None) == {}
    assert read_wishes(path) == {}
    assert read_wishes(path.parent) == {}


DAMAGED = {
    "empty": b"",
    "cut": b'{"orders-0": ',
    "zeros after a power failure": bytes(16),
    "no text": b"\xff\xfe",
    "a list": b"[]",
    "no partition": b'{"orders": 5}',
    "a partition that is no number": b'{"orders-x": 5}',
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_file_has_no_wishes_and_is_replaced_by_the_next(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert read_wishes(path) == {}
    write_wishes(path, {ORDERS: 5})
    assert read_wishes(path) == {ORDERS: 5}
