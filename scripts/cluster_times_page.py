"""The page of the times on a Spark cluster, from docs/cluster-times.json: the results of `make cluster-times`."""

from __future__ import annotations

import json
from pathlib import Path

from page_tables import times_page

_ABOUT = """\
`make cluster-times` starts Kafka, HDFS, a standalone Spark master and two workers with one core each and without a
shared directory, kills an executor and the driver, and writes this page (`tests/e2e/test_spark_cluster.py`). All the
time, each of 500 transactional producers commits a transaction and begins the next one, once a second or as often as
the machine permits. The checkpoint is on HDFS. All servers share one machine, so the start of each JVM
takes longer than on a cluster. [Spark cluster](spark-cluster.md) describes the steps."""


def cluster_times_page(root: Path, generated: str) -> str:
    """docs/cluster-times.md."""
    rows = json.loads((root / "docs" / "cluster-times.json").read_text())
    times = {step.partition(". ")[2]: f"{row['s']:.1f} s" for step, row in sorted(rows.items())}
    return times_page("Times on a Spark cluster", generated, _ABOUT, "step", times, rows.values())
