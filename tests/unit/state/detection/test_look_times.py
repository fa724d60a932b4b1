"""The agenda against a dict that is walked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from txnwatch.state.detection.bucket_indexes import Agenda

producer_ids, times = st.integers(0, 5), st.integers(0, 9)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), producer_ids, times),
        st.tuples(st.just("drop"), producer_ids, times),
        st.tuples(st.just("due"), producer_ids, times),
    ),
    max_size=300,
)


@given(st.dictionaries(producer_ids, times), steps)
def test_the_due_producers_are_those_that_a_walk_finds(
    begin: dict[int, int], steps: list[tuple[str, int, int]]
) -> None:
    agenda, walked = Agenda(begin), dict(begin)
    for step, producer_id, when_ms in steps:
        if step == "put":
            agenda.put(producer_id, when_ms)
            walked[producer_id] = when_ms
        elif step == "drop":
            agenda.drop(producer_id)
            walked.pop(producer_id, None)
        else:
            assert agenda.due(when_ms) == {one for one, due_ms in walked.items() if due_ms <= when_ms}
        assert agenda == walked


def test_the_agenda_knows_its_changed_producers() -> None:
    agenda = Agenda({1: 10, 2: 20, 3: 30})
    agenda.settle()
    agenda.put(1, 10)
    agenda.put(2, 21)
    agenda.drop(3)
    agenda.drop(4)
    agenda.due(99)
    assert agenda.changed == {2, 3}
    agenda.settle()
    assert agenda.changed == set()


def test_times_that_have_passed_do_not_pile_up() -> None:
    agenda = Agenda()
    for when_ms in range(10_000):
        agenda.put(7, when_ms)
    assert len(agenda._heap) < 100
