"""Topics as batch queries: Spark's own Kafka source, then txnwatch's, in one session; prints the medians of each."""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.scan_ways import spark_source
from txnwatch.spark_start import SparkStart
from txnwatch.streaming.job.spark_conf import SessionSettings
from txnwatch_demo.embedded.jars import jars

ROUNDS = 3
SOURCES = ("kafka", "kafka-transactions")
KAFKA_SOURCE = "4.2.0"  # Maven Central has none of 4.3 yet; this one runs in it


def main(topics: Sequence[tuple[str, str, str | None]], directory: Path) -> None:
    """Topics are listener, name, and the authority of a listener with TLS. Each source once before it counts."""
    directory.mkdir(parents=True)
    modules = (("org.apache.spark", "spark-sql-kafka-0-10_2.13", KAFKA_SOURCE),)
    kafka_source = jars(f"spark-kafka-{KAFKA_SOURCE}", modules)
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {','.join(map(str, sorted(kafka_source.glob('*.jar'))))} pyspark-shell"
    session = SparkStart(SessionSettings(str(directory), "local[2]", directory)).session(directory / "spark.log")
    for name in SOURCES:
        spark_source(session, name, _options(*topics[0]))
    print(json.dumps([[_medians(session, name, _options(*topic)) for name in SOURCES] for topic in topics]))
    session.stop()


def _medians(session: Any, name: str, options: dict[str, str]) -> tuple[float, float]:
    """Wall and CPU seconds."""
    found = [spark_source(session, name, options) for _ in range(ROUNDS)]
    return statistics.median(one.wall_s for one in found), statistics.median(one.cpu_s for one in found)


def _options(listener: str, topic: str, ca_file: str | None) -> dict[str, str]:
    options = {"kafka.bootstrap.servers": listener, "subscribe": topic, "startingOffsets": "earliest"}
    if ca_file:
        tls = {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": ca_file}
        options |= {f"kafka.{name}": value for name, value in tls.items()}
    return options


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), Path(sys.argv[2]))
