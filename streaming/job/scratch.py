"""Directories for temporary files of one process: removed at its end, or by a later start if the process died.

Spark removes its temporary files when the JVM ends in order. A JVM that is killed leaves shuffle files, copies of the
package and unpacked native libraries behind.

The owner holds a lock on the directory itself: systemd-tmpfiles leaves locked directories alone, however old they are.
filelock cannot lock a directory: it creates a regular file and opens it for writing. systemd-tmpfiles would not see the
lock of a file inside, and a file beside the directory would stay behind after a kill.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from txnwatch.state.model.errors import ConfigError

SCRATCH: Final = "txnwatch-spark-"
_YOUNG_S = 60.0  # between the creation of the directory and its lock, the owner may lose the processor


class OwnDirectory:
    """A new directory below that of temporary files (`TMPDIR`).

    It also removes the directories with the same prefix whose owners have ended. With `keeps_last` the newest of them
    stays: somebody may have to read it.

    Attributes:
        path: the directory.

    Raises:
        ConfigError: no directory can be created.
    """

    def __init__(self, prefix: str, *, keeps_last: bool = False) -> None:
        abandoned = sorted(_abandoned(Path(tempfile.gettempdir()), prefix))
        for _, directory in abandoned[:-1] if keeps_last else abandoned:
            shutil.rmtree(directory, ignore_errors=True)
        try:
            self.path = Path(tempfile.mkdtemp(prefix=prefix))
            self._lock = _opened(self.path)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        except OSError as exc:
            raise ConfigError(f"TMPDIR: expected a directory for temporary files, found: {exc}") from exc

    def remove(self) -> None:
        """Removes the directory with everything in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _abandoned(parent: Path, prefix: str) -> Iterator[tuple[float, Path]]:
    """The directories whose owners have ended, each with the time of its last change."""
    for directory in parent.glob(f"{prefix}*"):
        with suppress(OSError):  # it is another user's, or another process removes it at the same time
            changed_s = directory.lstat().st_mtime
            if time.time() - changed_s > _YOUNG_S and _is_abandoned(directory):
                yield changed_s, directory


def _is_abandoned(directory: Path) -> bool:
    """Whether it is a directory of this user whose owner has ended; any user may create a file with such a name."""
    lock = _opened(directory)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(lock).st_uid == os.getuid()
    except BlockingIOError:
        return False
    finally:
        os.close(lock)


def _opened(directory: Path) -> int:
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
