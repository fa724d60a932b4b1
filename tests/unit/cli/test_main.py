"""The parser tree: a command costs what it needs, and the names in it are those of the modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from txnwatch.cli.main import COMMANDS, main, parser
from txnwatch.state.model.errors import install_command
from txnwatch.streaming.job import jvm

HEAVY = ("pyspark", "pandas", "pyarrow", "redis", "confluent_kafka", "fastavro", "prometheus_client")
FOR_A_LOOK = tuple(
    name for name in COMMANDS if name not in {"run", "events", "history", "status", "page", "abort", "fence"}
)


def test_every_command_is_in_the_tree_under_its_own_name() -> None:
    for name in COMMANDS:
        assert name in parser([name]).format_help()


def test_a_look_at_a_cluster_imports_nothing_that_only_the_job_needs() -> None:
    code = (
        "import sys\nfrom txnwatch.cli.main import parser\n"
        f"parser({FOR_A_LOOK!r})\nprint(*sorted({set(HEAVY)!r} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


DISTANCE = """
import sys
from pathlib import Path
from txnwatch.cli.main import main
main(["list", "-b", "127.0.0.1:1"])
paths = [Path(module.__file__) for name, module in sys.modules.items() if name.partition(".")[0] == "txnwatch"]
print(*[len(path.read_text().splitlines()) for path in paths if path.name != "__init__.py"])
"""


def test_list_is_near_to_what_it_needs() -> None:
    """Who wants to read this command to its end reads these modules."""
    done = subprocess.run([sys.executable, "-c", DISTANCE], capture_output=True, text=True, check=True)
    lines = [int(count) for count in done.stdout.split()]
    assert 40 < len(lines) < 60
    assert 10_000 < sum(lines) < 19_000


WITHOUT_SPARK = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j", "pandas", "pyarrow", "numpy"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
"""
USES = {
    "the help of all commands": (("--help",), 0, "find-hanging"),
    "completion": (("completion", "bash"), 0, "find-hanging"),
    "decode": (("decode", "--file", "/dev/null"), 0, "BaseOffset"),
    "a cluster that does not answer": (("list", "-b", "127.0.0.1:1"), 1, "no broker answered"),
    "the events topic": (("events", "-b", "127.0.0.1:1", "--events-key-file", "/none"), 2, "events-key-file"),
    "the page": (
        ("page", "--watcher", "a=http://127.0.0.1:1/", "--http-web-config-file", "/none", "--http-port", "0"),
        2,
        "http_web_config_file",
    ),
    "an abort": (
        ("abort", "-b", "127.0.0.1:1", "--topic", "t", "--partition", "0", "--start-offset", "0"),
        1,
        "no broker answered",
    ),
}


@pytest.mark.parametrize(("arguments", "code", "shown"), USES.values(), ids=USES.keys())
def test_the_commands_work_without_spark(arguments: tuple[str, ...], code: int, shown: str) -> None:
    program = f"{WITHOUT_SPARK}\nfrom txnwatch.cli.main import main\nsys.exit(main({list(arguments)!r}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert shown in done.stdout + done.stderr


@pytest.mark.parametrize("arguments", [("run", "-b", "127.0.0.1:1"), ("prepare",)], ids=["run", "prepare"])
@pytest.mark.parametrize(
    ("missing", "found"),
    [
        ({"pyspark", "pandas", "pyarrow"}, "pyspark, pandas, pyarrow are not installed"),
        ({"pandas"}, "pandas is not installed"),
    ],
)
def test_a_command_that_needs_spark_names_in_one_line_what_is_missing(
    arguments: tuple[str, ...],
    missing: set[str],
    found: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(jvm, "find_spec", lambda name: None if name in missing else object())
    assert main(list(arguments)) == 2
    expected = f"txnwatch: {arguments[0]} needs Spark, and {found}: {install_command('spark')} (docs/install.md)\n"
    assert capsys.readouterr().err == expected


def test_an_unknown_command_is_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["find"])
    assert ended.value.code == 2
    assert "invalid choice: 'find'" in capsys.readouterr().err


ANSWERING = (sys.executable, "-c", "import sys; from txnwatch.cli.main import main; sys.exit(main())")
TABLE = ("decode", "--file", "/dev/null")


@pytest.fixture(params=["buffered", "unbuffered"])
def environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a write fails: with the write, or when the interpreter ends."""
    monkeypatch.setenv("PYTHONUNBUFFERED", "" if request.param == "buffered" else "1")


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("how", ["text", "json"])
def test_an_answer_that_cannot_be_written_is_one_line_and_a_failure(how: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*ANSWERING, *TABLE, "--format", how], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    expected = "txnwatch: expected to write the answer to standard output, found: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, expected)


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("how", ["text", "json"])
def test_a_closed_pipe_gets_no_message_and_is_no_success(how: str) -> None:
    running = subprocess.Popen(
        [*ANSWERING, *TABLE, "--format", how], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    assert running.stderr is not None
    with running:
        running.stdout.close()
        assert running.stderr.read() == ""
    assert running.returncode == 1


def test_a_name_that_is_no_utf_8_can_be_printed(tmp_path: Path) -> None:
    name = bytes(tmp_path / "a") + b"\xff.log"
    Path(name.decode(errors="surrogateescape")).write_bytes(b"\0\0\0")
    done = subprocess.run([*ANSWERING, "decode", "--file", name], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert "a\\udcff.log from byte 0: a batch is cut: 3 bytes are there" in done.stdout
