"""The directory for temporary files of Spark's driver: removed at the end, or by the next start if the process died.

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
from contextlib import contextmanager, suppress
from pathlib import Path

from txnwatch.state.model.errors import ConfigError

_PREFIX = "txnwatch-spark-"
_SOCKET_NAME_BYTES = len("/.00000000-0000-0000-0000-000000000000.sock")
_LONGEST_SOCKET_BYTES = 103  # macOS; Linux has 107
_YOUNG_S = 60.0  # between the creation of the directory and its lock, the owner may lose the processor


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """A new directory below that of temporary files (`TMPDIR`); removes those whose owners have ended, too.

    Raises:
        ConfigError: no directory can be created.
    """
    _remove_abandoned(Path(tempfile.gettempdir()))
    try:
        directory = Path(tempfile.mkdtemp(prefix=_PREFIX))
        lock = _opened(directory)
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError as exc:
        raise ConfigError(f"TMPDIR: expected a directory for temporary files, found: {exc}") from exc
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


def has_room_for_sockets(directory: Path) -> bool:
    """Whether the paths of Spark's Unix sockets in it are short enough for every operating system."""
    return len(os.fsencode(directory)) + _SOCKET_NAME_BYTES <= _LONGEST_SOCKET_BYTES


def _remove_abandoned(parent: Path) -> None:
    for directory in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # it is another user's, or another process removes it at the same time
            if time.time() - directory.lstat().st_mtime > _YOUNG_S and _is_abandoned(directory):
                shutil.rmtree(directory, ignore_errors=True)


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
