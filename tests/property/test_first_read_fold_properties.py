"""The quick reading of usual batches gives the same facts as decoding each batch, and so do the two passes of a first
reading; a planted bug in them is found.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from typing import Any
from unittest import mock

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict

from support.coordinator_logs import Placed, coordinator_logs
from support.quick_batches import quickly_shown, shown_by
from txnwatch.state.model.errors import WireError
from txnwatch.state.model.values import log_numbered
from txnwatch.streaming.audit.coordinator_history import IdHistoryFold
from txnwatch.streaming.log import coordinator_records as records_module
from txnwatch.streaming.log.coordinator_records import logged_records
from txnwatch.streaming.log.transaction_fold import FirstReadFold, HeldBytes, TransactionFold
from txnwatch.streaming.wire.internal_topics import NO_PRODUCER_ID, quick_decode
from txnwatch.streaming.wire.record_batch import walk

_damages = st.lists(st.tuples(st.integers(0, 2_000), st.integers(1, 255)), max_size=2)
_rarely_damaged = st.one_of(st.just([]), st.just([]), _damages)
_answers = st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=10)
_cuts = st.lists(st.integers(0, 45), max_size=3)


def _damaged(raw: bytes, damages: list[tuple[int, int]]) -> bytes:
    changed = bytearray(raw)
    for at, change in damages:
        changed[at % len(changed)] ^= change
    return bytes(changed)


DECODED = mock.patch.object(records_module, "quick_decode", return_value=None)


def _read(
    fold: TransactionFold,
    log: list[Placed],
    answers: list[tuple[int, bool]],
    condense: Callable[[], None],
    *,
    is_first: bool = True,
) -> list[object]:
    """What there is to see of a fold once answers of some batches each were fed; behind some of them it condenses."""
    error = None
    waiting = [placed.raw for placed in log if placed.last_offset >= fold.start]
    rest = iter([*answers, *[(1, False)] * len(waiting)])
    try:
        while waiting and not fold.is_done:
            count, condenses = next(rest)
            cut_off = b"".join(waiting[count : count + 1])[:-1]
            fold.feed(memoryview(b"".join(waiting[:count]) + cut_off))
            waiting = waiting[count:]
            if condenses:
                condense()
    except WireError as exc:
        error = str(exc)
    facts = list(fold.facts(is_first=is_first))
    return [facts, error, fold.position, fold.leader_epoch, fold.hole, fold.last_hole_end, fold.stamps]


def both_ways(
    log: list[Placed],
    cuts: list[int],
    answers: list[tuple[int, bool]],
    damages: list[tuple[int, int]],
    backlog_end: int = 99,
) -> list[tuple[list[object], list[object]]]:
    """Of each range that the cuts make: what the two passes show, and what the exact fold shows."""
    whole = _damaged(b"".join(placed.raw for placed in log), damages)
    sizes = [len(placed.raw) for placed in log]
    damaged = [
        Placed(placed.offset, placed.last_offset, whole[sum(sizes[:at]) : sum(sizes[: at + 1])])
        for at, placed in enumerate(log)
    ]
    bounds = sorted({0, *cuts, log[-1].last_offset + 1})
    shown = []
    for start, end in pairwise(bounds):
        fast, exact = (
            FirstReadFold(log_numbered(0), start, end, backlog_end=backlog_end, room=HeldBytes()),
            TransactionFold(log_numbered(0), start, end, backlog_end=backlog_end),
        )
        shown_fast = _read(fast, damaged, answers, fast.condense)
        with DECODED:
            shown.append((shown_fast, _read(exact, damaged, answers, exact.forget_idle_backlog)))
    return shown


@given(coordinator_logs(), _cuts, _answers, _rarely_damaged, st.sampled_from([99, 99, 99, 0, 4, 9]))
def test_both_ways_give_the_same_facts(
    log: list[Placed],
    cuts: list[int],
    answers: list[tuple[int, bool]],
    damages: list[tuple[int, int]],
    backlog_end: int,
) -> None:
    for fast, exact in both_ways(log, cuts, answers, damages, backlog_end):
        assert fast == exact


@given(coordinator_logs(), st.integers(0, 20), _answers, _rarely_damaged, st.sampled_from([0, 0, 4, 99]))
def test_a_quick_reading_gives_the_same_facts_as_decoding_each_batch(
    log: list[Placed], start: int, answers: list[tuple[int, bool]], damages: list[tuple[int, int]], backlog_end: int
) -> None:
    end = log[-1].last_offset + 1
    raw = _damaged(b"".join(placed.raw for placed in log), damages)
    damaged = [Placed(start, end, raw)] if damages else log
    shown = []
    for reading in (nullcontext(), DECODED):
        fold = TransactionFold(log_numbered(0), min(start, end), end, backlog_end=backlog_end)
        with reading:
            shown.append([*_read(fold, damaged, answers, lambda: None, is_first=False), fold.last_header])
    assert shown[0] == shown[1]


@given(coordinator_logs(), st.integers(0, 20), _rarely_damaged)
def test_a_quick_reading_gives_the_same_ids_as_decoding_each_batch(
    log: list[Placed], start: int, damages: list[tuple[int, int]]
) -> None:
    raw = _damaged(b"".join(placed.raw for placed in log), damages)
    shown = []
    for reading in (nullcontext(), DECODED):
        fold = IdHistoryFold(0, start, log[-1].last_offset)
        error = None
        try:
            with reading:
                fold.feed(raw)
        except WireError as exc:
            error = str(exc)
        shown.append([error, [asdict(one) for one in fold.found.values()], fold.position, fold.leader_epoch])
    assert shown[0] == shown[1]


@given(coordinator_logs(), _damages)
def test_a_quick_decode_equals_decoding_or_is_none(log: list[Placed], damages: list[tuple[int, int]]) -> None:
    for placed in log:
        raw = _damaged(placed.raw, damages)
        quick_decode(placed.raw, 0)  # its layout is known then
        seen = quick_decode(raw, 0)
        if seen is None:
            continue
        ((position, header),) = walk(raw)
        (record,) = logged_records(raw, position, header)
        value = record.value
        assert quickly_shown(seen) == shown_by(record)
        assert seen[:8] == (
            len(raw),
            record.offset,
            header.leader_epoch,
            record.timestamp_ms,
            record.transactional_id.encode(),
            value.producer_id if value is not None else NO_PRODUCER_ID,
            NO_PRODUCER_ID if value is None or value.previous_producer_id is None else value.previous_producer_id,
            value is not None and value.state.is_live,
        )
        assert not header.is_control


class _First(dict[bytes, int]):
    """Keeps what came first."""

    def __setitem__(self, key: bytes, producer_id: int) -> None:
        self.setdefault(key, producer_id)

    def __delitem__(self, name: bytes) -> None:
        pass

    def pop(self, key: bytes, default: Any = None) -> Any:
        return self.get(key, default)


def _keeps_the_first(fold: FirstReadFold, *args: Any, **named: Any) -> None:
    _INIT(fold, *args, **named)
    fold._live = _First()


def _drops_tombstones(fold: FirstReadFold, at: int, producer_id: int, previous_id: int, name: bytes) -> None:
    if producer_id >= 0:
        _NOTE(fold, at, producer_id, previous_id, name)


def _ignores_the_previous_id(fold: FirstReadFold, at: int, producer_id: int, _: int, name: bytes) -> None:
    _NOTE(fold, at, producer_id, NO_PRODUCER_ID, name)


def _ignores_the_name(fold: FirstReadFold, at: int, producer_id: int, previous_id: int, name: bytes) -> None:
    _NOTE(fold, at, producer_id, previous_id, name + b"%d" % at)


def _ignores_holes(fold: FirstReadFold, *args: Any) -> None:
    whole, fold.last_hole_end = fold.last_hole_end, fold.start
    _NOTE(fold, *args)
    fold.last_hole_end = whole


def _takes_prepare_for_idle(raw: bytes, at: int) -> Any:
    seen = quick_decode(raw, at)
    return (*seen[:7], False, *seen[8:]) if seen is not None and raw[seen[0] - 20] % 2 else seen


_INIT, _NOTE = FirstReadFold.__init__, FirstReadFold._note
MUTANTS = {
    "takes the first value": mock.patch.object(FirstReadFold, "__init__", _keeps_the_first),
    "drops tombstones": mock.patch.object(FirstReadFold, "_note", _drops_tombstones),
    "ignores the previous producer id": mock.patch.object(FirstReadFold, "_note", _ignores_the_previous_id),
    "ignores whose an id was": mock.patch.object(FirstReadFold, "_note", _ignores_the_name),
    "ignores holes": mock.patch.object(FirstReadFold, "_note", _ignores_holes),
    "takes live ones for idle": mock.patch.object(records_module, "quick_decode", _takes_prepare_for_idle),
    "forgets what it knew": mock.patch.object(FirstReadFold, "forget_idle_backlog", lambda fold: fold._uses.clear()),
}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())
def test_a_planted_mistake_is_found(mutant: Any) -> None:
    def differs(case: tuple[list[Placed], list[tuple[int, bool]]]) -> bool:
        log, answers = case
        with mutant:
            return any(fast != exact for fast, exact in both_ways(log, [], answers, []))

    known = settings(max_examples=5_000, database=None, phases=[Phase.generate])
    find(st.tuples(coordinator_logs(), _answers), differs, settings=known)
