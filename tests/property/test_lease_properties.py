"""The lease under any interleaving: at no moment do two drivers hold it, and nobody waits for ever."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from support.log_lines import LogLines
from support.seeds import in_proportion
from txnwatch.state.model.errors import CheckpointError, LeaseNotRenewedError
from txnwatch.streaming.job.checkpoint_lease import RENEWED_S, STALE_S, CheckpointLease

DRIVERS = 3
SEEDS = st.integers(0, 1 << 48)
PAUSES_S = (0.0, 0.0, 0.0, 1.0, RENEWED_S, STALE_S / 2, STALE_S + 1)


@dataclass
class LeaseWorld:
    """One directory, one clock and some drivers. Any operation of a driver may be slow, fail, or let others go on.

    Attributes:
        decisions: what happens next.
        busy: the drivers that are inside an operation.
    """

    decisions: Random
    content: dict[int, str] = field(default_factory=dict)
    drivers: list[CheckpointLease | None] = field(default_factory=lambda: [None] * DRIVERS)
    busy: list[int] = field(default_factory=list)
    now_s: float = 1_000.0

    def below(self, count: int) -> int:
        return self.decisions.randrange(count)

    def pause(self) -> None:
        self.now_s += PAUSES_S[self.below(len(PAUSES_S))]
        self.check()
        if len(self.busy) < DRIVERS and self.below(3) == 0:
            self.step()

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.pause()

    def step(self) -> None:
        """One driver starts, renews, releases or is killed."""
        number = self.below(DRIVERS)
        if number in self.busy:
            return
        self.busy.append(number)
        driver = self.drivers[number]
        with contextlib.suppress(CheckpointError):
            if driver is None:
                started = CheckpointLease("hdfs://n/x", self, LogLines(), lambda: self.now_s, self.sleep)
                self.drivers[number] = started
                try:
                    started.take()
                except CheckpointError:
                    self.drivers[number] = None
                    raise
            elif (action := self.below(8)) == 0:
                self.drivers[number] = None  # killed
            elif action == 1:
                self.drivers[number] = None
                driver.release()
            else:
                driver.renew()
        self.busy.remove(number)
        self.check()

    def holders(self) -> list[int]:
        """The drivers that may begin a micro-batch now."""
        return [number for number, driver in enumerate(self.drivers) if driver is not None and may_begin(driver)]

    def check(self) -> None:
        assert len(self.holders()) <= 1, self.content

    def numbers(self) -> list[int]:
        self.pause()
        self._fail()
        return list(self.content)

    def create(self, number: int, content: str) -> bool:
        self.pause()
        self._fail()
        is_new = number not in self.content
        if is_new:
            self.content[number] = ""
            self.pause()
            self._fail()  # the content is lost
            self.content[number] = content
        self.pause()
        self._fail()  # the answer is lost
        return is_new

    def read(self, number: int) -> str:
        self.pause()
        return self.content.get(number, "")

    def delete(self, number: int) -> None:
        self.pause()
        self.content.pop(number, None)

    def _fail(self) -> None:
        if self.below(12) == 0:
            raise OSError("Connection refused")


def may_begin(driver: CheckpointLease) -> bool:
    try:
        driver.check()
    except (CheckpointError, LeaseNotRenewedError):
        return False
    return True


@settings(max_examples=in_proportion(200))
@given(SEEDS)
def test_two_drivers_never_hold_the_lease(seed: int) -> None:
    world = LeaseWorld(Random(seed))
    for _ in range(25):
        world.now_s += PAUSES_S[world.below(len(PAUSES_S))]
        world.check()
        world.step()


@given(SEEDS)
def test_a_lease_that_nobody_renews_is_taken_over_in_time(seed: int) -> None:
    world = LeaseWorld(Random(seed))
    for _ in range(10):
        world.step()
    world.drivers, world.below = [None] * DRIVERS, lambda _: 1  # type: ignore[method-assign] - all have ended
    began_s = world.now_s
    driver = CheckpointLease("hdfs://n/x", world, LogLines(), lambda: world.now_s, world.sleep)
    driver.take()
    assert may_begin(driver)
    assert world.now_s - began_s <= STALE_S + RENEWED_S
