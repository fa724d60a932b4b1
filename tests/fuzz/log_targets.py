"""Decoders of the bytes of logs: batches, markers, records of `__transaction_state`, keys of `__consumer_offsets`."""

from __future__ import annotations

from itertools import pairwise

from fuzz.target import Target
from support.batches import a_batch, a_control_batch, a_marker, a_record, an_old_entry
from support.pending_offsets import an_offset_key
from support.quick_batches import fields_of, quick_fields
from support.transaction_log import a_key, a_value
from txnwatch.state.model.errors import WireError
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.values import TopicPartition, log_numbered
from txnwatch.streaming.admin.waiting_groups import MOST_KEYS, PendingOffsets
from txnwatch.streaming.log.coordinator_log import records_of
from txnwatch.streaming.log.partition_fold import PartitionFold
from txnwatch.streaming.log.transaction_fold import FirstReadFold, HeldBytes, TransactionFold
from txnwatch.streaming.wire.internal_topics import (
    TransactionLogValue,
    decode_key,
    decode_offset_key,
    decode_value,
    quick_decode,
)
from txnwatch.streaming.wire.record_batch import BatchWalker, decode_marker, end_of_whole_entries, records, walk

_END = 1 << 62
_PARTITION = TopicPartition("orders", 0)
_ONGOING = TransactionLogValue(1, 5, 0, 60_000, TransactionState.ONGOING, (("orders", (0, 1)),), 1, 1, 4, None, 2)
_OLD = TransactionLogValue(0, 5, 0, 60_000, TransactionState.COMPLETE_COMMIT, (), 1, 1, None, None, 0)
_VALUES = [a_value(_ONGOING), a_value(_OLD), a_value(_ONGOING, {9: b"tag"})]
LOGGED = [
    a_batch(at, records=[a_record(key=a_key("app"), value=value)], producer_id=-1, transactional=False)
    for at, value in enumerate([*_VALUES, None])
]
_HUNG = 7  # the producer id of `a_batch`
_KEYS = [an_offset_key("billing", "orders", 3), an_offset_key("caf\u00e9", "tv", 0, version=0)]
_MEMBERS = b"\0\2\0\7billing"  # GroupMetadataKey


def _data_partition(data: bytes) -> None:
    """The fold takes a log in two answers as it takes it in one; offsets that rise are what every broker sends."""
    whole, parts = PartitionFold(0, _END), PartitionFold(0, _END)
    whole.feed(data)
    assert whole.position >= 0
    if not _feed_in_two_answers(parts, data):
        return
    facts = [list(fold.facts(_PARTITION, "id", 0)) for fold in (whole, parts)]
    assert facts[0] == facts[1], "an answer in two parts has other facts"
    assert whole.position == parts.position


def _feed_in_two_answers(fold: BatchWalker, data: bytes) -> bool:
    """Feeds the log in two parts; False if its offsets do not rise, because then the result may differ."""
    offsets = [offset for _, *run in BatchWalker(0, _END).runs(data, joined=False) for offset in run[:2]]
    if offsets != sorted(offsets):
        return False
    cut = end_of_whole_entries(data[: len(data) // 2])
    for part in (data[:cut], data[cut:]):
        if not fold.is_done:
            fold.feed(part)
    return True


def _batch_list(data: bytes) -> None:
    positions = [at for at, _ in walk(data)]
    assert all(first < second for first, second in pairwise(positions))
    assert end_of_whole_entries(data) <= len(data)


def _coordinators_log(data: bytes) -> None:
    """The fast pass and the exact fold have the same facts, or the same error."""
    shown = []
    exact = TransactionFold(log_numbered(0), 0, _END, backlog_end=4)
    fast = FirstReadFold(log_numbered(0), 0, _END, backlog_end=4, room=HeldBytes())
    for fold, condense in ((exact, exact.forget_idle_backlog), (fast, fast.condense)):
        error = None
        try:
            fold.feed(data)
        except WireError as exc:
            error = str(exc)
        condense()
        facts = list(fold.facts(is_first=True))
        shown.append([facts, error, fold.position, fold.leader_epoch, fold.hole, fold.last_hole_end, fold.stamps])
    assert shown[0] == shown[1], "the fast pass differs from the exact fold"


def _quick_decode(data: bytes) -> None:
    seen = quick_decode(data, 0)
    if seen is None:
        return
    ((position, header),) = walk(data[: seen[0]])
    (record,) = records(data, position, header)
    assert record.key is not None
    assert (record.offset, decode_key(record.key)) == (seen[1], seen[4].decode())
    if record.value is not None:
        value = decode_value(record.value)
        assert (value.producer_id, value.state.is_live) == (seen[5], seen[7])
        assert quick_fields(seen) == fields_of(value)


def _halves(data: bytes) -> tuple[bytes, bytes]:
    cut = data[0] if data else 0
    return data[1 : 1 + cut], data[1 + cut :]


def _key_and_value(data: bytes) -> None:
    key, value = _halves(data)
    decode_key(key)
    decode_value(value)


def _marker(data: bytes) -> None:
    decode_marker(*_halves(data))


def _offset_key(data: bytes) -> None:
    """A key is None only if its version is another one, and else has each byte of the input in its three fields."""
    found, version = decode_offset_key(data), int.from_bytes(data[:2], "big", signed=True)
    assert (found is None) == (version not in {0, 1})
    assert found is None or an_offset_key(found.group_id, *found.partition, version=version) == data


def _pending_offsets(data: bytes) -> None:
    """The fold takes a log in two answers as it takes it in one, and names at most so many groups, all of its bytes."""
    whole, parts = (PendingOffsets({_HUNG: 0}, 0, _END) for _ in range(2))
    whole.feed(data)
    assert all(len(keys) <= MOST_KEYS for keys in whole.found.values())
    named = [key for keys in whole.found.values() for key in keys]
    assert all(any(an_offset_key(name, *at, version=one) in data for one in (0, 1)) for name, at in named)
    if _feed_in_two_answers(parts, data):
        assert (parts.found, parts.position) == (whole.found, whole.position)


TARGETS = [
    Target(
        "data_partition",
        "batches of a data partition",
        _data_partition,
        (WireError,),
        [
            a_batch(0) + a_batch(1, producer_id=8, codec=4) + a_marker(2),
            a_batch(0, count=3) + a_marker(3, commit=False) + a_batch(4, transactional=False, producer_id=-1),
            an_old_entry(0) + an_old_entry(1, magic=0) + a_control_batch([], 2),
        ],
    ),
    Target("batch_list", "a segment file", _batch_list, (WireError,), [a_batch(0) + an_old_entry(1), a_marker(7)]),
    Target(
        "coordinators_log",
        "batches of `__transaction_state`",
        _coordinators_log,
        (),
        [b"".join(LOGGED), b"".join(LOGGED[1:]), *LOGGED],
    ),
    Target(
        "log_records",
        "a segment of `__transaction_state`",
        lambda data: list(records_of(data, 0)),
        (WireError,),
        LOGGED,
    ),
    Target("quick_decode", "one batch of `__transaction_state`", _quick_decode, (), LOGGED),
    Target(
        "key_and_value",
        "a record of `__transaction_state`",
        _key_and_value,
        (WireError,),
        [bytes([len(a_key("app"))]) + a_key("app") + value for value in _VALUES],
    ),
    Target(
        "marker", "a control record", _marker, (WireError,), [b"\x04\0\0\0\1\0\0\0\0\0\7", b"\x04\0\0\0\0\0\0\0\0\0\7"]
    ),
    Target("offset_key", "a key of `__consumer_offsets`", _offset_key, (WireError,), [*_KEYS, _MEMBERS]),
    Target(
        "pending_offsets",
        "batches of `__consumer_offsets`",
        _pending_offsets,
        (WireError,),
        [
            a_batch(0, records=[a_record(at, key=key) for at, key in enumerate([*_KEYS, _MEMBERS])]),
            a_batch(0, records=[a_record(key=_KEYS[0])], producer_id=8) + a_marker(1),
        ],
    ),
]
