"""Hadoop's file system and a session with it, as far as the states of a checkpoint use them, on a local directory."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from py4j.protocol import Py4JError

OFFSETS, COMMITS = "v1\n{}\n{}", "v1\n{}"


class Files:
    """Hadoop's file system as far as it is used, on a local directory; `left` deletions succeed, the next one fails."""

    def __init__(self, left: int = 1_000) -> None:
        self.left = left

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def delete(self, path: str, _: bool) -> bool:  # noqa: FBT001 - as in Hadoop
        self.left -= 1
        if self.left < 0:
            raise Py4JError("the process ends here")
        shutil.rmtree(path)
        return True

    def create(self, path: str, _: bool) -> Any:  # noqa: FBT001 - as in Hadoop
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        file = Path(path)
        file.touch()
        return SimpleNamespace(write=file.write_bytes, close=lambda: None)

    def listStatus(self, path: str) -> list[Any]:  # noqa: N802 - Hadoop's name
        return [SimpleNamespace(getPath=lambda name=name: _Named(name)) for name in os.listdir(path)]  # noqa: PTH208

    def open(self, path: str) -> Any:
        if not Path(path).is_file():
            raise Py4JError(f"java.io.FileNotFoundException: File {path} does not exist")
        content = Path(path).read_bytes()
        return SimpleNamespace(readAllBytes=lambda: content, close=lambda: None)


class _Named(NamedTuple):
    name: str

    def getName(self) -> str:  # noqa: N802 - Hadoop's name
        return self.name


def session(files: Files) -> Any:
    """A session whose JVM has this file system; a path of Hadoop is a text here."""

    class HadoopPath(str):
        __slots__ = ()

        def getFileSystem(self, _: object) -> Files:  # noqa: N802 - Hadoop's name
            return files

    jvm = SimpleNamespace()
    jvm.org = jvm.apache = jvm.hadoop = jvm.fs = jvm
    jvm.Path = HadoopPath
    state = SimpleNamespace(newHadoopConf=lambda: None)
    return SimpleNamespace(
        sparkContext=SimpleNamespace(_jvm=jvm), _jsparkSession=SimpleNamespace(sessionState=lambda: state)
    )


def a_state(directory: Path, name: str) -> Path:
    """A state as Spark leaves it; its content is the name. The directory may exist."""
    for part, file, text in (("commits", "7", COMMITS), ("offsets", "7", OFFSETS), ("state", "0", name)):
        (directory / part).mkdir(parents=True, exist_ok=True)
        (directory / part / file).write_text(text)
    (directory / "metadata").write_text('{"id": "7"}')
    return directory
