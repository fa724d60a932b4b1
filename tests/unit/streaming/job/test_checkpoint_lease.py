"""The lease of a checkpoint on a shared file system: one driver at a time, whatever ends the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from support.log_lines import LogLines
from txnwatch.state.model.errors import CheckpointError, LeaseNotRenewedError
from txnwatch.streaming.job.checkpoint_lease import RENEWED_S, STALE_S, CheckpointLease


@dataclass
class SharedFiles:
    """The files that all drivers see; `before_create` runs while a driver creates one, `replaces` is a fault."""

    content: dict[int, str] = field(default_factory=dict)
    is_away: bool = False
    replaces: bool = False
    before_create: Callable[[], None] = lambda: None

    def numbers(self) -> list[int]:
        self._check()
        return list(self.content)

    def create(self, number: int, content: str) -> bool:
        self._check()
        meanwhile, self.before_create = self.before_create, lambda: None
        meanwhile()
        if number in self.content and not self.replaces:
            return False
        self.content[number] = content
        return True

    def read(self, number: int) -> str:
        return self.content.get(number, "")

    def delete(self, number: int) -> None:
        self.content.pop(number, None)

    def _check(self) -> None:
        if self.is_away:
            raise OSError("Connection refused")


class LeaseStage:
    """Drivers with one file system and one clock; `meanwhile` runs at each pause of a driver that waits."""

    def __init__(self) -> None:
        self.files, self.log, self.now_s = SharedFiles(), LogLines(), 0.0
        self.meanwhile: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.meanwhile()

    def driver(self) -> CheckpointLease:
        return CheckpointLease("hdfs://n/x", self.files, self.log, lambda: self.now_s, self.sleep)


@pytest.fixture
def stage() -> LeaseStage:
    return LeaseStage()


def test_the_first_driver_and_the_one_after_a_release_start_at_once(stage: LeaseStage) -> None:
    for _ in range(3):
        lease = stage.driver()
        lease.take()
        lease.check()
        lease.release()
    assert stage.now_s == 0.0
    assert not stage.log


def test_a_second_driver_ends_as_soon_as_the_first_one_renews(stage: LeaseStage) -> None:
    first = stage.driver()
    first.take()
    stage.meanwhile = first.renew
    with pytest.raises(CheckpointError, match=r"is in use by process \d+ on host .*: one txnwatch run per checkpoint"):
        stage.driver().take()
    assert stage.now_s <= RENEWED_S
    first.check()


def test_a_lease_that_nobody_renews_is_taken_over_after_a_pause(stage: LeaseStage) -> None:
    stage.driver().take()
    stage.driver().take()
    assert stage.now_s >= STALE_S
    assert "has not renewed its lease of the checkpoint for 30 s: taken over" in stage.log[0]


def test_a_driver_that_was_suspended_learns_that_another_one_has_taken_over(stage: LeaseStage) -> None:
    suspended, second = stage.driver(), stage.driver()
    suspended.take()
    second.take()
    with pytest.raises(LeaseNotRenewedError, match="the lease of the checkpoint could not be renewed for 3"):
        suspended.check()
    suspended.renew()
    with pytest.raises(CheckpointError, match="was taken over by process"):
        suspended.check()
    suspended.release()
    second.renew()
    second.check()


def test_of_two_that_take_over_at_once_one_ends(stage: LeaseStage) -> None:
    stage.driver().take()
    winner = stage.driver()
    waiting = stage.driver()
    stage.meanwhile = lambda: None

    def other_is_faster() -> None:
        winner._create(2)

    stage.files.before_create = other_is_faster
    with pytest.raises(CheckpointError, match="is in use by"):
        waiting.take()
    winner.renew()
    winner.check()


def test_a_driver_whose_look_is_outdated_ends(stage: LeaseStage) -> None:
    holder, slow = stage.driver(), stage.driver()
    holder.take()

    def renewed_often() -> None:
        for _ in range(6):
            holder.renew()

    stage.files.before_create = renewed_often
    with pytest.raises(CheckpointError, match="is in use by"):
        slow.take()
    holder.renew()
    holder.check()


def test_without_its_file_system_a_driver_stops_before_another_one_may_take_over(stage: LeaseStage) -> None:
    lease = stage.driver()
    lease.take()
    stage.files.is_away = True
    stage.now_s = STALE_S - RENEWED_S
    lease.renew()
    with pytest.raises(LeaseNotRenewedError, match="could not be renewed for 25 s"):
        lease.check()
    stage.files.is_away = False
    lease.renew()
    lease.check()


def test_a_file_system_that_is_away_at_the_start_is_one_line(stage: LeaseStage) -> None:
    stage.files.is_away = True
    with pytest.raises(CheckpointError, match="its lease cannot be read: Connection refused"):
        stage.driver().take()


def test_a_file_system_that_replaces_files_is_refused(stage: LeaseStage) -> None:
    stage.files.replaces = True
    with pytest.raises(CheckpointError, match="replaces a file although it exists"):
        stage.driver().take()


def test_a_request_that_the_client_repeats_is_no_loss(stage: LeaseStage) -> None:
    lease = stage.driver()
    lease.take()
    stage.files.before_create = lambda: stage.files.content.update({2: lease._me.to_json()})
    lease.renew()
    lease.check()


def test_the_files_stay_few_and_the_highest_number_never_comes_again(stage: LeaseStage) -> None:
    lease = stage.driver()
    lease.take()
    for _ in range(20):
        lease.renew()
    lease.release()
    assert sorted(stage.files.content) == [19, 20, 21, 22]
    stage.driver().take()
    assert max(stage.files.content) == 23


def test_a_file_without_content_is_held_until_it_is_stale(stage: LeaseStage) -> None:
    stage.files.content[7] = ""
    stage.driver().take()
    assert stage.now_s >= STALE_S
    assert max(stage.files.content) == 8


def test_the_lease_is_renewed_while_a_block_runs_and_released_after_it(stage: LeaseStage) -> None:
    lease = stage.driver()
    lease.take()
    with lease.kept(lambda: True):
        assert max(stage.files.content) == 1
    assert '"is_released": true' in stage.files.content[2]


def test_a_lease_is_not_released_while_a_step_that_was_left_behind_may_still_write(stage: LeaseStage) -> None:
    lease = stage.driver()
    lease.take()
    with lease.kept(lambda: False):
        pass
    assert list(stage.files.content) == [1]


def test_a_driver_that_waits_starts_as_soon_as_the_first_one_releases(stage: LeaseStage) -> None:
    first, second = stage.driver(), stage.driver()
    first.take()
    stage.meanwhile = first.release
    second.take()
    second.check()
    assert stage.now_s <= RENEWED_S
    assert not stage.log


def test_a_file_that_an_error_has_left_without_content_is_no_loss(stage: LeaseStage) -> None:
    lease = stage.driver()
    lease.take()
    stage.files.content[2] = ""
    lease.renew()
    lease.check()
    assert max(stage.files.content) == 3


def test_a_stale_driver_does_not_take_a_file_without_content_for_its_own(stage: LeaseStage) -> None:
    lease = stage.driver()
    lease.take()
    stage.files.content[2] = ""
    stage.now_s = STALE_S
    lease.renew()
    with pytest.raises(CheckpointError, match="was taken over by another driver"):
        lease.check()
    assert max(stage.files.content) == 2


def test_a_number_that_was_deleted_long_ago_does_not_count(stage: LeaseStage) -> None:
    slow, fast = stage.driver(), stage.driver()
    slow.take()

    def others_go_on() -> None:
        stage.now_s += STALE_S
        fast.take()
        for _ in range(5):
            fast.renew()
        for number in (2, 3, 4):
            stage.files.content.pop(number, None)

    stage.files.before_create = others_go_on
    slow.renew()
    with pytest.raises(CheckpointError, match="was taken over"):
        slow.check()
    fast.renew()
    fast.check()
