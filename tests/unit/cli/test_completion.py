"""The shells' completion: real shells read the script and complete commands, flags and values."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from support.missing_tools import skip_or_fail
from txnwatch.cli.completion import SHELLS
from txnwatch.cli.main import COMMANDS, main

COMPLETED = {
    "a command": ("txnwatch f", {"fence", "find-hanging"}),
    "a flag": ("txnwatch status --wa", {"--watch"}),
    "a flag of another command": ("txnwatch abort --start", {"--start-offset"}),
    "a value of a flag": ("txnwatch list --format ", {"text", "json"}),
    "a value of the short flag": ("txnwatch list -o ", {"text", "json"}),
    "a value of a setting": ("txnwatch run --auto-abort ", {"off", "dry-run", "on"}),
    "a file": ("txnwatch list --config the-", {"the-file.toml"}),
    "a shell": ("txnwatch completion ", set(SHELLS)),
}
# Each script completes the line in $LINE, and prints one candidate a line, before a tab if there is a description.
BASH = r"""
source ./script
read -ra COMP_WORDS <<< "$LINE"
[[ $LINE == *' ' ]] && COMP_WORDS+=('')
COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
_shtab_txnwatch txnwatch "${COMP_WORDS[-1]}" ''
printf '%s\n' "${COMPREPLY[@]}"
"""
FISH = 'source ./script; complete --do-complete "$LINE"'
# zsh completes only in its line editor: a pseudo-terminal types the line, and lists what may follow.
ZSH = r"""
zmodload zsh/zpty
zpty editor zsh -f -i
zpty -w editor 'PS1=; autoload -Uz compinit; compinit -u -D; eval "$(<script)"; LISTMAX=1000'
zpty -w editor "zstyle ':completion:*' verbose no; bindkey '^T' list-choices; print -r -- be''gin"
zpty -r -m editor found '*begin*'
zpty -w -n editor "$LINE"$'\C-T'
zpty -w -n editor $'\C-U'"print -r -- e''nd"$'\n'
while zpty -r editor found; do print -r -- $found | tr -s ' \r' '\n'; [[ $found == *end* ]] && break; done
"""
WAYS = {"bash": ("bash", "--norc", "-c", BASH), "fish": ("fish", "-c", FISH), "zsh": ("zsh", "-f", "-c", ZSH)}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "the-file.toml").touch()
    return tmp_path


def script_of(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def completed(shell: str, line: str, directory: Path) -> set[str]:
    done = subprocess.run(
        WAYS[shell],
        cwd=directory,
        env={"LINE": line, "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(directory), "TERM": "dumb"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=60.0,
    )
    assert done.stderr == ""
    return {found.split("\t")[0] for found in done.stdout.splitlines()} - {""}


@pytest.mark.parametrize(("line", "expected"), COMPLETED.values(), ids=COMPLETED.keys())
def test_bash_completes(line: str, expected: set[str], directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (directory / "script").write_text(script_of("bash", capsys))
    assert completed("bash", line, directory) == expected


@pytest.mark.long
@pytest.mark.parametrize(("line", "expected"), COMPLETED.values(), ids=COMPLETED.keys())
@pytest.mark.parametrize("shell", ["fish", "zsh"])
def test_the_other_shells_complete(
    shell: str, line: str, expected: set[str], directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which(shell) is None:
        skip_or_fail(f"there is no {shell}")
    (directory / "script").write_text(script_of(shell, capsys))
    assert expected <= completed(shell, line, directory)


def flags_of(command: str, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """The flags that the help of a command shows, without their hyphens: not every script has these."""
    with pytest.raises(SystemExit):
        main([command, "--help"])
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    return {flag for line in lines if line.startswith("-") for flag in re.findall(r"(?:^|, )--?([a-z-]+)", line)}


@pytest.mark.parametrize("shell", SHELLS)
def test_each_script_has_each_command_and_each_flag(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags = {flag for command in COMMANDS for flag in flags_of(command, capsys)}
    assert {"b", "bootstrap-server", "o", "watch", "auto-abort"} < flags
    script = script_of(shell, capsys)
    assert {name for name in {*COMMANDS, *flags} if name not in script} == set()
    assert "coordinator-epoch" not in script, "a flag that only explains why it is not taken"


@pytest.mark.parametrize("arguments", [(), ("tcsh",)])
def test_another_shell_is_usage(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["completion", *arguments])
    assert ended.value.code == 2
    assert "SHELL" in capsys.readouterr().err
