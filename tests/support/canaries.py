"""Secrets that a test gives to txnwatch, and the search for them in all that it shows and leaves behind."""

from __future__ import annotations

import io
import json
import os
import zipfile
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

_SHIFTS = 3  # base64 encodes three bytes together, so the same text has three forms


class Canaries:
    """Searches for secrets, as they are and in base64; binary keys also in hexadecimal.

    Each line of a PEM text is a secret of its own.
    """

    def __init__(self, *secrets: str | bytes) -> None:
        texts = [secret for secret in secrets if isinstance(secret, str)]
        lines = [line for text in texts for line in text.splitlines() if line and not line.startswith("-----")]
        binary = [secret for secret in secrets if isinstance(secret, bytes)]
        found = [*(line.encode() for line in lines), *binary]
        assert found, "there is a secret to search for"
        self.texts = frozenset(
            [
                *(secret.decode("latin-1") for secret in found),
                *(_base64(secret, shift) for secret in found for shift in range(_SHIFTS)),
                *(written for key in binary for written in (key.hex(), key.hex().upper())),
            ]
        )

    def in_text(self, text: str) -> list[str]:
        """The secrets that a text has."""
        return sorted(secret for secret in self.texts if secret in text)

    def in_files(self, *directories: Path) -> dict[str, list[str]]:
        """The secrets of each file below these directories that has some.

        The files in a ZIP file belong to it. Of a link, the text is searched, not the file that it leads to: the
        directory of Spark has links to 460 MB of installed jars.
        """
        found = {}
        for path in files_below(*directories):
            with suppress(FileNotFoundError):  # Spark removes old files meanwhile
                found[str(path)] = self.in_text(_content(path).decode("latin-1"))
        return {path: secrets for path, secrets in found.items() if secrets}

    def in_processes(self, pid: int) -> dict[str, list[str]]:
        """The secrets in the arguments of a process and its children, and in the environment of the children."""
        root, *children = family(pid)
        found = {f"{root.name()} {root.pid}": self.in_text(" ".join(root.cmdline()))}
        for child in children:
            with suppress(psutil.NoSuchProcess):  # it has ended meanwhile, or it is a zombie
                shown = " ".join(child.cmdline()) + json.dumps(child.environ())
                found[f"{child.name()} {child.pid}"] = self.in_text(shown)
        assert any(name.startswith("java ") for name in found)
        return {name: secrets for name, secrets in found.items() if secrets}


def _content(path: Path) -> bytes:
    """What is in a file, and in each file in it if it is a ZIP file: a checkpoint of RocksDB is one."""
    if path.is_symlink():
        return os.fsencode(path.readlink())
    data = path.read_bytes()
    with suppress(zipfile.BadZipFile):  # it is being written
        if data.startswith(b"PK"):
            with zipfile.ZipFile(io.BytesIO(data)) as packed:
                return data + b"".join(packed.read(name) for name in packed.namelist())
    return data


def _base64(data: bytes, shift: int) -> str:
    """The characters in base64 that do not depend on what is before and after the data."""
    encoded = b64encode(bytes(shift) + data).decode()
    return encoded[-(-shift * 8 // 6) : (shift + len(data)) * 8 // 6]


def files_below(*directories: Path) -> Iterator[Path]:
    """All files; a directory that is removed meanwhile has none."""
    for directory in directories:
        for root, _, names in os.walk(directory):
            yield from (Path(root) / name for name in names)


def family(pid: int) -> list[psutil.Process]:
    """A process and its children. One that has ended and is not reaped yet has no arguments and no sockets."""
    root = psutil.Process(pid)
    return [root, *(child for child in root.children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE)]
