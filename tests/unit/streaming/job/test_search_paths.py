"""The search paths of Spark's processes: txnwatch from a zip, PySpark compiled, few jars to look into."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

import txnwatch
from txnwatch.streaming.job.search_paths import (
    can_be_quick,
    class_path,
    home_is,
    jars_of,
    make_home,
    search_path,
)


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


JARS = (
    "a-1.0.jar",
    "spark-core_2.13-4.3.0.jar",
    "spark-catalyst_2.13-4.3.0.jar",
    "spark-mllib_2.13-4.3.0.jar",
    "spark-launcher_2.13-4.3.0.jar",
)


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
    home = tmp_path / "home"
    make_home(real, home)
    assert {entry.name for entry in home.iterdir()} == {"bin", "conf", "jars"}
    assert [(home / name).resolve() for name in ("bin", "conf")] == [real / "bin", real / "conf"]
    assert [jar.resolve() for jar in (home / "jars").iterdir()] == [real / "jars" / JARS[4]], "what starts Spark"


@pytest.mark.parametrize("before", [None, "/opt/spark"])
def test_only_the_jvm_that_starts_in_the_block_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    if before is not None:
        monkeypatch.setenv("SPARK_HOME", before)
    else:
        monkeypatch.delenv("SPARK_HOME", raising=False)
    with home_is(tmp_path):
        assert os.environ["SPARK_HOME"] == str(tmp_path)
    assert os.environ.get("SPARK_HOME") == before


def test_the_class_path_has_all_jars_but_one_and_first_those_with_most_classes(real: Path) -> None:
    """The one that is not there brings an extension that each session would load."""
    found = class_path(real)["spark.driver.defaultExtraClassPath"]
    assert [Path(jar).name for jar in found.split(":")] == [JARS[2], JARS[1], JARS[0], JARS[4]]
    assert all(jar.parent == real / "jars" for jar in jars_of(real))


@pytest.mark.parametrize(
    ("chosen", "has_zip", "expected"),
    [
        (None, True, True),
        ("pyspark", True, True),
        ("link", True, True),
        ("other", True, False),
        (None, False, False),
    ],
    ids=["nothing chosen", "the same home", "a link to it", "another home", "no zip"],
)
def test_a_home_that_an_operator_has_chosen_is_used(
    real: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str | None, *, has_zip: bool, expected: bool
) -> None:
    (tmp_path / "link").symlink_to(real)
    if chosen is not None:
        monkeypatch.setenv("SPARK_HOME", str(tmp_path / chosen))
    if not has_zip:
        (real / "python" / "lib" / "pyspark.zip").unlink()
    assert can_be_quick(real) is expected
