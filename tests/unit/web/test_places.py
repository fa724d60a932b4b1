"""Which connection gives its place to a new one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txnwatch.web.connections import ConnectionStage as S
from txnwatch.web.connections import to_close

NEW = "10.0.9.9"


@dataclass(frozen=True)
class Held:
    """A connection that has a place."""

    address: str
    stage: S
    since_s: float


ROWS = {
    "the one that has waited longest": (
        [
            Held("a", S.WAITING, 3.0),
            Held("b", S.WAITING, 1.0),
            Held("c", S.WAITING, 2.0),
        ],
        1,
    ),
    "the one that has waited longest of the address with the most": (
        [
            Held("a", S.WAITING, 3.0),
            Held("b", S.WAITING, 1.0),
            Held("a", S.WAITING, 2.0),
        ],
        2,
    ),
    "one that waits, also if the new one has as many": (
        [
            Held(NEW, S.ANSWERING, 1.0),
            Held("b", S.WAITING, 2.0),
        ],
        1,
    ),
    "one that is answered, of the address with the most, before one that waits": (
        [
            Held("kubelet", S.WAITING, 1.0),
            Held("a", S.ANSWERING, 3.0),
            Held("a", S.ANSWERING, 2.0),
        ],
        2,
    ),
    "one that is silent, before one that is answered, of whatever address": (
        [
            Held("ingress", S.ANSWERING, 3.0),
            Held("ingress", S.ANSWERING, 2.0),
            Held("b", S.SILENT, 2.0),
            Held("c", S.SILENT, 1.0),
        ],
        3,
    ),
    "the longest silent one of the address with the most": (
        [Held("b", S.SILENT, 1.0), Held("a", S.SILENT, 3.0), Held("a", S.SILENT, 2.0)],
        2,
    ),
    "no silent one of an address with fewer places": (
        [Held(NEW, S.ANSWERING, 1.0), Held(NEW, S.WAITING, 2.0), Held("b", S.SILENT, 0.0)],
        1,
    ),
    "not a probe that waits, if the address of the new one has all the others": (
        [
            *(Held(NEW, S.ANSWERING, number / 1_000) for number in range(127)),
            Held("kubelet", S.WAITING, 5.0),
        ],
        None,
    ),
    "one of its own that waits, if the address of the new one has the most": (
        [
            Held(NEW, S.WAITING, 2.0),
            Held(NEW, S.ANSWERING, 1.0),
            Held("kubelet", S.WAITING, 1.0),
        ],
        0,
    ),
    "one that waits, before one that does not read": (
        [Held("a", S.UNREAD, 1.0), Held("b", S.WAITING, 9.0)],
        1,
    ),
    "the answer that was left unread for longest, before one that is made": (
        [
            Held("a", S.ANSWERING, 1.0),
            Held("a", S.UNREAD, 9.0),
            Held("a", S.UNREAD, 8.0),
        ],
        2,
    ),
    "of the address with the most, if all are answered": (
        [
            Held("b", S.ANSWERING, 1.0),
            Held("a", S.ANSWERING, 3.0),
            Held("a", S.ANSWERING, 2.0),
        ],
        2,
    ),
    "nobody, if no address has more than the new one would have": (
        [Held("a", S.ANSWERING, 1.0), Held("b", S.ANSWERING, 2.0)],
        None,
    ),
    "nobody, if the address with the most is that of the new one": (
        [
            Held(NEW, S.ANSWERING, 1.0),
            Held(NEW, S.ANSWERING, 2.0),
            Held("b", S.ANSWERING, 2.0),
        ],
        None,
    ),
    "never a stream": ([Held("a", S.STREAM, 1.0), Held("a", S.STREAM, 2.0)], None),
}


@pytest.mark.parametrize(("held", "expected"), ROWS.values(), ids=ROWS.keys())
def test_the_place_of_a_new_connection(held: list[Held], expected: int | None) -> None:
    assert to_close(held, NEW) is (held[expected] if expected is not None else None)


STAGES = st.sampled_from([S.SILENT, S.WAITING, S.UNREAD, S.ANSWERING, S.STREAM])
HELD = st.builds(Held, st.sampled_from(["a", "b", "c", NEW]), STAGES, st.floats(0, 10))


@given(st.lists(HELD, max_size=12))
def test_nobody_takes_a_place_from_an_address_with_fewer(held: list[Held]) -> None:
    found = to_close(held, NEW)
    if found is not None:
        counts = Counter(one.address for one in held if one.stage is not S.STREAM)
        assert found.stage is not S.STREAM
        assert counts[found.address] >= counts[NEW]


@given(st.lists(HELD, max_size=12))
def test_no_answer_is_given_up_for_a_new_address_while_another_connection_is_silent(held: list[Held]) -> None:
    found = to_close([*held, Held("d", S.SILENT, 1.0)], "e")
    assert found is not None
    assert found.stage is S.SILENT
