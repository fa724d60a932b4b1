"""How a reported transaction has ended, from the records of its id, however the reading of the log is divided."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, combinations, pairwise
from typing import NamedTuple

import pytest

from support.batches import a_batch, a_record
from support.facts import NAME, OTHER, PRODUCER, BucketRun
from support.transaction_log import a_key, a_value
from txnwatch.state.evidence.ending import transaction_resolution
from txnwatch.state.model.findings import TransactionMoved
from txnwatch.state.model.incident import EndedBy, EndKind, Resolution
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import log_numbered
from txnwatch.streaming.log.transaction_fold import TransactionFold
from txnwatch.streaming.wire.internal_topics import TransactionLogValue

EPOCH, START_MS, NEXT_START_MS = 67, 1_000, 2_000
HELD = (("orders", (0,)),)
Log = list[TransactionLogValue | None]  # the records of the id at offsets 0, 1, ...; None is a record that is gone
TOMBSTONE = TransactionLogValue(1, -1, 0, 0, S.DEAD, None, 0, None)
K, B = EndKind, EndedBy


def of(state: S, epoch: int = EPOCH, start_ms: int | None = START_MS, **changes: object) -> TransactionLogValue:
    partitions = HELD if state.is_live else None if state is S.EMPTY else ()
    value = TransactionLogValue(1, PRODUCER, epoch, 60_000, state, partitions, 1, start_ms, PRODUCER)
    return replace(value, **changes)  # type: ignore[arg-type]


def commit(epoch: int, start_ms: int, **changes: object) -> Log:
    return [of(S.PREPARE_COMMIT, epoch, start_ms, **changes), of(S.COMPLETE_COMMIT, epoch, start_ms, **changes)]


def abort(epoch: int, start_ms: int, **changes: object) -> Log:
    return [of(S.PREPARE_ABORT, epoch, start_ms, **changes), of(S.COMPLETE_ABORT, epoch, start_ms, **changes)]


def init(epoch: int, **changes: object) -> Log:
    return [of(S.EMPTY, epoch, None, **changes)]


def begun(epoch: int, start_ms: int = NEXT_START_MS, **changes: object) -> Log:
    return [of(S.ONGOING, epoch, start_ms, **changes)]


RAISES = {"client_transaction_version": 2}
BEGUN, BEGUN_2 = begun(EPOCH, START_MS), begun(EPOCH, START_MS, **RAISES)
ADDED = [of(S.ONGOING, partitions=(("orders", (0, 1)),))]
NEXT_COMMITS, NEXT_ABORTS = begun(69) + commit(69, NEXT_START_MS), begun(69) + abort(69, NEXT_START_MS)
EMPTY_ABORT = [
    of(S.PREPARE_ABORT, 69, NEXT_START_MS, partitions=(), **RAISES),
    of(S.COMPLETE_ABORT, 69, NEXT_START_MS, **RAISES),
]
ROTATED = {"producer_id": OTHER, "previous_producer_id": PRODUCER}


class Case(NamedTuple):
    """What was there when the verdict was reported, the rest of the log, and how the incident ends."""

    before: Log
    after: Log
    how: EndKind
    by: EndedBy


CASES: dict[str, Case] = {
    "aborted at its timeout, and the next one commits": Case(
        BEGUN, [*abort(68, START_MS), *init(69), *NEXT_COMMITS], K.ABORTED, B.COORDINATOR
    ),
    "the same with a client that raises the epoch": Case(
        BEGUN_2,
        [*abort(68, START_MS, **RAISES), *init(69), *begun(69), *commit(70, NEXT_START_MS)],
        K.ABORTED,
        B.UNKNOWN,
    ),
    "raised by more than a client does": Case(
        BEGUN_2, [*abort(69, START_MS, **RAISES), *init(70)], K.ABORTED, B.COORDINATOR
    ),
    "a client of an old version, aborted by a newer coordinator": Case(
        BEGUN, [*abort(68, START_MS, **RAISES), *init(69)], K.ABORTED, B.COORDINATOR
    ),
    "aborted by its client, and the next one commits": Case(
        BEGUN, [*abort(EPOCH, START_MS), *begun(EPOCH), *commit(EPOCH, NEXT_START_MS)], K.ABORTED, B.CLIENT
    ),
    "committed, and the next one is aborted": Case(
        BEGUN, [*commit(EPOCH, START_MS), *init(69), *NEXT_ABORTS], K.COMMITTED, B.CLIENT
    ),
    "committed under a raised epoch, and an abort of nothing follows": Case(
        BEGUN_2, [*commit(68, START_MS, **RAISES), *EMPTY_ABORT], K.COMMITTED, B.CLIENT
    ),
    "a partition is added first": Case(BEGUN, [*ADDED, *commit(EPOCH, START_MS), *init(68)], K.COMMITTED, B.CLIENT),
    "the append of its commit fails, and its coordinator aborts it": Case(
        BEGUN, [*commit(EPOCH, START_MS)[:1], *abort(68, START_MS), *init(69)], K.ABORTED, B.COORDINATOR
    ),
    "the append of its commit fails, and a client that raises the epoch, or its coordinator, aborts it": Case(
        BEGUN_2, [*commit(68, START_MS, **RAISES)[:1], *abort(68, START_MS, **RAISES), *init(69)], K.ABORTED, B.UNKNOWN
    ),
    "the append of its abort fails, and its client goes on and commits": Case(
        BEGUN, [*abort(68, START_MS)[:1], *ADDED, *commit(EPOCH, START_MS), *NEXT_ABORTS], K.COMMITTED, B.CLIENT
    ),
    "both appends of its coordinator's abort fail, then one does not": Case(
        BEGUN, [*abort(68, START_MS)[:1], *abort(68, START_MS)[:1], *abort(68, START_MS)], K.ABORTED, B.COORDINATOR
    ),
    "the append of its Complete* fails once": Case(
        BEGUN, [*commit(EPOCH, START_MS), of(S.COMPLETE_COMMIT), *init(68)], K.COMMITTED, B.CLIENT
    ),
    "the append of its commit fails, and compaction has left its abort": Case(
        BEGUN_2,
        [*commit(68, START_MS, **RAISES)[:1], None, None, *abort(69, START_MS, **RAISES)[1:]],
        K.ABORTED,
        B.COORDINATOR,
    ),
    "the append of its commit fails, and compaction has left an abort of nothing": Case(
        BEGUN_2, [*commit(68, START_MS, **RAISES)[:1], None, None, *EMPTY_ABORT[1:]], K.NO_LONGER_OPEN, B.UNKNOWN
    ),
    "stuck, and the append of its commit has failed": Case(
        [*BEGUN_2, *commit(68, START_MS, **RAISES)[:1]], abort(68, START_MS, **RAISES), K.ABORTED, B.UNKNOWN
    ),
    "it moves to another producer id": Case(
        BEGUN_2,
        [of(S.PREPARE_COMMIT, 68, next_producer_id=OTHER), of(S.COMPLETE_COMMIT, 0, **ROTATED), *begun(0, **ROTATED)],
        K.COMMITTED,
        B.CLIENT,
    ),
    "it moves to another producer id, and only the end is left": Case(
        BEGUN_2, [None, of(S.COMPLETE_ABORT, 0, **ROTATED)], K.ABORTED, B.UNKNOWN
    ),
    "the id expires after its end": Case(BEGUN, [*abort(68, START_MS), TOMBSTONE], K.ABORTED, B.COORDINATOR),
    "the id is forgotten": Case(BEGUN, [TOMBSTONE], K.NO_LONGER_OPEN, B.UNKNOWN),
    "compacted, only the next one is left": Case(
        BEGUN, [None, None, *begun(69), *commit(69, NEXT_START_MS)], K.NO_LONGER_OPEN, B.UNKNOWN
    ),
    "compacted, only an InitProducerId is left": Case(BEGUN, [None, None, *init(69)], K.NO_LONGER_OPEN, B.UNKNOWN),
    "compacted, its own commit is left": Case(BEGUN, [None, *commit(EPOCH, START_MS)[1:]], K.COMMITTED, B.CLIENT),
    "compacted, its client's abort is left": Case(BEGUN, [None, *abort(EPOCH, START_MS)[1:]], K.ABORTED, B.CLIENT),
    "compacted, the abort of its own epoch is left": Case(
        BEGUN_2, [None, *abort(68, START_MS, **RAISES)[1:]], K.ABORTED, B.UNKNOWN
    ),
    "compacted, the abort of its coordinator is left": Case(
        BEGUN, [None, *abort(68, START_MS)[1:]], K.ABORTED, B.COORDINATOR
    ),
    "compacted, an abort of nothing is left": Case(
        BEGUN_2, [None, None, None, *EMPTY_ABORT[1:]], K.NO_LONGER_OPEN, B.UNKNOWN
    ),
    "stuck, and the next one is aborted": Case(
        [*BEGUN, *commit(EPOCH, START_MS)[:1]],
        [*commit(EPOCH, START_MS)[1:], *begun(EPOCH), *abort(EPOCH, NEXT_START_MS)],
        K.COMMITTED,
        B.CLIENT,
    ),
    "stuck after an abort of its coordinator": Case(
        [*BEGUN, *abort(68, START_MS)[:1]],
        [*abort(68, START_MS)[1:], *init(69), *NEXT_COMMITS],
        K.ABORTED,
        B.COORDINATOR,
    ),
    "stuck, and only an InitProducerId is left": Case(
        [*BEGUN, *commit(EPOCH, START_MS)[:1]], [None, *init(68)], K.NO_LONGER_OPEN, B.UNKNOWN
    ),
    "stuck in an abort of nothing": Case(
        [*init(EPOCH), *EMPTY_ABORT[:1]],
        [*EMPTY_ABORT[1:], *begun(69), *commit(70, NEXT_START_MS)],
        K.ABORTED,
        B.UNKNOWN,
    ),
    "stuck in the client's abort of the second transaction of an epoch": Case(
        [*BEGUN, *commit(EPOCH, START_MS), *begun(EPOCH), *abort(EPOCH, NEXT_START_MS)[:1]],
        [*abort(EPOCH, NEXT_START_MS)[1:], *init(68)],
        K.ABORTED,
        B.UNKNOWN,
    ),
    "prepared in the log, and ongoing again": Case(
        [*BEGUN, *commit(EPOCH, START_MS)[:1]], BEGUN, K.MOVED_ON, B.COORDINATOR
    ),
}


def entry(offset: int, value: TransactionLogValue) -> bytes:
    body = None if value is TOMBSTONE else a_value(value)
    return a_batch(offset, records=[a_record(key=a_key(NAME), value=body)], producer_id=-1, transactional=False)


def read(run: BucketRun, log: Log, start: int, end: int) -> list[object]:
    """One batch that reads a range of the log."""
    fold = TransactionFold(log_numbered(0), start, end)
    written = [entry(at, value) for at, value in enumerate(log) if value is not None and at >= start]
    fold.feed(b"".join(written))
    holes = {log_numbered(0): fold.last_hole_end} if fold.hole is not None else {}
    return list(run.batch(*fold.facts(), holes=holes))


def resolutions(case: Case, cuts: tuple[int, ...]) -> list[Resolution]:
    run, log, first = BucketRun(), [*case.before, *case.after], len(case.before)
    read(run, log, 0, first)
    run.pass_time(600_000)
    assert run.batch(), "a verdict is reported"
    emitted = [one for start, end in pairwise((first, *cuts, len(log))) for one in read(run, log, start, end)]
    return [transaction_resolution(one, 5) for one in emitted if isinstance(one, TransactionMoved)]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_end_of_a_transaction_is_its_own_for_any_division_of_the_reading(case: Case) -> None:
    inner = range(len(case.before) + 1, len(case.before) + len(case.after))
    for cuts in chain.from_iterable(combinations(inner, count) for count in range(3)):
        found = [(one.how, one.by) for one in resolutions(case, cuts)]
        assert found == [(case.how, case.by)], cuts


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_a_decision_that_can_be_taken_back_ends_nothing(state: S) -> None:
    assert not resolutions(Case(BEGUN, [of(state)], K.ABORTED, B.UNKNOWN), ())
    assert not resolutions(Case(BEGUN, [of(state), *ADDED], K.ABORTED, B.UNKNOWN), ())
    assert not resolutions(Case(BEGUN, [of(state), *ADDED], K.ABORTED, B.UNKNOWN), (2,))


def test_a_range_that_is_read_twice_ends_the_transaction_once() -> None:
    case = CASES["aborted at its timeout, and the next one commits"]
    run, log = BucketRun(), [*case.before, *case.after]
    read(run, log, 0, 1)
    run.pass_time(600_000)
    run.batch()
    read(run, log, 1, 2)
    emitted = [one for _ in range(2) for one in read(run, log, 1, len(log))]
    assert len([one for one in emitted if isinstance(one, TransactionMoved)]) == 1


def test_the_detail_has_the_place_and_the_age_of_an_abort() -> None:
    (found,) = resolutions(CASES["aborted at its timeout, and the next one commits"], ())
    assert found.detail is not None
    assert "PrepareAbort at 0@1 of the coordinators' log" in found.detail
    assert "with a timeout of 60000 ms" in found.detail
