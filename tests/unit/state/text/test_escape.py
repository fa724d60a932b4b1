"""Text of others is shown as text: no terminal obeys it, no log line is broken by it, no shell runs it."""

from __future__ import annotations

import io
import json
import subprocess
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.incidents import an_event
from txnwatch.cli import main as main_module
from txnwatch.cli.event_lines import event_line, utc
from txnwatch.cli.output import CommandAnswer, Line, NotChecked, write
from txnwatch.sinks.incidents.commands import Origin, explain_id
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.text.escape import json_text, printable, shell_line

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
    event = an_event(transactional_id=ODD, consumer_groups=({**GROUP, "group_id": ODD},))
    line = event_line(event)
    assert line.isprintable()
    assert line.count(SHOWN) == 2


GROUP = {"group_id": "billing", "state": "stopped", "committed_offset": 99, "hidden_lag": 21}


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
