"""A tool of Kafka on a cluster, many runs in one start of a JVM; PySpark's Janino compiles the loop around it."""

from __future__ import annotations

import base64
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyspark

from txnwatch.streaming.job.jvm import java
from txnwatch_demo.embedded.jars import class_options, kafka_jars

SOURCE = Path(__file__).parent / "java" / "KafkaTools.java"
_FLAG = re.compile(r"^  (--[\w-]+)", re.MULTILINE)


@dataclass(frozen=True)
class Ran:
    """One run: its exit code and what it printed."""

    code: int
    text: str

    @property
    def headings(self) -> list[str]:
        """The headings of its table."""
        return _cells(self.text.splitlines()[0])

    @property
    def rows(self) -> list[dict[str, str]]:
        """The rows of its table."""
        rows = (_cells(line) for line in self.text.splitlines()[1:] if line.strip())
        return [dict(zip(self.headings, row, strict=True)) for row in rows]

    @property
    def flags(self) -> list[str]:
        """The flags that its help names."""
        return list(dict.fromkeys(flag for flag in _FLAG.findall(self.text)))


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("\t")[:-1]]


def run_tool(tool: str, bootstrap: str, runs: Sequence[Sequence[str]]) -> list[Ran]:
    """Runs a tool of `org.apache.kafka.tools` once for each list of arguments."""
    spark = Path(pyspark.__file__).parent / "jars"
    compiler = [jar for name in ("janino", "commons-compiler") for jar in spark.glob(f"{name}-*.jar")]
    command = [
        *(java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=OFF"),
        *(*class_options(kafka_jars(), *compiler), "org.codehaus.janino.SimpleCompiler"),
        *(str(SOURCE), SOURCE.stem, f"org.apache.kafka.tools.{tool}"),
    ]
    lines = "".join("\t".join(["--bootstrap-server", bootstrap, *arguments]) + "\n" for arguments in runs)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False, timeout=120.0)
    answers = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(answers) == len(runs), done.stderr[-2000:]
    return [Ran(int(code), base64.b64decode(text).decode()) for code, text in answers]
