"""The parser tree: a command costs what it needs, and the names in it are those of the modules."""

from __future__ import annotations

import subprocess
import sys

import pytest

from txnwatch.cli.main import COMMANDS, main, parser

HEAVY = ("pyspark", "pandas", "pyarrow", "redis", "confluent_kafka", "fastavro", "prometheus_client")
FOR_A_LOOK = tuple(name for name in COMMANDS if name not in {"run", "demo", "events", "status", "abort"})


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


def test_an_unknown_command_is_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["find"])
    assert ended.value.code == 2
    assert "invalid choice: 'find'" in capsys.readouterr().err
