"""Two small disks for one process: it runs in a mount namespace of its own, so no rights of root are needed."""

from __future__ import annotations

import contextlib
import errno
import io
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

_MEGABYTES = 48
_ENTER = ("unshare", "--user", "--map-root-user", "--mount")
_MOUNT = (
    f'for disk in "$1" "$2"; do mount -t tmpfs -o size={_MEGABYTES}m tmpfs "$disk" || exit 1; done; shift 2; exec "$@"'
)
_CHUNK = bytes(1 << 16)
_REFILLED_S = 0.02


def refusal(directory: Path) -> str | None:
    """Why this machine does not let a user mount a disk; None if it does."""
    if shutil.which("unshare") is None:
        return "unshare is not installed"
    directory.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(on_disks(directory, directory, ["true"]), capture_output=True, text=True, check=False)
    return f"a user namespace with a mount is not permitted: {done.stderr.strip()}" if done.returncode else None


def on_disks(first: Path, second: Path, command: Sequence[str]) -> list[str]:
    """The command, with a disk of its own at each of the two directories."""
    return [*_ENTER, "sh", "-c", _MOUNT, "sh", str(first), str(second), *command]


@contextlib.contextmanager
def full(pid: int, disk: Path) -> Iterator[None]:
    """The disk of a process is full while the block runs, also if the process deletes files of its own."""
    filler, is_over = Path(f"/proc/{pid}/root{disk}/filler"), threading.Event()

    def keep_full(file: io.FileIO) -> None:
        while not is_over.wait(_REFILLED_S):
            _fill(file)

    try:
        with filler.open("wb", buffering=0) as file:
            _fill(file)
            thread = threading.Thread(target=keep_full, args=(file,))
            thread.start()
            try:
                yield
            finally:
                is_over.set()
                thread.join()
    finally:
        filler.unlink(missing_ok=True)  # the process may have ended, and its disk with it


def _fill(file: io.FileIO) -> None:
    size = len(_CHUNK)
    while size:
        try:
            file.write(_CHUNK[:size])
        except OSError as exc:
            if exc.errno != errno.ENOSPC:
                raise
            size //= 2
