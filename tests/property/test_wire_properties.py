"""The decoders' law: what an independent encoder wrote is read back, and any other bytes are a value or a WireError."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.corpus import kept
from fuzz.targets import TARGETS
from support.batches import a_batch, a_marker, a_record, an_old_entry, unsigned_varint, varint
from support.pending_offsets import an_offset_key
from support.transaction_log import a_key, a_value
from txnwatch.state.model.errors import WireError
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.wire.internal_topics import (
    CommittedKey,
    TransactionLogValue,
    decode_key,
    decode_offset_key,
    decode_value,
)
from txnwatch.streaming.wire.primitives import Reader
from txnwatch.streaming.wire.record_batch import LENGTH_OVERHEAD, walk

int16, int32, int64 = (st.integers(-(2**bits), 2**bits - 1) for bits in (15, 31, 63))
topic_partitions = st.lists(st.tuples(st.text(max_size=9), st.lists(int32, max_size=4).map(tuple)), max_size=4)


def log_values(version: int, **tags: st.SearchStrategy[int]) -> st.SearchStrategy[TransactionLogValue]:
    return st.builds(
        TransactionLogValue,
        version=st.just(version),
        producer_id=int64,
        producer_epoch=int16,
        transaction_timeout_ms=int32,
        state=st.sampled_from(TransactionState),
        partitions=st.none() | topic_partitions.map(tuple),
        last_update_ms=int64,
        start_ms=st.none() | st.integers(0, 2**63 - 1),
        **tags,
    )


without_tags = log_values(0)
with_tags = log_values(
    1,
    previous_producer_id=st.none() | st.integers(0, 2**63 - 1),
    next_producer_id=st.none() | st.integers(0, 2**63 - 1),
    client_transaction_version=int16,
    next_producer_epoch=st.none() | st.integers(0, 2**15 - 1),
)
unknown_tags = st.dictionaries(st.integers(4, 2**31), st.binary(max_size=200), max_size=3)


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_varint_is_read_back(value: int) -> None:
    assert Reader(varint(value)).varint("value") == value


@given(st.integers(0, 2**32 - 1))
def test_an_unsigned_varint_is_read_back(value: int) -> None:
    assert Reader(unsigned_varint(value)).unsigned_varint("value") == value


@given(st.text(max_size=300))
def test_a_key_is_read_back(transactional_id: str) -> None:
    assert decode_key(a_key(transactional_id)) == transactional_id


@given(without_tags | with_tags)
def test_a_value_of_the_transaction_log_is_read_back(value: TransactionLogValue) -> None:
    assert decode_value(a_value(value)) == value


@given(with_tags, unknown_tags)
def test_tags_of_newer_brokers_change_nothing(value: TransactionLogValue, tags: dict[int, bytes]) -> None:
    assert decode_value(a_value(value, tags)) == value


@given(st.text(max_size=300), st.from_regex(r"[a-zA-Z0-9_-]{1,249}", fullmatch=True), st.integers(0, 2**31 - 1))
def test_the_key_of_a_committed_offset_is_read_back(group: str, topic: str, partition: int) -> None:
    for version in (0, 1):
        key = an_offset_key(group, topic, partition, version=version)
        assert decode_offset_key(key) == CommittedKey(group, TopicPartition(topic, partition))


SEGMENT = a_batch(0, records=[a_record(headers=[("a", b"b"), ("c", None)]), a_record(1, key=None)]) + an_old_entry(2)
SEGMENT += a_batch(3, codec=2) + a_marker(4)


@st.composite
def damaged(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    """Something valid, cut anywhere, with a few bytes overwritten and a few behind it."""
    data = bytearray(draw(st.sampled_from(seeds)))
    positions = st.integers(0, len(data) - 1)
    for position, byte in draw(st.lists(st.tuples(positions, st.integers(0, 255)), max_size=4)):
        data[position] = byte
    return bytes(data[: draw(st.integers(0, len(data)))]) + draw(st.binary(max_size=9))


OF_LOGS = ("key_and_value", "marker", "offset_key", "batch_list", "log_records", "data_partition", "pending_offsets")


@pytest.mark.parametrize("name", [*OF_LOGS, "fetch"])
@given(data=st.data())
def test_the_law_of_the_fuzzer_holds_for_damaged_inputs(name: str, data: st.DataObject) -> None:
    target = TARGETS[name]
    seeds = [*target.first, *kept(name)]
    longer = st.tuples(st.sampled_from(seeds), st.binary(max_size=9)).map(b"".join)
    target.try_with(data.draw(st.binary(max_size=200) | damaged(seeds) | longer, label="bytes"))


@given(damaged([SEGMENT * 2]))
def test_a_walk_moves_on_and_stays_inside_the_buffer(data: bytes) -> None:
    after = 0
    with contextlib.suppress(WireError):
        for position, header in walk(data):
            assert position >= after
            after = position + LENGTH_OVERHEAD + header.length
            assert after <= len(data)
