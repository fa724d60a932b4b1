"""Kafka's own ProducerStateManager as an oracle, in a JVM of its own and without a broker.

Law: nothing of txnwatch is asked here. Commands and answers are those of java/ProducerStateOracle.java, which PySpark's
Janino compiles as it starts: Java without a compiler is enough, as it is for everything else.
"""

from __future__ import annotations

import io
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

import pyspark

from txnwatch.streaming.job.jvm import java
from txnwatch_demo.embedded.jars import class_options, kafka_jars

SOURCE = Path(__file__).parent / "java" / "ProducerStateOracle.java"
REPLICATION, COORDINATOR, CLIENT = range(3)
_NEW, _FLUSH = b"N", b"F"
_APPEND = struct.Struct(">cbbii")
_TRUNCATE = struct.Struct(">ci")
_SIZE, _NAME = struct.Struct(">i"), struct.Struct(">H")
_STATE = struct.Struct(">qi")
_OPEN = struct.Struct(">qhq")
_BATCH = struct.Struct(">qq")

SNAPSHOT, RESTART, LOSE, EXPIRE = b"S", b"B", b"L", b"E"


class Held(NamedTuple):
    """What one ProducerStateManager holds: {producer id: (first offset, epoch)} and its first unstable offset."""

    open: dict[int, tuple[int, int]]
    first_unstable: int | None


class OracleAnswer(NamedTuple):
    """After one command: why the leader refused (empty if it did not), its last batch, and what is held open."""

    refusal: str
    base_offset: int
    end: int
    leader: Held
    follower: Held


def append(encoded: bytes, *, origin: int, transaction_version: int = 0, gap: int = 0) -> bytes:
    """The leader is asked to append a batch; `gap` offsets before it are missing, as after compaction."""
    return _APPEND.pack(b"A", origin, transaction_version, gap, len(encoded)) + encoded


def truncate(batches: int) -> bytes:
    """The last so many batches are cut off."""
    return _TRUNCATE.pack(b"T", batches)


class ProducerStateOracle:
    """The JVM; a context manager."""

    def __init__(self, directory: Path) -> None:
        self._errors = directory / "stderr"
        spark = Path(pyspark.__file__).parent / "jars"
        compiler = [jar for name in ("janino", "commons-compiler") for jar in spark.glob(f"{name}-*.jar")]
        assert len(compiler) == 2, f"PySpark's Janino is not in {spark}"
        command = [
            *(java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=OFF"),
            *(*class_options(kafka_jars(), *compiler), "org.codehaus.janino.SimpleCompiler"),
            *(str(SOURCE), SOURCE.stem, str(directory)),
        ]
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the JVM."""
        with self._process as process:  # closes the pipes; the end of its input ends it
            process.stdin.close() if process.stdin is not None else None

    def run(self, commands: Sequence[bytes]) -> list[OracleAnswer]:
        """One answer for each command, on a log that begins empty."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"".join([_NEW, *commands, _FLUSH]))
            self._process.stdin.flush()
        except BrokenPipeError:
            self._has_ended()
        body = self._read(_SIZE.unpack(self._read(_SIZE.size))[0])
        answers = _decoded(io.BytesIO(body), len(commands) + 1)
        return answers[1:]

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None
        content = self._process.stdout.read(size)
        if len(content) < size:
            self._has_ended()
        return content

    def _has_ended(self) -> None:
        raise AssertionError(f"Kafka's side has ended: {self._errors.read_text()[-2000:]}")


def _decoded(body: io.BytesIO, count: int) -> list[OracleAnswer]:
    def take(form: struct.Struct) -> tuple[int, ...]:
        return form.unpack(body.read(form.size))

    def held() -> Held:
        unstable, size = take(_STATE)
        rows = [take(_OPEN) for _ in range(size)]
        return Held({row[0]: (row[2], row[1]) for row in rows}, unstable if unstable >= 0 else None)

    answers = []
    for _ in range(count):
        refusal = body.read(take(_NAME)[0]).decode()
        answers.append(OracleAnswer(refusal, *take(_BATCH), held(), held()))
    assert not body.read(1), "more answers than commands"
    return answers
