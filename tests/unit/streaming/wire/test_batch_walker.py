"""The walk: which batches join a run, where it ends, and how far the position moves."""

from __future__ import annotations

import pytest

from support.batches import a_batch, a_control_batch, a_marker, an_old_entry
from txnwatch.state.model.errors import WireError
from txnwatch.streaming.wire.record_batch import BatchHeader, BatchWalker, producer_of

DATA = b"".join([a_batch(0), a_batch(1), a_batch(2, count=3)])


class EndNoted(BatchWalker):
    """Keeps the batch that is beyond the end of the range."""

    beyond: BatchHeader | None = None

    def beyond_end(self, header: BatchHeader) -> None:
        self.beyond = header


def offsets(walker: BatchWalker, buffer: bytes, *, joined: bool = True) -> list[tuple[int, int]]:
    return [(first, last) for _, first, last, *_ in walker.runs(buffer, joined=joined)]


def test_batches_that_differ_in_offsets_only_are_one_run() -> None:
    walker = BatchWalker(0, 100)
    ((begin, first, last, _, producer, _),) = walker.runs(DATA)
    assert (begin, first, last, producer_of(producer)) == (0, 0, 4, (7, 0))
    assert walker.position == 5


def test_each_batch_is_a_run_of_its_own_if_they_are_not_joined() -> None:
    assert offsets(BatchWalker(0, 100), DATA, joined=False) == [(0, 0), (1, 1), (2, 4)]


APART = {
    "another producer": (a_batch(0), a_batch(1, producer_id=8)),
    "another producer epoch": (a_batch(0), a_batch(1, producer_epoch=1)),
    "another leader epoch": (a_batch(0), a_batch(1, leader_epoch=9)),
    "other attributes": (a_batch(0), a_batch(1, transactional=False)),
    "a marker": (a_batch(0), a_marker(1)),
    "two markers": (a_marker(0), a_marker(1)),
    "two emptied control batches": (a_control_batch([], 0), a_control_batch([], 1)),
    "an old entry": (a_batch(0), an_old_entry(1)),
    "two old entries": (an_old_entry(0), an_old_entry(1)),
}


@pytest.mark.parametrize("batches", APART.values(), ids=APART.keys())
def test_batches_that_differ_are_not_joined(batches: tuple[bytes, bytes]) -> None:
    assert offsets(BatchWalker(0, 100), b"".join(batches)) == [(0, 0), (1, 1)]


def test_a_batch_of_the_range_never_joins_one_that_begins_below_the_range() -> None:
    straddling = a_batch(0, count=3) + a_batch(3) + a_batch(4)
    assert offsets(BatchWalker(1, 100), straddling) == [(0, 2), (3, 4)]


def test_a_run_ends_at_the_end_of_the_range() -> None:
    walker = EndNoted(0, 2)
    assert offsets(walker, DATA) == [(0, 1)]
    assert walker.position == 2
    assert walker.beyond is not None
    assert walker.beyond.base_offset == 2


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch() -> None:
    walker = EndNoted(0, 2)
    assert offsets(walker, DATA[:-1]) == [(0, 1)]
    assert (walker.position, walker.beyond) == (2, None)
    behind = EndNoted(0, 1)
    assert offsets(behind, a_batch(1)[:-1]) == []
    assert behind.position == 0


def test_old_entries_move_the_position_and_keep_the_leader_epoch() -> None:
    walker = BatchWalker(0, 100)
    assert list(walker.headers(a_batch(0, leader_epoch=4) + an_old_entry(1) + an_old_entry(2, value=b"x" * 80)))
    assert (walker.position, walker.leader_epoch, walker.last_epoch) == (3, 4, 4)
    assert BatchWalker().last_epoch is None


def test_many_old_entries_are_walked() -> None:
    walker = BatchWalker(0, 5000)
    list(walker.runs(b"".join(map(an_old_entry, range(3000)))))
    assert walker.position == 3000


def test_the_position_is_the_offset_of_the_batch_that_cannot_be_read() -> None:
    broken = bytearray(a_batch(2))
    broken[16] = 3
    walker, found = BatchWalker(0, 100), []

    def read() -> None:
        found.extend(walker.runs(a_batch(0, leader_epoch=4) + a_batch(1, leader_epoch=4) + bytes(broken)))

    with pytest.raises(WireError, match="magic"):
        read()
    assert (walker.position, walker.leader_epoch) == (2, 4)


def test_the_position_moves_after_the_caller_has_handled_a_batch() -> None:
    walker = BatchWalker(0, 100)
    seen = [(walker.position, header.base_offset) for _, header in walker.headers(DATA)]
    assert seen == [(0, 0), (1, 1), (2, 2)]
    assert walker.position == 5


BACKWARDS = {
    "a last offset below the base": (a_batch(5, last_offset_delta=-2), "5 and 3"),
    "a base offset below 0": (a_batch(-5), "-5 and -5"),
    "an old entry below 0": (an_old_entry(-5), "-5 and -5"),
    "the last batch of a run": (a_batch(5) + a_batch(6, last_offset_delta=-9), "5 and -3"),
}


@pytest.mark.parametrize(("buffer", "found"), BACKWARDS.values(), ids=BACKWARDS.keys())
def test_offsets_that_would_move_the_position_back_are_an_error(buffer: bytes, found: str) -> None:
    walker = BatchWalker(0, 100)
    with pytest.raises(WireError, match=f"found {found}$"):
        list(walker.runs(buffer))
    assert walker.position >= 0
