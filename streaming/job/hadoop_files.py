"""The files of a lease on the file system of a checkpoint, through the Hadoop client of the JVM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from txnwatch.streaming.job.failures import root_cause, text_of
from txnwatch.streaming.job.hadoop_file_system import JVM_ERRORS, file_system_of

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
