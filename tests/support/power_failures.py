"""The power of a whole cluster fails, and the log of the coordinators loses a transaction that its client commits.

A broker acknowledges a record of `__transaction_state` before the record is on a disk. Afterwards the coordinator has
forgotten the transaction, and the client notices nothing: its commit is answered with NONE. So the data is open on its
partition, no record names its transaction, and it is acknowledged.

The coordinators and the data are on node 1. Up to Kafka 3.9 their leader epochs stay as they were. From 4.0 on the
partitions of a broker that registers again get new ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from support.aborts import begin, log_of, pass_chances
from support.answers import listed
from support.broker_faults import UnwrittenTail, await_complete, power_failure
from support.fault_world import FaultWorld, now_s
from support.kafka_faults import LONG_TIMEOUT_MS, end_by_hand
from support.raw_producer import RawProducer
from support.scenarios import KAFKA_4, Fault, Scenario
from support.topics import unique
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.wire.internal_topics import decode_key
from txnwatch.streaming.wire.record_batch import records, walk

_TV2 = 5  # the version of EndTxn that raises the epoch, if the broker has it


@dataclass(frozen=True)
class Acknowledged(Fault):
    """A fault after which the client was told that its transaction is committed."""

    client: RawProducer


def commit_repeated(world: FaultWorld) -> Acknowledged:
    """The client has written its data. Its EndTxn is taken for a repeated one of the transaction before."""
    orders = world.partition(1)
    client = _client(world, orders)
    with _stopped(world):
        tail = _next_in_log(world, client)
        _write(client, orders)
        _fail(world, client, tail)
        client.end(commit=True)
        return _fault(world, client, orders)


def gone_on_elsewhere(world: FaultWorld) -> Acknowledged:
    """The client has written a part of its data, and goes on: the coordinator begins a transaction without it."""
    orders, elsewhere = world.partition(1), world.partition(3)
    client = _client(world, elsewhere, version=_TV2)
    with _stopped(world):
        tail = _next_in_log(world, client)
        _write(client, orders)
        _fail(world, client, tail)
        _write(client, elsewhere)
        client.end(commit=True, version=_TV2)
        return _fault(world, client, orders)


def all_of_it_lost(world: FaultWorld) -> Acknowledged:
    """The client has committed. Every record of its transaction is lost, and the marker on the partition as well."""
    orders = world.partition(1)
    client = _client(world, orders)
    with _stopped(world):
        tail = _next_in_log(world, client)
        _write(client, orders)
        marker = UnwrittenTail(orders, 1, listed(world.cluster, orders).offset)
        client.end(commit=True)
        await_complete(world.cluster, client.transactional_id)
        _fail(world, client, tail, marker)
        return _fault(world, client, orders)


def read_before(world: FaultWorld) -> Acknowledged:
    """As `commit_repeated`, but the watch runs, and has read what is lost then."""
    orders = world.partition(1)
    client = _client(world, orders)
    tail = _next_in_log(world, client)
    _write(client, orders)
    pass_chances(world)
    at_s = now_s()
    _fail(world, client, tail)
    client.end(commit=True)
    return replace(_fault(world, client, orders), at_s=at_s)


def _client(world: FaultWorld, partition: TopicPartition, version: int = 4) -> RawProducer:
    """A client with one transaction that is committed, and that the watch has read."""
    client = RawProducer(world.cluster, unique("shop"), LONG_TIMEOUT_MS).init()
    _write(client, partition)
    client.end(commit=True, version=version)
    await_complete(world.cluster, client.transactional_id)
    pass_chances(world)
    return client


def _write(client: RawProducer, partition: TopicPartition) -> None:
    begin(client, partition)
    client.produce(partition, [b"paid"])


def _next_in_log(world: FaultWorld, client: RawProducer) -> UnwrittenTail:
    log = log_of(world, client)
    return UnwrittenTail(log, 1, listed(world.cluster, log).offset)


@contextmanager
def _stopped(world: FaultWorld) -> Iterator[None]:
    """The watch is stopped for an upgrade while the block runs."""
    world.watch.stop()
    try:
        yield
    finally:
        world.watch.start()
        world.watch.until_ready()


def _fail(world: FaultWorld, client: RawProducer, *tails: UnwrittenTail) -> None:
    """The power fails; all that the log of the coordinators loses is about this client."""
    before = _leader_epoch(world, tails[0])
    lost, *_ = power_failure(world.kafka, world.cluster, tails)
    names = [decode_key(one.key) for at, header in walk(lost) for one in records(lost, at, header)]
    assert set(names) == {client.transactional_id}
    has_new_epoch = _leader_epoch(world, tails[0]) > before
    assert has_new_epoch == (world.kafka.version in KAFKA_4)


def _leader_epoch(world: FaultWorld, tail: UnwrittenTail) -> int:
    info = world.cluster.refresh().info(tail.partition)
    assert info is not None
    assert info.leader_epoch is not None
    return info.leader_epoch


def _fault(world: FaultWorld, client: RawProducer, partition: TopicPartition) -> Acknowledged:
    """The end is that of the client: an administrator knows that it was told so."""
    end = partial(end_by_hand, world.cluster, partition, client.producer_id, commit=True)
    return Acknowledged(client.transactional_id, frozenset({client.producer_id}), partition, now_s(), end, client)


_FAULT = "the power of the whole cluster fails"
_LOST = "while txnwatch is stopped; the log of the coordinators loses the beginning of a transaction"
POWER_FAILURES = (
    Scenario(
        "M",
        "power_failure_commit_repeated",
        f"{_FAULT} {_LOST}, and the commit of its client is taken for a repeated one",
        "the client was told that it committed; no record names its transaction",
        commit_repeated,
        outcome="commit",
        how="committed",
    ),
    Scenario(
        "M",
        "power_failure_gone_on_elsewhere",
        f"{_FAULT} {_LOST}, and its client writes to another partition and commits",
        "the client was told that it committed; no record names its transaction on the first partition",
        gone_on_elsewhere,
        outcome="commit",
        how="committed",
    ),
    Scenario(
        "M",
        "power_failure_all_lost",
        f"{_FAULT} while txnwatch is stopped; all records of a committed transaction are lost, and its marker",
        "the client was told that it committed; no record names its transaction",
        all_of_it_lost,
        outcome="commit",
        how="committed",
    ),
    Scenario(
        "M",
        "power_failure_read_before",
        f"{_FAULT}; the log of the coordinators loses the beginning of a transaction, which txnwatch has read",
        "the client was told that it committed; the log no longer has the record of its transaction",
        read_before,
        outcome="commit",
        how="committed",
    ),
)
