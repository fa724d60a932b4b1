"""One seed from beginning to end, and the smallest setting in which it still fails."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from simulation.failed_appends import FAILED_APPEND
from simulation.faults import FAULTS
from simulation.long_faults import LONG_FAULTS
from simulation.oracle import Oracle
from simulation.reader import BatchResult, WorldReader
from simulation.restarts import STARTS_AGAIN
from simulation.shared_ids import TWO_IDS
from simulation.world import Setting, World
from txnwatch.state.model.values import TopicPartition, is_data

USUAL = Setting()
_ALWAYS = frozenset({TWO_IDS, FAILED_APPEND, STARTS_AGAIN, *LONG_FAULTS})  # each has chances of its own
_BATCHES_OF_A_PROOF = 3  # once what was unread is read
_MOST_SETTLING_BATCHES, _LAST_BATCHES = 200, 10
_LONG_MS, _OVER_AN_HOUR_MS = 61_000, 3_700_000  # the coordinators are asked about two-phase transactions hourly
_STILL_PAUSES_MS = (*(_LONG_MS,) * 8, *(_OVER_AN_HOUR_MS,) * 2)


@dataclass
class RunOutcome:
    """The result of a run."""

    seed: int
    setting: Setting
    problems: list[str]
    ticks: int
    seen: Counter[str] = field(default_factory=Counter)
    timeline: list[str] = field(default_factory=list)


def run(
    seed: int, setting: Setting = USUAL, reader_of: type[WorldReader] = WorldReader, *, keep_timeline: bool = False
) -> RunOutcome:
    """Runs one world and one reader; equal arguments give equal outcomes."""
    rng = random.Random(seed)
    rate = rng.choice((0.5, 1.5, 4.0))
    share = rng.choice((0.1, 0.4, 1.0))  # worlds with few faults show what many faults hide
    faults = setting.faults & {*_ALWAYS, *(name for name in FAULTS if rng.random() < share)}
    world = World(
        replace(setting, rate=rate if setting.rate is None else setting.rate, faults=faults),
        random.Random(seed + 1),
        [] if keep_timeline else None,
    )
    reader = reader_of(world, rng)
    reader.spreads_the_log = bool(seed % 2)
    reader.fall_behind(random.Random(f"{seed} behind"))
    oracle = Oracle(world)
    for _ in range(setting.head_start + rng.randrange(40)):
        world.step()
    world.wait(world.clocks.old_ms)
    for _ in range(setting.batches):
        world.churn()
        world.wait(rng.randrange(setting.pause_ms))
        reader.batch(oracle.check)
        oracle.problems.extend(reader.problems)
        if oracle.problems:
            break
    else:
        if reader.straggler is None:
            _rest(reader, oracle)
        world.heal()
        if reader.straggler is not None:
            _stay_behind(reader, oracle)
        _settle(reader, oracle)
        oracle.close(reader.gaps)
        oracle.problems.extend(reader.problems)
    return RunOutcome(seed, setting, oracle.problems, world.tick, world.seen + reader.seen, world.timeline or [])


def _rest(reader: WorldReader, oracle: Oracle) -> None:
    """Runs batches while nothing moves and a broker or topic is missing: everything provable must be reported."""
    world = reader.world
    if not world.hidden and world.is_whole:
        return
    world.note("--- everything stands still ---")
    rate = world.setting.rate
    reader.settle()
    reader.lister.schedule.round_due_s = 0.0  # a minute passes: a hang above another one may wait for the round
    world.replicate_all()
    world.setting = replace(world.setting, rate=0.0)
    last: BatchResult | None = None

    def check(result: BatchResult) -> None:
        nonlocal last
        last = result
        oracle.check(result)

    unread: list[set[TopicPartition]] = []
    for pause_ms in _STILL_PAUSES_MS:
        world.wait(pause_ms)
        reader.batch(check)
        unread.append(set(reader.gaps))
    if last is not None:
        oracle.check_at_rest(last, set().union(*unread[-_BATCHES_OF_A_PROOF:]))
    world.setting = replace(world.setting, rate=rate)


def _stay_behind(reader: WorldReader, oracle: Oracle) -> None:
    """Runs batches while nothing moves and one partition does not catch up, then checks the reports.

    The reader of most worlds takes no full census. Only such a census can show a transaction that has no record left in
    the log, if an election opened it again: a marker that was not replicated is gone, and nothing that is read belongs
    to the transaction.
    """
    reader.stay_behind()
    _take_a_round(reader)
    reader.world.setting = replace(reader.world.setting, rate=0.0)
    batches_with_a_whole_log = 0
    for _ in range(_MOST_SETTLING_BATCHES):
        reader.world.wait(_OVER_AN_HOUR_MS)
        reader.batch(oracle.check)
        batches_with_a_whole_log = batches_with_a_whole_log + 1 if all(is_data(gap) for gap in reader.gaps) else 0
        if oracle.problems or batches_with_a_whole_log > 2 * _LAST_BATCHES:
            break
    reopened = reader.world.hanging.keys() & reader.world.reopened
    if any(map(reader.world.is_without_records, reopened)):
        reader.lister.schedule.heal_due_s = 0.0
        for _ in range(_BATCHES_OF_A_PROOF):
            reader.world.wait(_OVER_AN_HOUR_MS)
            reader.batch(oracle.check)
    oracle.check_while_behind()


def _take_a_round(reader: WorldReader) -> None:
    """A round of the census, if a hang has no record left: where nothing stands, only a round shows it."""
    if any(map(reader.world.is_without_records, reader.world.hanging)):
        reader.lister.schedule.round_due_s = 0.0


def _settle(reader: WorldReader, oracle: Oracle) -> None:
    """Runs batches while nothing moves, until no range has to be read again, and a few more."""
    reader.settle()
    _take_a_round(reader)
    reader.world.setting = replace(reader.world.setting, rate=0.0)
    for _ in range(_MOST_SETTLING_BATCHES):
        reader.world.wait(_LONG_MS)
        reader.batch(oracle.check)
        if oracle.problems or not reader.gaps:
            break
    for _ in range(_LAST_BATCHES):
        reader.world.wait(_OVER_AN_HOUR_MS)
        reader.batch(oracle.check)


def shrink(failed: RunOutcome, reader_of: type[WorldReader] = WorldReader) -> RunOutcome:
    """The smallest setting found in which the seed still fails in the same way, with its timeline."""
    kind = failed.problems[0].split(":")[0]
    smallest = failed.setting
    progress = True
    while progress:
        progress = False
        for smaller in _smaller(smallest, failed.ticks):
            found = run(failed.seed, smaller, reader_of)
            if found.problems and found.problems[0].split(":")[0] == kind:
                smallest, progress = smaller, True
                break
    return run(failed.seed, smallest, reader_of, keep_timeline=True)


def _smaller(setting: Setting, ticks: int) -> Iterator[Setting]:
    for name in sorted(setting.faults):
        yield replace(setting, faults=setting.faults - {name})
    if setting.clocks_differ:
        yield replace(setting, clocks_differ=False)
    for field_name in ("clients", "partitions", "logs"):
        value = getattr(setting, field_name)
        if value > 1:
            yield replace(setting, **{field_name: value - 1})
    for batches in (setting.batches // 2, setting.batches - 1):
        if 0 < batches < setting.batches:
            yield replace(setting, batches=batches)
    steps = min(setting.steps, ticks)
    for fewer in (steps // 2, steps * 3 // 4, steps - 1):
        if 0 <= fewer < setting.steps:
            yield replace(setting, steps=fewer)


def report(failed: RunOutcome) -> str:
    """The failure as text: how to repeat it, and what happened."""
    setting = failed.setting
    lines = [
        f"seed {failed.seed}: {failed.problems[0]}",
        f"smallest setting found: {setting}",
        "timeline:",
        *failed.timeline,
    ]
    return "\n".join(lines)
