"""Runs the lines for an administrator as they are printed: in bash, with the tools of an embedded Kafka."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from zipfile import ZipFile

from txnwatch.state.text import shell_line
from txnwatch.streaming.job.jvm import java
from txnwatch_demo.embedded.jars import KAFKA_VERSION, class_options, kafka_jars
from txnwatch_demo.embedded.real_servers import SHORT_LIVED

_TOOLS = {  # their classes; the first that the version has
    "kafka-configs.sh": ("org.apache.kafka.tools.ConfigCommand", "kafka.admin.ConfigCommand"),
    "kafka-features.sh": ("org.apache.kafka.tools.FeatureCommand", "kafka.admin.FeatureCommand"),
    "kafka-acls.sh": ("org.apache.kafka.tools.AclCommand", "kafka.admin.AclCommand"),
    "kafka-reassign-partitions.sh": (
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
        "kafka.admin.ReassignPartitionsCommand",
    ),
}


class ShellTools:
    """A directory with the tools of a version of Kafka, for the PATH of bash."""

    def __init__(self, directory: Path, version: str = KAFKA_VERSION) -> None:
        """Writes the tools."""
        self._directory = directory / "bin"
        self._directory.mkdir()
        jars = kafka_jars(version)
        known = {name for jar in jars.glob("*.jar") for name in ZipFile(jar).namelist()}
        for name, mains in _TOOLS.items():
            main = next(one for one in mains if f"{one.replace('.', '/')}.class" in known)
            command = shell_line([java(), *SHORT_LIVED, *class_options(jars), main])
            tool = self._directory / name
            tool.write_text(f'#!/bin/bash\nexec {command} "$@"\n')
            tool.chmod(0o755)

    def run(self, line: str) -> str:
        """Runs a line; its output."""
        path = f"{self._directory}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", line],
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout
