"""One script, given to Kafka's ProducerStateManager and to our fold and state: do both hold the same open?

Law: what a follower holds after a log is what we must hold, to the first offset and the epoch, however the log was cut
into ranges; and what the leader holds we hold as well. The two differ where a leader has forgotten something.
Two readers of ours watch each log, one of them from the last stable offset of some moment on: they read in random
ranges, lag, miss ranges and go back to them. In the end two more read all of it, one at once and one in pieces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from support.log_scripts import Command, ScriptStep, Writer, a_script, shortened
from support.log_watcher import Appended, LogWatcher
from support.producer_state_oracle import Held, OracleAnswer, ProducerStateOracle

_READS, _MISSES, _GOES_BACK, _STARTS_LATE = 0.5, 0.1, 0.15, 0.1


@dataclass
class ComparisonTally:
    """What was compared, so that a test can check that something was compared."""

    logs: int = 0
    comparisons: int = 0
    seen: Counter[str] = field(default_factory=Counter)


class OracleDifferenceError(AssertionError):
    """Kafka and we do not agree."""


def check(oracle: ProducerStateOracle, seed: int, tally: ComparisonTally | None = None) -> None:
    """One random log.

    Raises:
        DifferenceError: with the shortest script found that still makes one.
    """
    steps = a_script(Random(seed))
    found = _difference(oracle, steps, seed, tally or ComparisonTally())
    if found is None:
        return

    def fails(fewer: list[ScriptStep]) -> bool:
        return _difference(oracle, fewer, seed, ComparisonTally()) is not None

    short = shortened(steps, fails)
    why = _difference(oracle, short, seed, ComparisonTally())
    raise OracleDifferenceError(f"seed {seed}: {why}\n" + "\n".join(f"  {step}" for step in short))


def first_difference(oracle: ProducerStateOracle, seeds: Sequence[int]) -> int | None:
    """The first seed whose log makes a difference."""
    for seed in seeds:
        if _difference(oracle, a_script(Random(seed)), seed, ComparisonTally()) is not None:
            return seed
    return None


def _difference(
    oracle: ProducerStateOracle, steps: Sequence[ScriptStep], seed: int, tally: ComparisonTally
) -> str | None:
    writer = Writer()
    commands = [writer.command(step) for step in steps]
    answers = oracle.run([command.sent for command in commands])
    comparison = _Comparison(Random(-seed - 1), tally)
    for number, (command, answer) in enumerate(zip(commands, answers, strict=True)):
        tally.seen[answer.refusal or steps[number].kind] += 1
        found = comparison.step(command, answer)
        if found is not None:
            return f"after step {number}, {steps[number].kind}: {found}"
    tally.logs += 1
    return comparison.in_the_end()


class _Comparison:
    """The log as the leader appended it, and our readers of it."""

    def __init__(self, random: Random, tally: ComparisonTally) -> None:
        self._random = random
        self._tally = tally
        self._log: list[Appended] = []
        self._held = Held({}, None)
        self._reader = LogWatcher()
        self._late: LogWatcher | None = None

    def step(self, command: Command, answer: OracleAnswer) -> str | None:
        self._note(answer)
        end = self._log[-1].next_offset if self._log else 0
        if command.batch is not None and not answer.refusal:
            self._log.append(Appended.at(command.batch, answer.base_offset, answer.end))
            end = answer.end
        if command.cut:
            del self._log[-command.cut :]
            end = answer.end
        self._held = answer.follower
        for reader in filter(None, (self._reader, self._late)):
            found = self._read(reader, end, is_cut=command.cut > 0)
            if found is not None:
                return found
        if self._late is None and self._random.random() < _STARTS_LATE:
            # It reads at once: that a log is cut between the listing of its start and the first read is not seen.
            self._late = LogWatcher(self._stable(end))
            self._late.read(self._log, end)
        return _difference_of_leader(answer)

    def _read(self, reader: LogWatcher, end: int, *, is_cut: bool) -> str | None:
        if is_cut and end < reader.position:
            reader.truncated(end, self._stable(end), self._held.open)
            return self._compare("we", reader)
        choice = self._random.random()
        back = reader.position if reader.gap is None else reader.gap
        if choice < _READS:
            reader.read(self._log, end)
        elif choice < _READS + _MISSES:
            reader.miss(end)
        elif choice < _READS + _MISSES + _GOES_BACK:
            reader.go_back(self._log, self._random.randint(0, back), end)
        else:
            return None
        return self._compare("we", reader) if reader.gap is None else None

    def in_the_end(self) -> str | None:
        end = self._log[-1].next_offset if self._log else 0
        whole, again = LogWatcher(), LogWatcher()
        whole.read(self._log, end)
        for cut in sorted(self._random.randint(0, end) for _ in range(5)):
            again.read(self._log, cut)
        again.read(self._log, end)
        found = self._compare("all at once", whole) or self._compare("in pieces", again)
        if found is None:
            self._reader.go_back(self._log, 0, end)
            found = self._compare("we in the end", self._reader)
        return found

    def _compare(self, who: str, reader: LogWatcher) -> str | None:
        self._tally.comparisons += 1
        ours = reader.open
        if ours != self._held.open:
            return f"{who} hold {ours}, Kafka {self._held.open} (first unstable {self._held.first_unstable})"
        first = min((start for start, _ in ours.values()), default=None)
        if first != self._held.first_unstable:
            return f"{who} have {first} as first unstable offset, Kafka {self._held.first_unstable}"
        return None

    def _stable(self, end: int) -> int:
        return end if self._held.first_unstable is None else self._held.first_unstable

    def _note(self, answer: OracleAnswer) -> None:
        before, after = self._held.open, answer.follower.open
        seen = self._tally.seen
        for producer_id, (start, epoch) in after.items():
            known = before.get(producer_id)
            seen["opened"] += known is None
            seen["a newer epoch joined"] += known is not None and known[0] == start and known[1] < epoch
        seen["closed"] += len(before.keys() - after.keys())
        seen["several open"] += len(after) > 1
        seen["leader has forgotten"] += answer.leader.open != after


def _difference_of_leader(answer: OracleAnswer) -> str | None:
    """Whether the leader holds something that a follower, and so we, do not: a hang nobody would see."""
    held = answer.follower.open
    for producer_id, (start, _) in answer.leader.open.items():
        if producer_id not in held or held[producer_id][0] > start:
            return f"the leader holds {answer.leader.open}, a follower {held}"
    return None
