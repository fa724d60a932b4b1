"""Keys and values of `__transaction_state`: golden bytes of live brokers, every truncation, unknown tags."""

import pytest

from txnwatch.state.model.errors import WireError
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.values import coordinator_partition
from txnwatch.streaming.wire.internal_topics import TransactionLogValue, decode_key, decode_value

S = TransactionState
TV = (("tv", (0,)),)

# Captured from Kafka 4.3.1 under transaction.version 0 and 2; id `tv`, topic `tv`, partition 0.
GOLDEN = {
    "v0 Empty": (
        "0000 0000000000000002 0000 0000ea60 00 ffffffff 000001a1f86bd9f8 ffffffffffffffff",
        TransactionLogValue(0, 2, 0, 60_000, S.EMPTY, None, 1795169180152, None),
    ),
    "v0 Ongoing": (
        "0000 0000000000000002 0000 0000ea60 01 00000001 0002 7476 00000001 00000000 000001a1f86bd9fd 000001a1f86bd9fd",
        TransactionLogValue(0, 2, 0, 60_000, S.ONGOING, TV, 1795169180157, 1795169180157),
    ),
    "v1 Empty": (
        "0001 0000000000000009 0000 0000ea60 00 00 000001a1f86c3edc ffffffffffffffff 01 00 08 0000000000000009",
        TransactionLogValue(1, 9, 0, 60_000, S.EMPTY, None, 1795169205980, None, previous_producer_id=9),
    ),
    "v1 Ongoing, TV2 client": (
        "0001 0000000000000009 0000 0000ea60 01 02 03 7476 02 00000000 00 000001a1f86c3ee6 000001a1f86c3ee6"
        "02 00 08 0000000000000009 02 02 0002",
        TransactionLogValue(
            1, 9, 0, 60_000, S.ONGOING, TV, 1795169205990, 1795169205990, 9, client_transaction_version=2
        ),
    ),
    "v1 CompleteCommit has forgotten its partitions": (
        "0001 0000000000000009 0001 0000ea60 04 01 000001a1f86c3ef0 000001a1f86c3ee6"
        "02 00 08 0000000000000009 02 02 0002",
        TransactionLogValue(
            1, 9, 1, 60_000, S.COMPLETE_COMMIT, (), 1795169206000, 1795169205990, 9, client_transaction_version=2
        ),
    ),
}


@pytest.mark.parametrize(("encoded", "value"), GOLDEN.values(), ids=GOLDEN.keys())
def test_golden_values_decode(encoded: str, value: TransactionLogValue) -> None:
    assert decode_value(bytes.fromhex(encoded)) == value


@pytest.mark.parametrize("encoded", [encoded for encoded, _ in GOLDEN.values()], ids=GOLDEN.keys())
def test_every_truncation_and_every_trailing_byte_is_a_wire_error(encoded: str) -> None:
    whole = bytes.fromhex(encoded)
    for size in range(len(whole)):
        with pytest.raises(WireError):
            decode_value(whole[:size])
    with pytest.raises(WireError, match="1 more bytes"):
        decode_value(whole + b"\0")


def test_known_tags_are_read_and_unknown_ones_skipped() -> None:
    body = "0001 0000000000000009 0001 0000ea60 03 01 0000000000000001 0000000000000002"
    tags = "05 00 08 0000000000000007 01 08 0000000000000008 02 02 0002 03 02 0005 63 03 abcdef"
    value = decode_value(bytes.fromhex(body + tags))
    assert (value.previous_producer_id, value.next_producer_id) == (7, 8)
    assert (value.client_transaction_version, value.next_producer_epoch) == (2, 5)
    assert value.state is S.PREPARE_ABORT


def test_a_later_version_names_itself_instead_of_being_guessed() -> None:
    with pytest.raises(WireError, match=r"value version at byte 0: expected 0 to 1 .*found 2"):
        decode_value(bytes.fromhex("0002" + "00" * 40))


def test_an_unknown_status_is_a_wire_error() -> None:
    with pytest.raises(WireError, match="transaction status"):
        decode_value(bytes.fromhex("0000 0000000000000002 0000 0000ea60 09 ffffffff" + "00" * 16))


def test_a_hostile_count_fails_before_it_allocates() -> None:
    with pytest.raises(WireError, match="a count of 2147483647"):
        decode_value(bytes.fromhex("0000 0000000000000002 0000 0000ea60 01 7fffffff" + "00" * 16))


def test_keys() -> None:
    assert decode_key(bytes.fromhex("0000 0002 7476")) == "tv"
    assert decode_key(bytes.fromhex("0001 0002 7476")) is None, "a key of another type is not a transaction's"
    for broken in ("0000 0003 7476", "0000 0002 7476 00", "0000 0002 ffff", "00"):
        with pytest.raises(WireError):
            decode_key(bytes.fromhex(broken))


# Computed by Kafka's Utils.abs("...".hashCode()) % n on a JVM.
@pytest.mark.parametrize(
    ("transactional_id", "count", "partition"),
    [("tiny1", 4, 1), ("", 50, 0), ("polygenelubricants", 50, 0), ("käse-\U0001f9c0", 50, 42)],
    ids=["ascii", "empty", "hash is MIN_VALUE", "surrogate pair"],
)
def test_the_coordinator_partition_is_that_of_java(transactional_id: str, count: int, partition: int) -> None:
    assert coordinator_partition(transactional_id, count) == partition
