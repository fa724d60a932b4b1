"""Which connection gives its place to a new one."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from txnwatch.web.connections import Stage, to_close

NEW = "10.0.9.9"


@dataclass(frozen=True)
class Held:
    """A connection that has a place."""

    address: str
    stage: Stage
    since_s: float


ROWS = {
    "the one that has waited longest, whoever has the most": (
        [Held("a", Stage.WAITING, 3.0), Held("b", Stage.WAITING, 1.0), Held("a", Stage.WAITING, 2.0)],
        1,
    ),
    "one that waits, before one that does not read": (
        [Held("a", Stage.UNREAD, 1.0), Held("b", Stage.WAITING, 9.0)],
        1,
    ),
    "the answer that was left unread for longest, before one that is made": (
        [Held("a", Stage.ANSWERING, 1.0), Held("a", Stage.UNREAD, 9.0), Held("b", Stage.UNREAD, 8.0)],
        2,
    ),
    "of the address with the most, if all are answered": (
        [Held("b", Stage.ANSWERING, 1.0), Held("a", Stage.ANSWERING, 3.0), Held("a", Stage.ANSWERING, 2.0)],
        2,
    ),
    "nobody, if no address has more than the new one would have": (
        [Held("a", Stage.ANSWERING, 1.0), Held("b", Stage.ANSWERING, 2.0)],
        None,
    ),
    "nobody, if the address with the most is that of the new one": (
        [Held(NEW, Stage.ANSWERING, 1.0), Held(NEW, Stage.ANSWERING, 2.0), Held("b", Stage.ANSWERING, 2.0)],
        None,
    ),
    "never a stream": ([Held("a", Stage.STREAM, 1.0), Held("a", Stage.STREAM, 2.0)], None),
}


@pytest.mark.parametrize(("held", "expected"), ROWS.values(), ids=ROWS.keys())
def test_the_place_of_a_new_connection(held: list[Held], expected: int | None) -> None:
    assert to_close(held, NEW) is (held[expected] if expected is not None else None)
