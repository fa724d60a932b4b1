"""The search paths of Spark's processes: txnwatch from a zip, PySpark compiled, few jars to look into."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

import txnwatch
from txnwatch.streaming.job.search_paths import classes_first, quick_home, search_path


def test_an_installed_package_needs_no_search_path() -> None:
    assert search_path() == {}


def test_a_zip_is_found_on_the_driver_and_in_the_directory_of_an_executor(tmp_path: Path) -> None:
    archive = tmp_path / "txnwatch.zip"
    module = Path(sys.modules[search_path.__module__].__file__ or "")
    with ZipFile(archive, "w") as file:
        file.write(str(txnwatch.__file__), "txnwatch/__init__.py")
        for package in ("streaming", "streaming/job"):
            file.writestr(f"txnwatch/{package}/__init__.py", "")
        file.write(module, "txnwatch/streaming/job/search_paths.py")
    script = "from txnwatch.streaming.job.search_paths import search_path; print(search_path()['PYTHONPATH'])"
    code = f"import sys; sys.path.insert(0, {str(archive)!r}); {script}"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{archive}:txnwatch.zip"


JARS = ("a-1.0.jar", "spark-core_2.13-4.3.0.jar", "spark-catalyst_2.13-4.3.0.jar", "spark-mllib_2.13-4.3.0.jar")


@pytest.fixture
def real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of an installed PySpark."""
    home = tmp_path / "pyspark"
    for name in ("bin", "conf", "jars", "python/lib"):
        (home / name).mkdir(parents=True)
    (home / "python" / "lib" / "pyspark.zip").touch()
    for jar in JARS:
        (home / "jars" / jar).touch()
    monkeypatch.delenv("SPARK_HOME", raising=False)
    return home


def test_the_jvm_gets_a_home_without_the_zip(real: Path, tmp_path: Path) -> None:
    with quick_home(real, tmp_path) as found:
        home = Path(os.environ["SPARK_HOME"])
        assert home == found
        assert {entry.name for entry in home.iterdir()} == {"bin", "conf", "jars"}
        assert [(home / name).resolve() for name in ("bin", "conf")] == [real / "bin", real / "conf"]
    assert "SPARK_HOME" not in os.environ


def test_it_has_all_jars_but_the_one_whose_extension_each_session_would_load(real: Path, tmp_path: Path) -> None:
    with quick_home(real, tmp_path) as home:
        assert home is not None
        assert {jar.name: jar.resolve() for jar in (home / "jars").iterdir()} == {
            name: real / "jars" / name for name in JARS if "mllib" not in name
        }


def test_the_jars_with_most_classes_come_first(real: Path, tmp_path: Path) -> None:
    with quick_home(real, tmp_path) as home:
        assert home is not None
        found = classes_first(home)["spark.driver.defaultExtraClassPath"]
        assert found.split(":") == [str(home / "jars" / JARS[2]), str(home / "jars" / JARS[1])]


def test_a_home_that_an_operator_has_chosen_is_used(
    real: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(real))
    with quick_home(real, tmp_path) as home:
        assert home is None
        assert os.environ["SPARK_HOME"] == str(real)
    assert os.environ["SPARK_HOME"] == str(real)


def test_a_home_without_a_zip_is_used_as_it_is(real: Path, tmp_path: Path) -> None:
    (real / "python" / "lib" / "pyspark.zip").unlink()
    with quick_home(real, tmp_path) as home:
        assert home is None
        assert "SPARK_HOME" not in os.environ
