"""Commands of other distributions: found by their entry point, never in place of a command of txnwatch."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from txnwatch.cli import main as command_line
from txnwatch.cli.main import COMMANDS, DISTRIBUTIONS, GROUP, main

MODULE = """\
def add_parser(commands):
    commands.add_parser("greet", help="say hello").set_defaults(run=lambda _: print("hello") or 0)
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    """The entry points of the group; the module `greeting` of the first one can be imported."""
    (tmp_path / "greeting.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    points = [EntryPoint("greet", "greeting", GROUP)]
    monkeypatch.setattr(command_line, "entry_points", lambda group: [found for found in points if found.group == group])
    return points


@pytest.mark.usefixtures("installed")
def test_a_command_of_another_distribution_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["greet"]) == 0
    assert capsys.readouterr().out == "hello\n"


@pytest.mark.usefixtures("installed")
def test_the_help_lists_it_below_those_of_txnwatch(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert shown.index("    status ") < shown.index("    greet ") < shown.index("say hello")


def test_it_replaces_no_command_of_txnwatch(installed: list[EntryPoint]) -> None:
    installed[:] = [EntryPoint(name, "greeting", GROUP) for name in COMMANDS]
    assert command_line.added_commands() == {}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_txnwatch_reads_no_entry_point(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(command_line, "entry_points")
    assert command_line.needed_for([command, "demo"]) == (command,)
    assert command_line.module_of(command).__name__ == f"txnwatch.cli.{command.replace('-', '_')}"


@pytest.mark.parametrize(("command", "package"), DISTRIBUTIONS.items())
def test_without_its_package_a_command_ends_with_one_line_that_names_the_package(
    installed: list[EntryPoint], command: str, package: str, capsys: pytest.CaptureFixture[str]
) -> None:
    installed.clear()
    assert main([command, "--keep"]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == (
        "",
        f"txnwatch: the command {command} is in the package {package}, which is not installed (docs/install.md)\n",
    )


def test_a_package_that_does_not_fit_is_one_line(
    installed: list[EntryPoint], capsys: pytest.CaptureFixture[str]
) -> None:
    installed[:] = [EntryPoint("greet", "no_such_module", GROUP)]
    assert main(["greet"]) == 2
    assert capsys.readouterr().err == (
        "txnwatch: the command greet cannot be imported (is its package of this version of txnwatch?): "
        "No module named 'no_such_module'\n"
    )


def test_the_demo_is_installed_with_the_tests() -> None:
    assert command_line.added_commands()["demo"].value == "txnwatch_demo.command"
