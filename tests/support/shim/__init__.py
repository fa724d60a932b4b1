"""A library that is preloaded into a process, and changes its clock and the speed of its disk while it runs."""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

_SOURCE = Path(__file__).with_name("shim.c")
_NUMBERS = struct.Struct("=qq")


def compiler() -> str | None:
    """A C compiler; None if this machine has none."""
    return shutil.which("cc") or shutil.which("gcc")


class Shim:
    """The clock and the disk of the processes that start inside `preloaded`."""

    def __init__(self, directory: Path, slow_below: Path | None = None) -> None:
        """Compiles the library; only changes of files below `slow_below` can be slow."""
        directory.mkdir(parents=True, exist_ok=True)
        self._library, control = directory / "shim.so", directory / "control"
        command = [str(compiler()), "-shared", "-fPIC", "-O2", "-o", str(self._library), str(_SOURCE), "-ldl"]
        subprocess.run(command, check=True)
        control.write_bytes(_NUMBERS.pack(0, 0))
        with control.open("r+b") as file:
            self._numbers = mmap.mmap(file.fileno(), _NUMBERS.size)
        self._environ = {"LD_PRELOAD": str(self._library), "SHIM_CONTROL": str(control)}
        if slow_below is not None:
            self._environ["SHIM_SLOW_BELOW"] = str(slow_below)

    @contextlib.contextmanager
    def preloaded(self) -> Iterator[None]:
        """Processes that start here, and all that they start, have the library."""
        before = {name: os.environ.get(name) for name in self._environ}
        os.environ.update(self._environ)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name)
                else:
                    os.environ[name] = value

    def set(self, *, offset_ms: int = 0, delay_ms: int = 0) -> None:
        """What is added to the clock, and how long each change of a file takes."""
        self._numbers[:] = _NUMBERS.pack(offset_ms, delay_ms)
