"""What Spark's Python processes import to plan a query: a start waits for one after the other."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from txnwatch.state.model.errors import ConfigError
from txnwatch.streaming.source.datasource import PACKED_DDL, TransactionsDataSource
from txnwatch.streaming.source.rows import PACKED_SCHEMA

# What each of them does with txnwatch.
CREATE_SOURCE = "source = TransactionsDataSource(OPTIONS); source.schema(); dumps(source)"
CREATE_READER = "reader = TransactionsDataSource(OPTIONS).streamReader(None); dumps(reader.read); dumps(reader)"
DECLARE_STATE = "BucketProcessor(DetectionPolicy()).init(Handle())"
_SOURCE = "from txnwatch.streaming.source.datasource import TransactionsDataSource"
_OPERATOR = """
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.streaming.job.operator import BucketProcessor

class Handle:
    getValueState = getMapState = print
"""
SCRIPT = """
import json, sys
from pyspark.cloudpickle import dumps
OPTIONS = {"kafka.bootstrap.servers": "broker:9092", "subscribePattern": ".*", "packed": "true"}
"""
OPTIONS = {"kafka.bootstrap.servers": "broker:9092", "subscribePattern": ".*"}
ONLY_TO_READ = {"kafka", "cryptography", "numpy", "pyarrow", "pandas", "urllib.request", "importlib.metadata"}


@pytest.mark.parametrize(
    ("imports", "work"),
    [(_SOURCE, CREATE_SOURCE), (_SOURCE, CREATE_READER), (_OPERATOR, DECLARE_STATE)],
    ids=["source", "reader", "operator"],
)
def test_a_process_that_plans_imports_nothing_to_read(imports: str, work: str) -> None:
    code = f"{SCRIPT}\n{imports}\n{work}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = set(json.loads(done.stdout.splitlines()[-1]))
    assert "txnwatch" in found
    assert not found & ONLY_TO_READ
    assert not {name for name in found if name.startswith(("txnwatch.streaming.client", "txnwatch.streaming.log"))}


def test_the_driver_imports_nothing_that_only_tasks_need() -> None:
    found = imported_with("txnwatch.cli.watching")
    assert "txnwatch.streaming.job.query" in found
    assert not found & {"numpy", "pyarrow", "pandas", "txnwatch.streaming.source.tasks"}


def test_the_jvm_begins_before_the_driver_imports_what_only_the_watch_needs() -> None:
    found = imported_with("txnwatch.cli.watch_process")
    assert "txnwatch.streaming.job.jvm" in found
    only_later = {"pyspark", "py4j", "kafka", "cryptography", "confluent_kafka", "starlette", "redis", "txnwatch.app"}
    assert not found & only_later


A_CALL = """
import json, sys
from py4j.protocol import INPUT_CONVERTER
from txnwatch.streaming.job.query import pass_no_numpy
pass_no_numpy()
assert INPUT_CONVERTER, "PySpark has registered others"
assert not [converter for converter in INPUT_CONVERTER if converter.can_convert("spark.master")]
print(json.dumps(sorted(sys.modules)))
"""


def test_a_call_of_the_jvm_imports_nothing_that_only_tasks_need() -> None:
    done = subprocess.run([sys.executable, "-c", A_CALL], capture_output=True, text=True, check=True)
    assert not set(json.loads(done.stdout)) & {"numpy", "pyarrow", "pandas"}


def imported_with(module: str) -> set[str]:
    code = f"import json, sys; import {module}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_the_packed_schema_is_that_of_the_batches() -> None:
    columns = [column.split()[0] for column in PACKED_DDL.split(", ")]
    assert columns == PACKED_SCHEMA.names
    assert TransactionsDataSource({**OPTIONS, "packed": "true"}).schema() == PACKED_DDL


def test_options_are_checked_when_a_user_of_spark_creates_the_source() -> None:
    with pytest.raises(ConfigError, match="option 'subscibe' is not known"):
        TransactionsDataSource({**OPTIONS, "subscibe": "orders"}).schema()
