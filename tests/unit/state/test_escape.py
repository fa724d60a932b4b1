"""Text of others is shown as text: no terminal obeys it, no log line is broken by it, no shell runs it."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.incidents import an_event
from txnwatch.cli import main as main_module
from txnwatch.cli.output import CommandAnswer, Line, NotChecked, event_line, json_text, utc, write
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.telling.commands import Origin, explain_id
from txnwatch.state.text import printable, shell_line

ODD = "a\x1b[2J\x9b31mb\ncRIGHT\u202eTFEL\u2066x\x07\x7f\u2028[bold]y[/]:smile:"
SHOWN = r"a\x1b[2J\x9b31mb\ncRIGHT\u202eTFEL\u2066x\x07\x7f\u2028[bold]y[/]:smile:"
TEXT = st.text(st.characters(exclude_categories=()))


def test_an_unprintable_character_is_shown_as_its_escape() -> None:
    assert printable(ODD) == SHOWN
    assert printable("half \ud800, tag \U000e0001, tab\t") == r"half \ud800, tag \U000e0001, tab\t"


@pytest.mark.parametrize("text", ["", "orders-0", "payments-\u00fc", "\u4ed8\u6b3e 42", "a'b\"c\\d $(x) `y`"])
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert printable(text) == text
    assert json.loads(json_text(text)) == text


@given(TEXT)
def test_whatever_it_was_it_can_be_shown(text: str) -> None:
    assert printable(text).isprintable()
    written = json_text({"text": text})
    assert written.isprintable()
    assert json.loads(written) == {"text": text}
    assert shell_line(["print", text]).isprintable()


@pytest.mark.parametrize("argument", [ODD, "it's", "$(touch /tmp/x)", "", "-n", "a b", "\u202e'\\\n", "\u00fc\n'"])
def test_a_shell_splits_the_command_into_its_arguments(argument: str) -> None:
    line = shell_line(["printf", "%s", argument])
    done = subprocess.run(["bash", "-c", line], capture_output=True, check=True)
    assert done.stdout == argument.encode()


# What a shell does with a word that shlex.quote leaves bare, or with a quoted word in another shell than sh.
WORDS = {
    "orders-0": "orders-0",
    "User:CN=app,OU=pay": "User:CN=app,OU=pay",
    "s3a://b/c@d+e_f": "s3a://b/c@d+e_f",
    "=ls": "'=ls'",  # zsh: the path of ls
    "--transactional-id==ls": "'--transactional-id==ls'",  # zsh with MAGIC_EQUAL_SUBST
    "--path=a:=ls": "'--path=a:=ls'",  # the same
    "==": "'=='",
    "~root": "'~root'",
    "--path=~root": "'--path=~root'",
    "a:~root": "'a:~root'",
    "%self": "'%self'",  # fish: the process id
    "a!b": "'a!b'",  # the history of an interactive shell
    "!!": "'!!'",
    "^a^b": "'^a^b'",  # the same; a glob of zsh
    "#a": "'#a'",
    "a#b*(.)": "'a#b*(.)'",
    "@(a|b)": "'@(a|b)'",
    "a<1-9>": "'a<1-9>'",  # a glob of zsh
    "{a,b}": "'{a,b}'",
    "[a]?": "'[a]?'",
    "it's": "'it'\\''s'",
    "''": "\\'\\'",
    "a\\b": "'a'\\\\'b'",  # fish: two backslashes in quotation marks are one
    "a\\\\": "'a'\\\\\\\\",
    "$HOME `id`": "'$HOME `id`'",
    "": "''",
}
# Every shell of this machine, with the options that give most characters a meaning; make test needs only bash.
SHELLS = {
    "bash": (["bash", "--norc", "--noprofile"], "set -o history -H; shopt -s extglob nullglob\n"),
    "sh": (["sh"], ""),
    "zsh": (["zsh", "-f", "-i", "-s"], "setopt extended_glob magic_equal_subst rc_quotes bang_hist null_glob\n"),
    "fish": (["fish", "--no-config"], ""),
    "ksh": (["ksh"], ""),
}


@pytest.mark.parametrize(("word", "quoted"), WORDS.items())
def test_a_word_that_a_shell_would_change_is_quoted(word: str, quoted: str) -> None:
    assert shell_line([word]) == quoted


@pytest.mark.parametrize("shell", [name for name in SHELLS if shutil.which(name) is not None])
def test_each_shell_takes_the_words_as_they_are(shell: str) -> None:
    command, setup = SHELLS[shell]
    odd = [] if shell in {"sh", "fish"} else [ODD, "a!b\x1b", "\x1bcafe", "\u00fc\n'\\"]  # these two have no $'...'
    words = [*WORDS, *odd]
    script = "".join(f"{shell_line(['printf', '[%s]', word])}\n" for word in words)
    done = subprocess.run(command, input=f"{setup}{script}".encode(), capture_output=True, check=True)
    assert done.stdout.decode() == "".join(f"[{word}]" for word in words)


@dataclass(frozen=True)
class Row:
    """A row of two fields."""

    name: str
    command: Line


def written(how: str) -> str:
    answer = CommandAnswer(
        "test",
        "c",
        Row,
        [Row(ODD, ODD)],
        (NotChecked(ODD, ODD),),
        summary=ODD,
        notes=(ODD,),
        also={"x": [{"name": ODD, "command": ODD}]},
    )
    out = io.StringIO()
    write(answer, how, out)
    return out.getvalue()


def test_a_table_shows_nothing_that_a_terminal_obeys() -> None:
    lines = written("text").splitlines()
    assert all(line.isprintable() for line in lines)
    assert lines[1] == SHOWN
    assert lines[2:] == [f"command: {SHOWN}", f"not checked: {SHOWN}: {SHOWN}", SHOWN, SHOWN]


def test_json_is_one_line_with_the_same_content() -> None:
    (line,) = written("json").splitlines()
    assert line.isprintable()
    assert json.loads(line)["rows"] == [{"name": ODD, "command": ODD}]


def test_an_event_is_one_line_whatever_its_owner_is_called() -> None:
    event = an_event(
        transactional_id=ODD,
        consumer_groups=({**GROUP, "group_id": ODD},),
        waiting_groups=({**WAITING, "group_id": ODD},),
    )
    line = event_line(event)
    assert line.isprintable()
    assert line.count(SHOWN) == 3


GROUP = {"group_id": "billing", "state": "stopped", "committed_offset": 99, "hidden_lag": 21}
WAITING = {"group_id": "stream", "partitions": ["orders-0"]}


def test_a_command_about_an_odd_id_can_be_shown_and_pasted() -> None:
    command = explain_id(Origin("c", "b:9092"), "a\x1b]0;x\x07'\nb")
    assert command.isprintable()
    output = subprocess.run(["bash", "-c", f"printf '%s|' {command}"], capture_output=True, check=True).stdout
    assert b"|a\x1b]0;x\x07'\nb|" in output


def test_an_error_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(_: object) -> None:
        raise BrokerError(ODD)

    monkeypatch.setattr(main_module, "parser", fails)
    assert main_module.main(["list"]) == 1
    assert capsys.readouterr().err == f"txnwatch: {SHOWN}\n"


@pytest.mark.parametrize("time_ms", [-1, (1 << 63) - 1, -(1 << 63)])
def test_a_clients_time_that_is_no_date_stays_a_number(time_ms: int) -> None:
    assert utc(time_ms) == f"{time_ms} ms"
