"""The question before something is written: the whole word yes, asked until the answer is yes or no."""

from __future__ import annotations

import io

import pytest

from txnwatch.cli.one_shot import confirmed


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("typed", "expected", "asked"),
    [
        ("yes\n", True, 1),
        ("no\n", False, 1),
        ("y\nyes\n", True, 2),
        ("Y\n\nno\n", False, 3),
        ("y\n", False, 2),  # then the terminal is closed
        ("", False, 1),
    ],
)
def test_it_asks_until_yes_or_no(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, typed: str, expected: bool, asked: int
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    assert confirmed(["what it ends"], "Fence it?") is expected
    said = capsys.readouterr().err
    assert said.startswith("what it ends\n")
    assert said.count("Fence it? [yes/no]") == asked


def test_without_a_terminal_the_answer_is_no(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n"))
    assert not confirmed([], "Fence it?")
    assert "use --yes" in capsys.readouterr().err
