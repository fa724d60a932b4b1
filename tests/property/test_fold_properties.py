"""The law of the fold: where a range is cut never matters, and the leader's rules are what comes out."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from support.partition_oracle import LeaderEntry, ModelLeader, a_log
from txnwatch.state.detection.view import apply
from txnwatch.state.model.facts import ProducerSeen
from txnwatch.state.model.transaction import ProducerState
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.log.partition_fold import PartitionFold

ORDERS = TopicPartition("orders", 0)
steps = st.tuples(
    st.sampled_from(["data", "data", "marker", "plain"]),
    st.integers(1, 4),
    st.sampled_from([1, 2, -1]),
    st.sampled_from([0, 0, 0, 1, -1]),
    st.booleans(),
)
logs = st.lists(steps, max_size=25).map(a_log)


def facts_of(entries: list[LeaderEntry], start: int, end: int) -> list[ProducerSeen]:
    """Reads a range as a Fetch does: from the batch that holds its start, to beyond its end."""
    folded = PartitionFold(start, end)
    folded.feed(b"".join(entry.encoded for entry in entries if entry.next_offset > start))
    return list(folded.facts(ORDERS, "id", 0))


def joined(entries: list[LeaderEntry], ranges: list[tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """What the state holds open after the facts of some ranges, one after the other."""
    producers: dict[int, ProducerState] = {}
    for start, end in ranges:
        for fact in facts_of(entries, start, end):
            known = producers.get(fact.producer_id, ProducerState(fact.producer_id))
            producers[fact.producer_id] = apply(known, fact, 1).producer
    return {
        producer_id: (producer.spans[ORDERS].start_offset, producer.spans[ORDERS].epoch)
        for producer_id, producer in producers.items()
        if ORDERS in producer.spans
    }


def truth(entries: list[LeaderEntry]) -> dict[int, tuple[int, int]]:
    leader = ModelLeader()
    for entry in entries:
        leader.append(entry)
    return leader.open


@given(logs, st.lists(st.integers(0, 80), max_size=6))
def test_however_a_log_is_cut_the_state_holds_open_what_the_leader_does(
    entries: list[LeaderEntry], cuts: list[int]
) -> None:
    end = entries[-1].next_offset if entries else 0
    bounds = sorted({0, end, *(cut for cut in cuts if cut < end)})
    assert joined(entries, list(pairwise(bounds))) == truth(entries)


@given(logs, st.integers(0, 80), st.integers(0, 80))
def test_reading_a_range_again_from_further_back_changes_nothing(
    entries: list[LeaderEntry], cut: int, back: int
) -> None:
    end = entries[-1].next_offset if entries else 0
    cut, back = min(cut, end), min(back, cut, end)
    assert joined(entries, [(0, cut), (cut, end), (back, end)]) == truth(entries)


@given(logs, st.integers(0, 80))
def test_a_log_that_has_grown_is_read_on_where_it_was_left(entries: list[LeaderEntry], cut: int) -> None:
    end = entries[-1].next_offset if entries else 0
    cut = min(cut, end)
    early = PartitionFold(0, cut)
    early.feed(b"".join(entry.encoded for entry in entries))
    assert early.is_done
    assert joined(entries, [(0, early.position), (early.position, end)]) == truth(entries)
