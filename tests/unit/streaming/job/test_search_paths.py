"""The search paths of Spark's processes: txnwatch from a zip, PySpark compiled, few jars to look into."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

import txnwatch.state
import txnwatch.streaming
from txnwatch.streaming.job.jvm import (
    class_path,
    jars_of,
    make_home,
    search_path,
    variables_of_home,
    why_not_quick,
)


def test_an_installed_package_needs_no_search_path() -> None:
    assert search_path() == {}


def test_a_zip_is_found_on_the_driver_and_in_the_directory_of_an_executor(tmp_path: Path) -> None:
    archive = tmp_path / "txnwatch.zip"
    with ZipFile(archive, "w") as file:
        file.write(str(txnwatch.__file__), "txnwatch/__init__.py")
        for package in (txnwatch.state, txnwatch.streaming):
            root = Path(str(package.__file__)).parent
            for module in root.rglob("*.py"):
                file.write(module, f"txnwatch/{root.name}/{module.relative_to(root)}")
    script = "from txnwatch.streaming.job.jvm import search_path; print(search_path()['PYTHONPATH'])"
    code = f"import sys; sys.path.insert(0, {str(archive)!r}); {script}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
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
    assert {entry.name for entry in home.iterdir()} == {"bin", "jars"}
    assert (home / "bin").resolve() == real / "bin"
    assert [jar.resolve() for jar in (home / "jars").iterdir()] == [real / "jars" / JARS[4]], "what starts Spark"


@pytest.mark.parametrize(
    ("environ", "conf"),
    [({}, None), ({"SPARK_HOME": "/opt/spark"}, None), ({"SPARK_CONF_DIR": "/etc/spark"}, "/etc/spark")],
    ids=["nothing set", "a home", "a configuration"],
)
def test_the_configuration_is_that_of_the_real_home(
    real: Path, tmp_path: Path, environ: dict[str, str], conf: str | None
) -> None:
    """So a later start finds what an operator has put there meanwhile."""
    found = variables_of_home(tmp_path, real, environ)
    assert found == {"SPARK_HOME": str(tmp_path), "SPARK_CONF_DIR": conf or str(real / "conf")}


def test_the_class_path_has_all_jars_but_one_and_first_those_with_most_classes(real: Path) -> None:
    """The one that is not there brings an extension that each session would load."""
    found = class_path(real)["spark.driver.defaultExtraClassPath"]
    assert [Path(jar).name for jar in found.split(":")] == [JARS[2], JARS[1], JARS[0], JARS[4]]
    assert all(jar.parent == real / "jars" for jar in jars_of(real))


REASONS: dict[str, tuple[dict[str, str], str | None]] = {
    "nothing chosen": ({}, None),
    "the same home": ({"SPARK_HOME": "pyspark"}, None),
    "a link to it": ({"SPARK_HOME": "link"}, None),
    "another home": ({"SPARK_HOME": "other"}, "SPARK_HOME is"),
    "this Python": ({"PYSPARK_PYTHON": sys.executable}, None),
    "another name of it": ({"PYSPARK_PYTHON": str(Path(sys.executable).with_name("python3"))}, None),
    "the Python of its environment": ({"PYSPARK_PYTHON": str(Path(sys.executable).resolve())}, "PYSPARK_PYTHON is"),
    "another Python": ({"PYSPARK_PYTHON": "/usr/bin/python3.9"}, "PYSPARK_PYTHON is /usr/bin/python3.9"),
    "no zip": ({"zip": ""}, "no PySpark that pip has installed"),
}


@pytest.mark.parametrize(("chosen", "expected"), REASONS.values(), ids=REASONS.keys())
def test_what_an_operator_has_chosen_is_used(
    real: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: dict[str, str], expected: str | None
) -> None:
    (tmp_path / "link").symlink_to(real)
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    if "zip" in chosen:
        (real / "python" / "lib" / "pyspark.zip").unlink()
    if "SPARK_HOME" in chosen:
        monkeypatch.setenv("SPARK_HOME", str(tmp_path / chosen["SPARK_HOME"]))
    if "PYSPARK_PYTHON" in chosen:
        monkeypatch.setenv("PYSPARK_PYTHON", chosen["PYSPARK_PYTHON"])
    found = why_not_quick(real)
    assert found is None if expected is None else expected in str(found)
