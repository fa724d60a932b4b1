"""Hypothesis: any log of `__transaction_state` that a partition may hold, as the batches of one log in their order.

Law: what real coordinators write is in it (transactions from InitProducerId to Complete*, ids that move to another
producer id, tombstones, both value versions), compacted or not; and so is what none has written: states in any order,
producer ids that two transactional ids name, tags of a later broker, keys of another type, batches of several records.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from support.batches import CONTROL, LOG_APPEND_TIME, TIMESTAMP_MS, a_batch, a_record, an_old_entry
from support.transaction_log import a_key, a_value
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.streaming.wire.internal_topics import TransactionLogValue

_STATES = [state for state in S if state not in {S.DEAD, S.PREPARE_EPOCH_FENCE}]
_NAMES = ["a", "b", "c", "ü", "streams-" + "x" * 70]
_TOPICS = ["orders", "payments", "ö"]
_producer_ids = st.sampled_from([1, 2, 2, 3, 4, 1 << 40])
_partitions = st.lists(
    st.tuples(st.sampled_from(_TOPICS), st.lists(st.integers(0, 2), max_size=2).map(tuple)), max_size=2
).map(tuple)


@dataclass(frozen=True)
class DrawnRecord:
    """One record: a value, a tombstone, or, with a key of another type, nothing."""

    name: str
    value: TransactionLogValue | None
    key_version: int = 0
    unknown_tag: bool = False
    timestamp_delta: int = 0
    has_header: bool = False

    def record(self, offset_delta: int) -> bytes:
        value = None
        if self.value is not None:
            value = a_value(self.value, {9: b"later"} if self.unknown_tag else {})
        return a_record(
            offset_delta,
            key=a_key(self.name, version=self.key_version),
            value=value,
            timestamp_delta=self.timestamp_delta,
            headers=[("h", b"v")] if self.has_header else (),
        )


@dataclass(frozen=True)
class Placed:
    """A batch at its offset; of one that compaction has thinned out the last offset is kept."""

    offset: int
    last_offset: int
    raw: bytes


@st.composite
def _values(draw: st.DrawFn) -> TransactionLogValue:
    state = draw(st.sampled_from(_STATES))
    version = draw(st.sampled_from([0, 1, 1, 1]))
    producer_id = draw(_producer_ids)
    previous = draw(st.sampled_from([None, producer_id, producer_id, 1, 2]))
    return TransactionLogValue(
        version,
        producer_id,
        draw(st.integers(0, 2)),
        draw(st.sampled_from([60_000, 2**31 - 1])),
        state,
        None if state is S.EMPTY and draw(st.booleans()) else draw(_partitions) if state.is_live else (),
        TIMESTAMP_MS + draw(st.integers(0, 3)),
        draw(st.sampled_from([None, 1, 2])),
        previous if version else None,
        draw(st.sampled_from([None, None, None, 5])) if version else None,
        draw(st.sampled_from([0, 2, 2])) if version else 0,
    )


_usual = st.builds(DrawnRecord, st.sampled_from(_NAMES), st.one_of(_values(), _values(), _values(), st.none()))
_rare = st.builds(
    DrawnRecord,
    st.sampled_from(_NAMES),
    st.one_of(_values(), st.none()),
    st.sampled_from([0, 0, 0, 1]),
    st.booleans(),
    st.sampled_from([0, 0, 5, -3]),
    st.booleans(),
)
_records = st.one_of(_usual, _usual, _usual, _rare)


@st.composite
def _transactions(draw: st.DrawFn) -> list[DrawnRecord]:
    """What a coordinator writes of one id: an InitProducerId, transactions, an end perhaps."""
    name, producer_id = draw(st.sampled_from(_NAMES)), draw(_producer_ids)
    version, epoch, logged = draw(st.sampled_from([0, 1])), draw(st.integers(0, 1)), []

    def log_value(state: S, partitions: object, start_ms: int | None) -> None:
        previous = producer_id if version else None
        tail = (partitions, TIMESTAMP_MS, start_ms, previous)
        logged.append(DrawnRecord(name, TransactionLogValue(version, producer_id, epoch, 60_000, state, *tail)))

    if draw(st.booleans()):
        log_value(S.EMPTY, None, None)
    for number in range(draw(st.integers(0, 2))):
        log_value(S.ONGOING, (("orders", (0,)),), number + 1)
        if draw(st.booleans()):
            epoch += draw(st.integers(0, 1))
            log_value(S.PREPARE_COMMIT, (("orders", (0,)),), number + 1)
            log_value(S.COMPLETE_COMMIT, (), number + 1)
    if draw(st.integers(0, 3)) == 0:
        logged.append(DrawnRecord(name, None))
    return logged


@st.composite
def coordinator_logs(draw: st.DrawFn) -> list[Placed]:
    """The batches of a log, the last records of each id perhaps all that compaction has left of a part of it."""
    logged: list[DrawnRecord] = [draw(_records)]
    for part in draw(st.lists(st.one_of(_transactions(), _records.map(lambda one: [one])), max_size=8)):
        logged.extend(part)
    dirty = draw(st.one_of(st.just(0), st.integers(0, len(logged))))
    last = {one.name: at for at, one in enumerate(logged[:dirty])}
    kept = [at for at, one in enumerate(logged) if at >= dirty or last[one.name] == at]
    placed: list[Placed] = []
    offset, epoch = draw(st.integers(0, 3)), 0
    while kept:
        epoch += draw(st.sampled_from([0, 0, 0, 0, 1]))
        count = draw(st.sampled_from([1, 1, 1, 1, 1, 1, 2, 3]))
        group, kept = kept[:count], kept[count:]
        deltas = [at - group[0] for at in group]
        first = offset + group[0]
        last_delta = deltas[-1] + draw(st.sampled_from([0, 0, 0, 0, 0, 1]))
        placed.append(
            _batch(draw, first, last_delta, epoch, [(logged[at], d) for at, d in zip(group, deltas, strict=True)])
        )
        offset += last_delta - deltas[-1]
        if draw(st.integers(0, 15)) == 0:
            offset += 1
            placed.append(
                Placed(first + last_delta + 1, first + last_delta + 1, _odd(draw, first + last_delta + 1, epoch))
            )
        offset += draw(st.sampled_from([0, 0, 0, 0, 2]))
    return placed


def _batch(draw: st.DrawFn, first: int, last_delta: int, epoch: int, logged: list[tuple[DrawnRecord, int]]) -> Placed:
    raw = a_batch(
        first,
        records=[one.record(delta) for one, delta in logged],
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        transactional=False,
        leader_epoch=epoch,
        last_offset_delta=last_delta,
        base_timestamp=TIMESTAMP_MS + draw(st.integers(-2, 2)),
        max_timestamp=TIMESTAMP_MS + 7,
        attributes=draw(st.sampled_from([0, 0, 0, 0, 0, LOG_APPEND_TIME])),
    )
    return Placed(first, first + last_delta, raw)


def _odd(draw: st.DrawFn, offset: int, epoch: int) -> bytes:
    """A batch that is not the coordinator's: of control records, emptied, compressed, of an old format."""
    match draw(st.sampled_from(["control", "emptied", "old", "compressed"])):
        case "control":
            return a_batch(offset, transactional=False, leader_epoch=epoch, attributes=CONTROL)
        case "emptied":
            return a_batch(offset, records=[], transactional=False, leader_epoch=epoch)
        case "old":
            return an_old_entry(offset)
        case _:
            return a_batch(offset, transactional=False, leader_epoch=epoch, codec=4)
