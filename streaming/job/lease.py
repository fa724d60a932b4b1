"""A lease for a checkpoint on a shared file system: one driver at a time, also from another host.

The lease is a directory of numbered files. A driver that wants it, or renews it, creates the file with the next number,
and the file system lets only one driver create it. So no clocks are compared and no file is overwritten. A driver that
finds the highest number unchanged for `STALE_S` of its own clock takes over; the number of a living driver rises every
`RENEWED_S`. A driver that cannot create its next number has lost the lease and must not begin a micro-batch.

A release is a file too: a number never comes again, because its file may be deleted only when a higher one exists.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Protocol

from txnwatch.state.model.errors import CheckpointError
from txnwatch.state.model.ports import Log
from txnwatch.state.text.outside_json import read_json

RENEWED_S, STALE_S = 5.0, 30.0
_USABLE_S = 20.0  # less than STALE_S: a driver that could not renew stops before another one takes over
_RELEASED_S = 0.5  # a stop does not wait longer for a file system
_KEPT = 3  # a slow driver must not create a number again


class LeaseFiles(Protocol):
    """The files of a lease."""

    def numbers(self) -> list[int]:
        """The numbers of all files."""

    def create(self, number: int, content: str) -> bool:
        """Creates a file; returns False if it exists already. An error is OSError."""

    def read(self, number: int) -> str:
        """The content; empty if it cannot be read."""

    def delete(self, number: int) -> None:
        """Deletes a file; ignores errors."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has created a file of the lease; `token` differs between two processes with the same host name and id."""

    host: str
    pid: int
    token: str
    is_released: bool = False

    def __str__(self) -> str:
        return f"process {self.pid} on host {self.host}"

    def to_json(self) -> str:
        """The content of the file."""
        return json.dumps(asdict(self))


def holder_of(content: str) -> Holder | None:
    """The holder that a file names; None if its driver ended before it was written."""
    try:
        found = read_json(content)
        return Holder(str(found["host"]), int(found["pid"]), str(found["token"]), bool(found["is_released"]))
    except (ValueError, KeyError, TypeError):
        return None


class CheckpointLease:
    """The lease of one driver."""

    def __init__(
        self,
        checkpoint: str,
        files: LeaseFiles,
        log: Log,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._checkpoint, self._files, self._log = checkpoint, files, log
        self._clock, self._sleep = clock, sleep
        self._me = Holder(socket.gethostname(), os.getpid(), secrets.token_hex(8))
        self._number = 0
        self._renewed_s = 0.0
        self._lost_to: str | None = None

    def take(self) -> None:
        """Takes the lease; if another driver seems to have ended without a release, waits until that is certain.

        Raises:
            CheckpointError: another driver holds it, or the file system refuses it.
        """
        begin_s, seen = self._clock(), self._highest()
        while seen and self._clock() - begin_s < STALE_S:
            holder = holder_of(self._read(seen))
            if holder is not None and holder.is_released:
                break
            self._sleep(RENEWED_S / 5)
            if (now := self._highest()) != seen:
                raise self._in_use(now)
        else:
            if seen:
                left = holder_of(self._read(seen)) or "another driver"
                self._log.warning(f"{left} has not renewed its lease of the checkpoint for {STALE_S:.0f} s: taken over")
        if not self._create(seen + 1) or self._highest() != seen + 1:
            raise self._in_use(self._highest())
        self._tidy()

    def renew(self) -> None:
        """Creates the next number; an error of the file system is tried again at the next call."""
        try:
            if self._lost_to is None and not self._create(self._number + 1):
                self._lost_to = str(holder_of(self._read(self._number + 1)) or "another driver")
        except CheckpointError:
            return
        self._tidy()

    def check(self) -> None:
        """Checks that this driver may begin a micro-batch.

        Raises:
            CheckpointError: another driver has taken over.
            OSError: the lease could not be renewed for so long that another driver may take over soon.
        """
        if self._lost_to is not None:
            raise CheckpointError(
                f"--checkpoint {self._checkpoint} was taken over by {self._lost_to}, because this process did not "
                f"renew its lease for {STALE_S:.0f} s"
            )
        if (age_s := self._clock() - self._renewed_s) > _USABLE_S:
            raise OSError(f"Timeout: the lease of the checkpoint could not be renewed for {age_s:.0f} s")

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Renews the lease in a thread while the block runs, and releases it."""
        ends = threading.Event()

        def keep() -> None:
            while not ends.wait(RENEWED_S):
                self.renew()
            self.release()

        thread = threading.Thread(target=keep, name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join(_RELEASED_S)

    def release(self) -> None:
        """Lets the next driver start without a pause; an error is ignored, because the lease ends anyway."""
        if self._lost_to is None:
            with contextlib.suppress(OSError):
                self._files.create(self._number + 1, replace(self._me, is_released=True).to_json())

    def _create(self, number: int) -> bool:
        now_s = self._clock()  # before the request: the file may exist from this moment on
        try:
            is_mine = self._files.create(number, self._me.to_json())
        except OSError as exc:
            raise CheckpointError(f"--checkpoint {self._checkpoint}: its lease cannot be written: {exc}") from exc
        if not is_mine and holder_of(self._read(number)) == self._me:
            is_mine = True  # the client has repeated a request whose answer was lost
        if is_mine:
            self._number, self._renewed_s = number, now_s
        return is_mine

    def _highest(self) -> int:
        try:
            return max(self._files.numbers(), default=0)
        except OSError as exc:
            raise CheckpointError(f"--checkpoint {self._checkpoint}: its lease cannot be read: {exc}") from exc

    def _read(self, number: int) -> str:
        return self._files.read(number)

    def _tidy(self) -> None:
        try:
            numbers = self._files.numbers()
        except OSError:
            return
        for number in numbers:
            if number <= self._number - _KEPT:
                self._files.delete(number)

    def _in_use(self, number: int) -> CheckpointError:
        who = holder_of(self._read(number)) or "another driver"
        return CheckpointError(f"--checkpoint {self._checkpoint} is in use by {who}: one txnwatch run per checkpoint")
