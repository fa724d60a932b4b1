"""The law of the fold: where a range is cut never matters, and the leader's rules are what comes out."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from support.partition_oracle import LeaderEntry, ModelLeader, a_log
from txnwatch.state.detection.span import Step
from txnwatch.state.detection.view import apply
from txnwatch.state.model.facts import ProducerSeen
from txnwatch.state.model.findings import SpanEnded
from txnwatch.state.model.transaction import Emission, ProducerState, Span
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
long_logs = st.lists(steps, min_size=12, max_size=25).map(a_log)


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


@given(long_logs, st.integers(0, 40), st.integers(0, 20))
def test_a_range_names_no_wrong_marker_as_the_end_of_a_span_ahead_of_it(
    entries: list[LeaderEntry], cut: int, back: int
) -> None:
    end = entries[-1].next_offset if entries else 0
    for producer_id, (start, epoch) in truth([entry for entry in entries if entry.offset < cut]).items():
        ahead = Span("id", start, None, epoch, start, None, 0, 1, is_ahead_of_scan=True, emission=Emission(1, 0))
        step = Step(ProducerState(producer_id, {ORDERS: ahead}))
        for fact in facts_of(entries, min(back, start), end):
            step = apply(step.producer, fact, 2) if fact.producer_id == producer_id else step
        markers = [entry.offset for entry in entries if entry.kind == "marker" and entry.producer_id == producer_id]
        right = next((offset for offset in markers if offset > start), None)
        found = [one.marker for one in step.emitted if isinstance(one, SpanEnded)]
        assert len(found) == (right is not None)
        assert [marker.offset for marker in found if marker is not None] in ([], [right])
        if found == [None]:
            assert len([offset for offset in markers if offset > start]) > 1, "one marker is no riddle"
        span = step.producer.spans.get(ORDERS)
        now_open = truth(entries).get(producer_id)
        assert (span.start_offset if span is not None else None) == (now_open[0] if now_open is not None else None)


@given(logs, st.integers(0, 80))
def test_a_log_that_has_grown_is_read_on_where_it_was_left(entries: list[LeaderEntry], cut: int) -> None:
    end = entries[-1].next_offset if entries else 0
    cut = min(cut, end)
    early = PartitionFold(0, cut)
    early.feed(b"".join(entry.encoded for entry in entries))
    assert early.is_done
    assert joined(entries, [(0, early.position), (early.position, end)]) == truth(entries)
