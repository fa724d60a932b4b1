"""Hadoop's file system and a session with it, as far as the move of a checkpoint uses them, on a local directory."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from py4j.protocol import Py4JError

OFFSETS, COMMITS = "v1\n{}\n{}", "v1\n{}"


class Files:
    """Hadoop's file system as far as it is used, on a local directory; `left` calls change it, the next one fails."""

    def __init__(self, left: int = 1_000) -> None:
        self.left = left

    def _change(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Py4JError("the process ends here")

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def mkdirs(self, path: str) -> bool:
        self._change()
        Path(path).mkdir(parents=True, exist_ok=True)
        return True

    def delete(self, path: str, _: bool) -> bool:  # noqa: FBT001 - as in Hadoop
        self._change()
        if Path(path).is_file():
            Path(path).unlink()
        shutil.rmtree(path, ignore_errors=True)
        return True

    def rename(self, path: str, to: str) -> bool:
        self._change()
        assert not Path(to).exists(), "Hadoop would move it into the directory"
        Path(path).rename(to)
        return True

    def listStatus(self, path: str) -> list[Any]:  # noqa: N802 - Hadoop's name
        return [SimpleNamespace(getPath=lambda name=name: _Named(name)) for name in os.listdir(path)]  # noqa: PTH208

    def open(self, path: str) -> Any:
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


def a_checkpoint(directory: Path, name: str) -> Path:
    """A checkpoint as Spark and txnwatch leave it; its state is the name."""
    for part, file, text in (("commits", "7", COMMITS), ("offsets", "7", OFFSETS), ("state", "0", name)):
        (directory / part).mkdir(parents=True)
        (directory / part / file).write_text(text)
    (directory / "metadata").write_text('{"id": "7"}')
    (directory / "txnwatch-evidence.jsonl").write_text("[]\n")
    (directory / ".txnwatch-lock").touch()
    return directory
