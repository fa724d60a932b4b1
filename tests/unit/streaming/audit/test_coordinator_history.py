"""The records of each id in the coordinators' log: the quick look at idle ids equals the exact decoders."""

from __future__ import annotations

from typing import Any

from support.batches import TIMESTAMP_MS, a_batch, a_record
from support.large_log import a_large_log
from support.transaction_log import a_key, a_value
from txnwatch.state.audit.audit_facts import LoggedState
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TopicPartition, coordinator_partition
from txnwatch.streaming.audit.coordinator_history import IdHistoryFold, ids_of
from txnwatch.streaming.log.coordinator_records import logged_records
from txnwatch.streaming.wire.internal_topics import TransactionLogValue
from txnwatch.streaming.wire.record_batch import walk

IDS = 1_000
PARTITIONS = (("orders", (0, 1)),)


def a_state(state: S, **more: Any) -> TransactionLogValue:
    values: dict[str, Any] = {
        "version": 1,
        "producer_id": 7,
        "producer_epoch": 3,
        "transaction_timeout_ms": 60_000,
        "partitions": None if state is S.EMPTY else (),
        "last_update_ms": TIMESTAMP_MS,
        "start_ms": None if state is S.EMPTY else TIMESTAMP_MS,
        **more,
    }
    return TransactionLogValue(state=state, **values)


def a_log(*records: tuple[str, TransactionLogValue | None], offsets: list[int] | None = None) -> bytes:
    batches = []
    for at, (name, value) in enumerate(records):
        record = a_record(key=a_key(name), value=a_value(value) if value is not None else None)
        offset = at if offsets is None else offsets[at]
        batches.append(
            a_batch(offset, records=[record], producer_id=-1, producer_epoch=-1, base_sequence=-1, transactional=False)
        )
    return b"".join(batches)


def folded(raw: bytes, end: int = 1 << 40) -> IdHistoryFold:
    fold = IdHistoryFold(0, 0, end)  # type: ignore[arg-type]
    fold.feed(raw)
    return fold


def states(fold: IdHistoryFold) -> dict[str, list[LoggedState]]:
    return {name: one.records for name, one in fold.found.items()}


def exact(raw: bytes) -> dict[str, list[LoggedState]]:
    found: dict[str, list[LoggedState]] = {}
    for at, header in walk(raw):
        for one in logged_records(raw, at, header):
            value = one.value
            assert value is not None
            found.setdefault(one.transactional_id, []).append(
                LoggedState(
                    one.offset,
                    one.timestamp_ms,
                    value.state,
                    value.producer_id,
                    value.producer_epoch,
                    value.transaction_timeout_ms,  # type: ignore[arg-type]
                    value.start_ms,
                    value.last_update_ms,  # type: ignore[arg-type]
                    value.client_transaction_version if value.version else None,
                )
            )
    return found


def test_a_log_of_many_ids_is_as_the_exact_decoders_read_it() -> None:
    raw = b"".join(a_large_log(IDS))
    assert states(folded(raw)) == exact(raw)


def test_each_form_of_an_idle_record_is_as_the_exact_decoders_read_it() -> None:
    raw = a_log(
        *(
            (f"v{version}", a_state(state, version=version))
            for version in (0, 1)
            for state in (S.EMPTY, S.COMPLETE_ABORT)
        ),
        ("a client", a_state(S.COMPLETE_COMMIT, client_transaction_version=2)),
        ("a former id", a_state(S.COMPLETE_COMMIT, previous_producer_id=6)),
        ("both", a_state(S.COMPLETE_COMMIT, previous_producer_id=6, client_transaction_version=2)),
        ("not ASCII \u00e9", a_state(S.COMPLETE_COMMIT)),
        ("live", a_state(S.ONGOING, partitions=PARTITIONS)),
    )
    assert states(folded(raw)) == exact(raw)


def test_participants_are_kept_and_a_tombstone_ends_an_id() -> None:
    raw = a_log(
        ("a", a_state(S.ONGOING, partitions=PARTITIONS)),
        ("a", a_state(S.COMPLETE_COMMIT)),
        ("b", a_state(S.EMPTY)),
        ("b", None),
    )
    fold = folded(raw)
    (one,) = fold.found.values()
    assert [record.state for record in one.records] == [S.ONGOING, S.COMPLETE_COMMIT]
    assert (one.name, one.partitions) == ("a", {TopicPartition("orders", 0), TopicPartition("orders", 1)})


def test_the_part_without_holes_begins_behind_the_last_one() -> None:
    records = [("a", a_state(S.EMPTY))] * 3
    assert folded(a_log(*records)).log.whole_from_ms == TIMESTAMP_MS
    fold = IdHistoryFold(0, 0, 1 << 40)  # type: ignore[arg-type]
    fold.log.whole_from_ms = 1  # type: ignore[assignment]
    fold.feed(a_log(*records))
    assert fold.log.whole_from_ms == 1
    fold = IdHistoryFold(0, 0, 1 << 40)  # type: ignore[arg-type]
    fold.log.whole_from_ms = 1  # type: ignore[assignment]
    fold.feed(a_log(*records, offsets=[0, 5, 6]))
    assert fold.log.whole_from_ms == TIMESTAMP_MS


def test_the_walk_ends_at_the_end_of_the_range() -> None:
    fold = folded(a_log(*[("a", a_state(S.EMPTY))] * 5), end=2)
    assert len(fold.found["a"].records) == 2
    assert fold.is_done


def test_each_id_of_a_log_whose_partitions_were_changed_is_compared() -> None:
    names = [f"id-{number}" for number in range(1_500)]
    found = ids_of(folded(a_log(*((name, a_state(S.EMPTY)) for name in names))), 50)
    misplaced = {name for name, one in found.items() if one.is_misplaced}
    assert misplaced == {name for name in names if coordinator_partition(name, 50) != 0}
    assert len(misplaced) > 1_400
