"""A program that is no Python is refused before Spark starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from txnwatch.spark_start import check_interpreter
from txnwatch.state.model.errors import SparkError


def program(directory: Path, script: str) -> str:
    file = directory / "python"
    file.write_text(f"{script}\n")
    file.chmod(0o755)
    return str(file)


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("#!/bin/sh\nexit 3", "which ends with exit code 3; check PYSPARK_PYTHON"),
        ("#!/bin/sh\necho not >&2; echo 'no licence' >&2; exit 1", "exit code 1: no licence; check PYSPARK_PYTHON"),
        ("#!/bin/sh\ntrue", "which does not run Python code; check PYSPARK_PYTHON"),
        ("#!/no/such/shell", "which cannot be run: No such file or directory; check PYSPARK_PYTHON"),
        ("#!/bin/sh\nexec sleep 30", "which does not answer within 1 s; check PYSPARK_PYTHON"),
    ],
    ids=["it fails", "it says why", "it does nothing", "it cannot be run", "it does not end"],
)
def test_a_program_that_is_no_python_is_refused(tmp_path: Path, script: str, found: str) -> None:
    with pytest.raises(SparkError, match=r"^PYSPARK_PYTHON: expected a Python interpreter, found /") as info:
        check_interpreter(program(tmp_path, script), answers_s=1.0)
    assert found in str(info.value)


def test_a_python_is_accepted(tmp_path: Path) -> None:
    check_interpreter(program(tmp_path, f'#!/bin/sh\nexec {sys.executable} "$@"'))


def test_a_python_that_prints_something_itself_is_accepted(tmp_path: Path) -> None:
    check_interpreter(program(tmp_path, f'#!/bin/sh\necho activated\nexec {sys.executable} "$@"'))


def test_an_interpreter_that_is_not_there() -> None:
    with pytest.raises(SparkError, match="found no program /no/python"):
        check_interpreter("/no/python")
