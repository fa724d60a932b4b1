"""One topic as a batch query: Spark's own Kafka source, then txnwatch's, in one session; prints both medians."""

from __future__ import annotations

import os
import statistics
import sys
from pathlib import Path

from bench.scan_ways import spark_source
from txnwatch.embedded.jars import jars
from txnwatch.spark_output import output_to
from txnwatch.streaming.job.query import spark_session

ROUNDS = 3
KAFKA_SOURCE = "4.2.0"  # Maven Central has none of 4.3 yet; this one runs in it


def main(bootstrap: str, topic: str, directory: Path) -> None:
    """Each way once before it counts."""
    directory.mkdir(parents=True)
    modules = (("org.apache.spark", "spark-sql-kafka-0-10_2.13", KAFKA_SOURCE),)
    kafka_source = jars(f"spark-kafka-{KAFKA_SOURCE}", modules)
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {','.join(map(str, sorted(kafka_source.glob('*.jar'))))} pyspark-shell"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with output_to(directory / "spark.log") as output:
        session = spark_session(str(directory), master="local[2]", state_partitions=1, output=output)
    asked = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    for name in ("kafka", "kafka-transactions"):
        found = [spark_source(session, name, asked) for _ in range(ROUNDS + 1)][1:]
        print(statistics.median(spent.wall_s for spent in found))
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
