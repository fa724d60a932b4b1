"""After a change of the leader of the coordinators' log, the batch that was read last is read again."""

from __future__ import annotations

import pytest

from support.batches import a_batch, a_record
from support.transaction_log import a_key, a_value
from txnwatch.state.model.facts import Barrier, Fact, LastBatch, PartitionNotice
from txnwatch.state.model.ports import ListedOffset
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import log_numbered
from txnwatch.streaming.log.transaction_fold import HeldBytes
from txnwatch.streaming.source.offsets import SourceOffset
from txnwatch.streaming.source.options import parse_options
from txnwatch.streaming.source.planner import Limits, ListedPartition, Listing, plan
from txnwatch.streaming.source.tasks import plan_facts, plan_reads, reading_of_range
from txnwatch.streaming.wire.internal_topics import TransactionLogValue
from txnwatch.streaming.wire.record_batch import header_at

LOG = log_numbered(0)
OPTIONS = parse_options({"kafka.bootstrap.servers": "kafka:9092", "subscribe": "orders", "driverFile": "rereads"})
NOW_MS = 1_700_000_000_000
Leads = tuple[int, str]  # leader epoch, and the connection where a leader that restarts keeps its epoch


def a_log_batch(offset: int, epoch: int, producer_id: int, *, tombstone: bool = False) -> bytes:
    value = TransactionLogValue(1, producer_id, 0, 60_000, S.EMPTY, None, NOW_MS, None)
    encoded = None if tombstone else a_value(value)
    record = a_record(key=a_key(f"app-{producer_id}"), value=encoded)
    return a_batch(offset, records=[record], producer_id=-1, transactional=False, leader_epoch=epoch)


def a_micro_batch(done: SourceOffset, end: int, leads: Leads, log: dict[int, bytes]) -> tuple[SourceOffset, list[Fact]]:
    """The next micro-batch, with the real planner and the real folds, over the log that a leader has."""
    epoch, connection = leads
    start = 0 if done.barrier == 0 else None
    answer = ListedPartition("log-id", ListedOffset(end, epoch, 1, connection), start)
    following = plan(done, Listing("cluster", {LOG: answer}, NOW_MS, NOW_MS + 1), Limits(), {})
    (task,) = plan_reads(done, following, OPTIONS)
    reads = [reading_of_range(found, OPTIONS, HeldBytes()) for found in task.ranges]
    for read in reads:
        read.fold.feed(b"".join(batch for offset, batch in sorted(log.items()) if offset >= read.fold.position))
    return following, list(plan_facts(task, reads))


def barrier_of(facts: list[Fact]) -> Barrier:
    (barrier,) = [fact for fact in facts if isinstance(fact, Barrier)]
    return barrier


READ = {offset: a_log_batch(offset, 2, offset) for offset in range(4)}
CRC = header_at(READ[3], 0).crc
GROWN_AGAIN = {**READ, 3: a_log_batch(3, 2, 77)}
OF_AN_OLD_REPLICA = {**READ, 3: a_log_batch(3, 1, 3)}
COMPACTED = {offset: batch for offset, batch in READ.items() if offset != 3}


@pytest.mark.parametrize(
    ("before", "after", "log", "found"),
    [
        pytest.param((2, ""), (2, ""), READ, "nothing", id="the same leader"),
        pytest.param((2, ""), (3, ""), READ, LastBatch(2, None), id="elected, the same log"),
        pytest.param((2, ""), (3, ""), OF_AN_OLD_REPLICA, LastBatch(1, None), id="elected, another log"),
        pytest.param((2, "a"), (2, "a"), READ, "nothing", id="the same connection"),
        pytest.param((2, "a"), (2, "b"), READ, LastBatch(2, CRC), id="another connection, the same log"),
        pytest.param((2, "a"), (2, "b"), COMPACTED, None, id="another connection, the batch is gone"),
    ],
)
def test_the_last_batch_is_read_again(before: Leads, after: Leads, log: dict[int, bytes], found: object) -> None:
    done, facts = a_micro_batch(SourceOffset.beginning(), 4, before, READ)
    assert barrier_of(facts).last_batches == {LOG: LastBatch(2, CRC if before[1] else None)}
    assert barrier_of(facts).rechecked == {}
    _, facts = a_micro_batch(done, 5, after, {**log, 4: a_log_batch(4, after[0], 9)})
    expected = {} if found == "nothing" else {LOG: found}
    assert barrier_of(facts).rechecked == expected
    assert not [fact for fact in facts if isinstance(fact, PartitionNotice)], "the state decides"


def test_a_tail_that_has_grown_again_is_another_batch() -> None:
    done, _ = a_micro_batch(SourceOffset.beginning(), 4, (2, "a"), READ)
    _, facts = a_micro_batch(done, 4, (2, "b"), GROWN_AGAIN)
    found = barrier_of(facts).rechecked[LOG]
    assert found is not None
    assert found.epoch == 2
    assert found.crc != CRC


def test_nothing_is_read_again_before_the_first_offset() -> None:
    done, _ = a_micro_batch(SourceOffset.beginning(), 0, (2, "a"), {})
    _, facts = a_micro_batch(done, 4, (2, "b"), READ)
    assert barrier_of(facts).rechecked == {}


@pytest.mark.parametrize("last", [a_log_batch(4, 2, 4), a_log_batch(4, 2, 4, tombstone=True)])
def test_the_last_batch_of_a_first_reading_is_known(last: bytes) -> None:
    _, facts = a_micro_batch(SourceOffset.beginning(), 5, (2, "a"), {**READ, 4: last})
    assert barrier_of(facts).last_batches == {LOG: LastBatch(2, header_at(last, 0).crc)}
