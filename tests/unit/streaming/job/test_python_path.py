"""The search path of Spark's Python processes: txnwatch from a zip, PySpark compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

import txnwatch
from txnwatch.streaming.job.python_path import installed_pyspark, search_path


def test_an_installed_package_needs_no_search_path() -> None:
    assert search_path() == {}


def test_a_zip_is_found_on_the_driver_and_in_the_directory_of_an_executor(tmp_path: Path) -> None:
    archive = tmp_path / "txnwatch.zip"
    module = Path(sys.modules[search_path.__module__].__file__ or "")
    with ZipFile(archive, "w") as file:
        file.write(str(txnwatch.__file__), "txnwatch/__init__.py")
        for package in ("streaming", "streaming/job"):
            file.writestr(f"txnwatch/{package}/__init__.py", "")
        file.write(module, "txnwatch/streaming/job/python_path.py")
    script = "from txnwatch.streaming.job.python_path import search_path; print(search_path()['PYTHONPATH'])"
    code = f"import sys; sys.path.insert(0, {str(archive)!r}); {script}"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{archive}:txnwatch.zip"


@pytest.fixture
def real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of an installed PySpark."""
    home = tmp_path / "pyspark"
    for name in ("bin", "conf", "jars", "python/lib"):
        (home / name).mkdir(parents=True)
    (home / "python" / "lib" / "pyspark.zip").touch()
    monkeypatch.delenv("SPARK_HOME", raising=False)
    return home


def test_the_jvm_gets_a_home_without_the_zip(real: Path, tmp_path: Path) -> None:
    with installed_pyspark(real, tmp_path):
        home = Path(os.environ["SPARK_HOME"])
        assert {entry.name: entry.resolve() for entry in home.iterdir()} == {
            name: real / name for name in ("bin", "conf", "jars")
        }
    assert "SPARK_HOME" not in os.environ


def test_a_home_that_an_operator_has_chosen_is_used(
    real: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(real))
    with installed_pyspark(real, tmp_path):
        assert os.environ["SPARK_HOME"] == str(real)
    assert os.environ["SPARK_HOME"] == str(real)


def test_a_home_without_a_zip_is_used_as_it_is(real: Path, tmp_path: Path) -> None:
    (real / "python" / "lib" / "pyspark.zip").unlink()
    with installed_pyspark(real, tmp_path):
        assert "SPARK_HOME" not in os.environ
