"""A lease for a checkpoint on a shared file system: one driver at a time, also from another host.

Apart: only a checkpoint on a shared file system has a lease, and app.py would have more than 700 lines with it.

The lease is a directory of numbered files. A driver that wants it, or renews it, creates the file with the next number,
and the file system lets only one driver create it. So no clocks are compared and no file is overwritten. A driver that
finds the highest number unchanged for `STALE_S` of its own clock takes over; the number of a living driver rises every
`RENEWED_S`. A driver that cannot create its next number has lost the lease and must not begin a micro-batch.

A number counts only if there is no higher one. A slow driver can create a number whose file was deleted long ago, and
it looks for higher numbers afterwards. A release is a file too, so that the highest number never comes again.

A file that names no holder is held until it is stale, because its driver may still write it. The clock goes on while
the machine is suspended.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol, TypeVar

from pyspark.sql import SparkSession

from txnwatch.state.model.errors import CheckpointError, LeaseNotRenewedError
from txnwatch.state.model.ports import Log
from txnwatch.state.text import read_json
from txnwatch.streaming.job.failures import Failure, failure_of, root_cause, text_of
from txnwatch.streaming.job.spark_conf import local_directory
from txnwatch.streaming.job.state_directory import JVM_ERRORS, file_system_of

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
        fields = read_json(content)
        return Holder(str(fields["host"]), int(fields["pid"]), str(fields["token"]), bool(fields["is_released"]))
    except (ValueError, KeyError, TypeError):
        return None


def _clock_s() -> float:
    """Seconds since the machine was started, with the time for which it was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


class CheckpointLease:
    """The lease of one driver."""

    def __init__(
        self,
        checkpoint: str,
        files: LeaseFiles,
        log: Log,
        clock: Callable[[], float] = _clock_s,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._checkpoint, self._files, self._log = checkpoint, files, log
        self._clock, self._sleep = clock, sleep
        self._me = Holder(socket.gethostname(), os.getpid(), secrets.token_hex(8))
        self._number = 0
        self._renewed_s = 0.0
        self._attempt = (0, 0.0)
        self._lost_to: str | None = None

    def take(self) -> None:
        """Takes the lease; if another driver seems to have ended without a release, waits until that is certain.

        Raises:
            CheckpointError: another driver holds it, or the file system refuses it.
        """
        seen = self._highest()
        begin_s = self._clock()  # after the look: a slow file system may answer with a file that is new
        while seen and not self._is_released(seen):
            if self._clock() - begin_s >= STALE_S:
                left = holder_of(self._files.read(seen)) or "another driver"
                self._log.warning(f"{left} has not renewed its lease of the checkpoint for {STALE_S:.0f} s: taken over")
                break
            self._sleep(RENEWED_S / 5)
            if (now := self._highest()) != seen and not self._is_released(now):
                raise self._in_use(now)
            seen = now
        if not self._create(seen + 1):
            raise self._in_use(self._highest())
        self._check_that_no_file_is_replaced()
        self._tidy()

    def _check_that_no_file_is_replaced(self) -> None:
        """Creates this driver's file again: some object stores ignore that a file must not exist."""
        try:
            is_replaced = self._files.create(self._number, self._me.to_json())
        except OSError:
            return  # not an answer of the store
        if is_replaced and self._highest() == self._number:
            raise CheckpointError(
                f"--checkpoint {self._checkpoint}: its file system replaces a file although it exists, so it cannot "
                "keep a second driver away; expected HDFS, or a store with conditional writes"
            )

    def renew(self) -> None:
        """Creates the next number; an error of the file system is tried again at the next call."""
        try:
            if self._lost_to is None and not self._create_next():
                self._lost_to = str(holder_of(self._files.read(self._highest())) or "another driver")
        except CheckpointError:
            return
        self._tidy()

    def _create_next(self) -> bool:
        """Creates the next number, or the one after a file of this driver that an error has left without its content.

        Before the lease is stale, no other driver creates a file.
        """
        number = self._number + 1
        is_mine = self._create(number)
        if is_mine or self._age_s() > _USABLE_S or self._highest() > number:
            return is_mine
        return holder_of(self._files.read(number)) is None and self._create(number + 1)

    def check(self) -> None:
        """Checks that this driver may begin a micro-batch.

        Raises:
            CheckpointError: another driver has taken over.
            LeaseNotRenewedError: it could not be renewed for so long that another driver may take over soon.
        """
        if self._lost_to is not None:
            raise CheckpointError(
                f"--checkpoint {self._checkpoint} was taken over by {self._lost_to}, because this process did not "
                f"renew its lease for {STALE_S:.0f} s"
            )
        if (age_s := self._age_s()) > _USABLE_S:
            raise LeaseNotRenewedError(f"the lease of the checkpoint could not be renewed for {age_s:.0f} s")

    @contextmanager
    def kept(self, has_ended: Callable[[], bool]) -> Iterator[None]:
        """Renews the lease in a thread while the block runs, and releases it if the work has ended by then.

        What was left behind may still write to the checkpoint. Then the next driver waits until the lease is stale.
        """
        ends = threading.Event()

        def keep() -> None:
            while not ends.wait(RENEWED_S):
                self.renew()
            if has_ended():
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
        if self._attempt[0] != number:
            self._attempt = number, self._clock()  # the file may exist from the first attempt on
        try:
            is_mine = self._files.create(number, self._me.to_json())
        except OSError as exc:
            raise CheckpointError(f"--checkpoint {self._checkpoint}: its lease cannot be written: {exc}") from exc
        if not is_mine and holder_of(self._files.read(number)) == self._me:
            is_mine = True  # the client has repeated a request whose answer was lost
        if not is_mine or self._highest() != number:
            return False
        self._number, self._renewed_s = self._attempt
        return True

    def _age_s(self) -> float:
        return self._clock() - self._renewed_s

    def _is_released(self, number: int) -> bool:
        holder = holder_of(self._files.read(number))
        return holder is not None and holder.is_released

    def _highest(self) -> int:
        try:
            return max(self._files.numbers(), default=0)
        except OSError as exc:
            raise CheckpointError(f"--checkpoint {self._checkpoint}: its lease cannot be read: {exc}") from exc

    def _tidy(self) -> None:
        try:
            numbers = self._files.numbers()
        except OSError:
            return
        for number in numbers:
            if number <= self._number - _KEPT:
                self._files.delete(number)

    def _in_use(self, number: int) -> CheckpointError:
        who = holder_of(self._files.read(number)) or "another driver"
        return CheckpointError(f"--checkpoint {self._checkpoint} is in use by {who}: one txnwatch run per checkpoint")


# The files of a lease on the file system of a checkpoint, through the Hadoop client of the JVM.

_DIRECTORY = "txnwatch-lease"
# S3A throws the second one if the store refuses to replace an object.
_EXISTS = ("FileAlreadyExistsException", "RemoteFileChangedException")
# Without it S3A looks whether the object exists, and later replaces it.
_IF_ABSENT = "fs.option.create.conditional.overwrite"
_T = TypeVar("_T")


class HadoopFiles:
    """A directory inside the checkpoint.

    Raises:
        OSError: the file system cannot be reached.
    """

    def __init__(self, session: SparkSession, checkpoint: str) -> None:
        self._root = f"{checkpoint.rstrip('/')}/{_DIRECTORY}"
        self._path, self._files = self._try(lambda: file_system_of(session, self._root))

    def numbers(self) -> list[int]:
        """The numbers of all files."""
        return self._try(self._numbers)

    def _numbers(self) -> list[int]:
        root = self._path(self._root)
        if not self._files.exists(root):
            return []
        names = [str(status.getPath().getName()) for status in self._files.listStatus(root)]
        return [int(name) for name in names if name.isascii() and name.isdigit()]

    def create(self, number: int, content: str) -> bool:
        """Creates a file with this content; returns False if it exists already."""
        try:
            out = self._new_file(number)
        except JVM_ERRORS as exc:
            text = text_of(exc)
            if _exists(text) or self._has(number):
                return False
            raise OSError(root_cause(text)) from exc
        try:
            out.write(bytearray(content.encode()))
            out.close()
        except JVM_ERRORS as exc:
            text = text_of(exc)
            if _exists(text):  # an object store creates the file when it is closed
                return False
            raise OSError(root_cause(text)) from exc
        return True

    def _new_file(self, number: int) -> Any:  # noqa: ANN401 - a stream of the JVM
        builder = self._files.createFile(self._at(number)).overwrite(False).recursive()
        needs_option = self._root.startswith("s3a:")  # other file systems compare and create in one step, or ignore it
        return (builder.must if needs_option else builder.opt)(_IF_ABSENT, True).build()

    def read(self, number: int) -> str:
        """The content; empty if it cannot be read, and only a part if it is being written."""
        try:
            stream = self._files.open(self._at(number))
            try:
                return bytes(stream.readAllBytes()).decode(errors="replace")
            finally:
                stream.close()
        except JVM_ERRORS:
            return ""

    def delete(self, number: int) -> None:
        """Deletes a file; ignores errors."""
        try:
            self._files.delete(self._at(number), False)
        except JVM_ERRORS:
            return

    def _has(self, number: int) -> bool:
        return bool(self._try(lambda: self._files.exists(self._at(number))))

    def _at(self, number: int) -> Any:  # noqa: ANN401 - a Path of the JVM
        return self._path(f"{self._root}/{number:012d}")

    def _try(self, call: Callable[[], _T]) -> _T:
        try:
            return call()
        except JVM_ERRORS as exc:
            raise OSError(root_cause(text_of(exc))) from exc


def _exists(error: str) -> bool:
    return any(name in error for name in _EXISTS)


# Takes the lease of a checkpoint that is not local, and reports a file system that cannot be reached in one line.

_ADVICE = "the file system of --checkpoint cannot be used: check its address"


def take_lease(session: SparkSession, checkpoint: str, log: Log, where: str) -> CheckpointLease | None:
    """The lease of this process; None for a local checkpoint, which has a lock. `where` names Spark's output.

    Raises:
        CheckpointError: another driver holds it.
        SparkError: the file system cannot be used.
    """
    if local_directory(checkpoint) is not None:
        return None
    try:
        files = HadoopFiles(session, checkpoint)
        files.numbers()
    except OSError as exc:
        cause = exc.__cause__
        failure = failure_of(text_of(cause if isinstance(cause, JVM_ERRORS) else exc))
        raise Failure(failure.cause, failure.advice or _ADVICE).error(where) from exc
    lease = CheckpointLease(checkpoint, files, log)
    lease.take()
    return lease
