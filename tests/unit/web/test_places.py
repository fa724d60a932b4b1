"""Which connection gives its place to a new one."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

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
    "the one that has waited longest, whoever has the most": (
        [
            Held("a", S.WAITING, 3.0),
            Held("b", S.WAITING, 1.0),
            Held("a", S.WAITING, 2.0),
        ],
        1,
    ),
    "one that waits, before one that does not read": (
        [Held("a", S.UNREAD, 1.0), Held("b", S.WAITING, 9.0)],
        1,
    ),
    "the answer that was left unread for longest, before one that is made": (
        [
            Held("a", S.ANSWERING, 1.0),
            Held("a", S.UNREAD, 9.0),
            Held("b", S.UNREAD, 8.0),
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
