"""The wheel in a fresh environment: who wants the commands gets them without Spark, and they work."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from support.raw_producer import RawProducer
from support.topics import create_topic, unique
from txnwatch.state.model.errors import install_command
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
INSTALL_S = 600.0
LARGEST_MB = 200
PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` directory of a new environment with the wheel of txnwatch, without an extra."""
    place = tmp_path_factory.mktemp("installed")
    sources = place / "sources"
    shutil.copytree(ROOT, sources, ignore=shutil.ignore_patterns(".*", "build", "*.egg-info", "tests"))
    wheels = place / "wheels"
    build = [sys.executable, *PIP, "wheel", "--no-deps", "--wheel-dir", str(wheels), str(sources)]
    subprocess.run(build, check=True, timeout=INSTALL_S)
    venv.create(place / "venv", with_pip=True)
    bin_ = place / "venv" / "bin"
    (wheel,) = wheels.glob("*.whl")
    subprocess.run([bin_ / "python", *PIP, "install", str(wheel)], check=True, timeout=INSTALL_S)
    return bin_


def run(bin_: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [bin_ / "txnwatch", *arguments], check=False, capture_output=True, text=True, timeout=60.0, cwd=bin_, env={}
    )


def test_it_has_no_spark_and_is_small(installed: Path) -> None:
    listed = subprocess.run(
        [installed / "python", "-m", "pip", "list", "--format", "json"], check=True, capture_output=True, text=True
    )
    names = {found["name"].lower() for found in json.loads(listed.stdout)}
    assert "txnwatch" in names
    assert names & {"pyspark", "pandas", "pyarrow", "protobuf", "numpy", "py4j"} == set()
    megabytes = sum(path.lstat().st_size for path in installed.parent.rglob("*") if path.is_file()) / 1e6
    assert megabytes < LARGEST_MB


@pytest.mark.parametrize("command", ["explain", "run", "status", "abort"])
def test_a_command_shows_its_help(installed: Path, command: str) -> None:
    done = run(installed, command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"usage: txnwatch {command}" in done.stdout


def test_run_names_what_to_install(installed: Path) -> None:
    done = run(installed, "run", "-b", "127.0.0.1:1")
    expected = "run needs Spark, and pyspark, pandas, pyarrow are not installed: pip install 'pyspark>="
    assert (done.returncode, expected in done.stderr) == (2, True)


def test_an_extra_is_added_to_what_is_installed(installed: Path) -> None:
    packages = shlex.split(install_command("jks"))[2:]
    subprocess.run([installed / "python", *PIP, "install", *packages], check=True, timeout=INSTALL_S)
    subprocess.run([installed / "python", "-c", "import jks, txnwatch"], check=True, timeout=60.0)


def test_the_commands_work_on_a_cluster(installed: Path, kafka: EmbeddedKafka, cluster: Cluster) -> None:
    (partition,) = create_topic(cluster, unique("installed"))
    owner = RawProducer(cluster, unique("installed"), 600_000).init()
    owner.add(partition)
    owner.produce(partition)
    server = ("-b", kafka.bootstrap_servers)

    def rows(*arguments: str) -> list[dict[str, object]]:
        done = run(installed, *arguments, *server, "-o", "json")
        assert (done.returncode, done.stderr) == (0, "")
        found: list[dict[str, object]] = json.loads(done.stdout)["rows"]
        return found

    name = owner.transactional_id
    assert [row["transactional_id"] for row in rows("list", "--transactional-id-pattern", name)] == [name]
    assert [row["transaction_state"] for row in rows("describe", name)] == ["Ongoing"]
    assert [row["transaction_state"] for row in rows("decode", "--transactional-id", name)] == ["Empty", "Ongoing"]
    assert rows("find-hanging", "--topic", partition.topic) == []
    assert name in run(installed, "explain", str(partition), *server).stdout
    assert run(installed, "doctor", *server).stdout.count(install_command("spark")) == 1
