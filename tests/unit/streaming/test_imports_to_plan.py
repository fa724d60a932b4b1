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
    code = "import json, sys; import txnwatch.cli.watch_process; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = set(json.loads(done.stdout))
    assert "txnwatch.streaming.job.query" in found
    assert not found & {"numpy", "pyarrow", "pandas", "txnwatch.streaming.source.tasks"}


def test_the_packed_schema_is_that_of_the_batches() -> None:
    columns = [column.split()[0] for column in PACKED_DDL.split(", ")]
    assert columns == PACKED_SCHEMA.names
    assert TransactionsDataSource({**OPTIONS, "packed": "true"}).schema() == PACKED_DDL


def test_options_are_checked_when_a_user_of_spark_creates_the_source() -> None:
    with pytest.raises(ConfigError, match="option 'subscibe' is not known"):
        TransactionsDataSource({**OPTIONS, "subscibe": "orders"}).schema()
