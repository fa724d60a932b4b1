"""However a log with shared producer ids is cut: a live view is true, and it names the other transactional id."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from support.coordinator_logs import Placed, coordinator_logs
from txnwatch.state.detection.view import apply
from txnwatch.state.model.facts import TransactionSeen
from txnwatch.state.model.transaction import ProducerState
from txnwatch.state.model.values import log_numbered
from txnwatch.streaming.log.coordinator_log import records_of
from txnwatch.streaming.log.transaction_fold import TransactionFold


def producers_after(log: list[Placed], cuts: list[int]) -> dict[int, ProducerState]:
    """The state of each producer id, without the tombstones, which name no producer id."""
    found: dict[int, ProducerState] = {}
    for start, end in pairwise(sorted({0, *cuts, log[-1].last_offset + 1})):
        fold = TransactionFold(log_numbered(0), start, end)
        fold.feed(b"".join(placed.raw for placed in log if placed.last_offset >= start))
        facts = [fact for fact in fold.facts() if isinstance(fact, TransactionSeen)]
        for fact in sorted(facts, key=lambda fact: fact.view.log_offset):
            known = found.get(fact.producer_id, ProducerState(fact.producer_id))
            found[fact.producer_id] = apply(known, fact, 1).producer
    return found


@given(coordinator_logs(), st.lists(st.integers(0, 45), max_size=5))
def test_a_live_view_is_the_last_record_of_its_id_and_names_another_id(log: list[Placed], cuts: list[int]) -> None:
    log = [placed for placed in log if _is_readable(placed)]
    if not log:
        return
    records = [record for placed in log for record in records_of(placed.raw, 0)]
    last = {record.transactional_id: record for record in records}
    for producer_id, producer in producers_after(log, cuts).items():
        view = producer.view
        assert view is not None
        users = {
            record.transactional_id
            for record in records
            if record.value is not None and record.value.producer_id == producer_id
        }
        assert len(users) < 2 or view.also_used_by is not None, "two ids have the producer id"
        assert view.also_used_by != view.transactional_id
        value = last[view.transactional_id].value
        if view.is_live and value is not None:
            assert (value.producer_id, value.state.is_live) == (producer_id, True)


def _is_readable(placed: Placed) -> bool:
    try:
        TransactionFold(log_numbered(0), 0, 10**6).feed(placed.raw)
    except Exception:  # noqa: BLE001 - a batch that no coordinator writes ends the reading
        return False
    return True
