"""A wrong flag is a usage error that names what is expected, before any request is sent."""

from __future__ import annotations

import argparse
import io
import re
from contextlib import redirect_stdout, suppress

import pytest

from support.bad_inputs import BadInputs
from txnwatch.cli.abort import NOT_TAKEN
from txnwatch.cli.main import COMMANDS, main, parser

NO_UTF_8 = "a\udcff"  # how the bytes `a\\xff` of a shell arrive
AT = ("--topic", "t", "--partition", "0")
ABORT = ("abort", *AT, "--start-offset", "0")
TOO_LARGE = str(1 << 63)
SERVER = ("--bootstrap-server", "127.0.0.1:1")

INT64, INT32 = "from 0 to 9223372036854775807", "from 0 to 2147483647"
REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "a duration above an int64": (
        ("list", "--duration-filter", TOO_LARGE),
        "from -9223372036854775808 to 9223372036854775807",
    ),
    "a producer id above an int64": (("list", "--producer-id", TOO_LARGE), INT64),
    "a producer id below 0": (("list", "--producer-id", "-1"), INT64),
    "a partition above an int32": (("explain", "--topic", "t", "--partition", str(1 << 31)), INT32),
    "a partition below 0": (("describe-producers", "--topic", "t", "--partition", "-1"), INT32),
    "a broker id above an int32": (("find-hanging", "--broker-id", str(1 << 31)), INT32),
    "a broker id below 0": (("describe-producers", *AT, "--broker-id", "-1"), INT32),
    "an age below 0": (("find-hanging", "--max-transaction-timeout", "-5"), INT32),
    "an age that is no number": (("find-hanging", "--max-transaction-timeout", "soon"), f"{INT32}, found 'soon'"),
    "an offset above an int64": (("decode", *AT, "--offset", TOO_LARGE), INT64),
    "a count below 0": (("decode", *AT, "--count", "-5"), "from 1 to 2147483647"),
    "a count of 0": (("decode", *AT, "--count", "0"), "from 1 to 2147483647"),
    "a start offset above an int64": (("abort", *AT, "--start-offset", TOO_LARGE), INT64),
    "the producer id of an abort above an int64": (("abort", *AT, "--producer-id", TOO_LARGE), INT64),
    "an id that is no UTF-8": (("explain", "--transactional-id", NO_UTF_8), "expected UTF-8, found 'a\\udcff'"),
    "a target that is no UTF-8": (("explain", NO_UTF_8), "expected UTF-8"),
    "a topic that is no UTF-8": (("describe-producers", "--topic", NO_UTF_8, "--partition", "0"), "expected UTF-8"),
    "a server that is no UTF-8": (("list", "--bootstrap-server", NO_UTF_8), "expected UTF-8"),
    "a pattern that is no UTF-8": (("list", "--transactional-id-pattern", NO_UTF_8), "expected UTF-8"),
    "bytes that are no UTF-8": (("decode", "--value", NO_UTF_8), "expected UTF-8"),
    "an empty id": (("describe", "--transactional-id", ""), "found an empty one"),
    "an empty id to decode": (("decode", "--transactional-id", ""), "found an empty one"),
    "an empty id to explain": (("explain", ""), "found an empty one"),
    "an empty topic": (("find-hanging", "--topic", ""), "found an empty one"),
    "an empty pattern": (("list", "--transactional-id-pattern", ""), "found an empty one"),
    "a URL of Redis that is no URL": (("status", "--redis-url", "foo"), "expected redis://"),
    "a URL of Redis without a port": (("doctor", "--redis-url", "redis://127.0.0.1:notaport/0"), "expected redis://"),
    **{
        f"a bad name of the events topic of {command[0]}": (
            (*command, "--events-topic", "bad topic!"),
            "expected a topic's name",
        )
        for command in (("events",), ("status",), ("doctor",), ABORT)
    },
}


@pytest.mark.parametrize(("arguments", "expected"), REFUSED.values(), ids=REFUSED.keys())
def test_an_invalid_flag_is_a_usage_error(
    arguments: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str], bad_inputs: BadInputs
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([arguments[0], *SERVER, *arguments[1:]])
    assert ended.value.code == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert expected in line
    bad_inputs.keep("Flags of the commands", line, code=2)


def test_the_ends_of_the_ranges_are_taken() -> None:
    taken = parser(["list"]).parse_args(
        ["list", *SERVER, "--duration-filter", "-1", "--producer-id", "0", "--producer-id", str((1 << 63) - 1)]
    )
    assert (taken.duration_filter, taken.producer_id) == (-1, [0, (1 << 63) - 1])
    taken = parser(["decode"]).parse_args(["decode", "--topic", "t", "--partition", str((1 << 31) - 1), "--count", "1"])
    assert (taken.partition, taken.count) == ((1 << 31) - 1, 1)


def test_no_bytes_are_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", "--value", "caf\u00e9"]) == 2
    assert "--value: expected hexadecimal or base64" in capsys.readouterr().err


def test_an_empty_variable_is_no_server(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TXNWATCH_BOOTSTRAP_SERVER", "")
    assert main(["list"]) == 2
    assert "bootstrap_server: expected host:port" in capsys.readouterr().err


@pytest.mark.parametrize("value", [(), ("5",), ("-1",)], ids=["alone", "a number", "below 0"])
@pytest.mark.parametrize("flag", NOT_TAKEN)
def test_an_epoch_is_not_taken_from_a_caller_and_the_error_has_the_reason(
    flag: str, value: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["abort", *SERVER, *AT, "--producer-id", "1", flag, *value]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    expected = f"txnwatch: abort {flag}: not supported, because the value is read from the partition's leader"
    assert line.startswith(expected)


def test_the_help_does_not_show_unsupported_flags(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["abort", "--help"])
    assert "-epoch" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flag", "placeholder"),
    {
        "--max-bytes-per-second": "BYTES",
        "--max-read-ms-per-trigger": "MS",
        "--max-offsets-per-trigger": "OFFSETS",
        "--abort-budget-per-hour": "COUNT",
        "--checkpoint": "DIR",
        "--census-topics": "REGEX",
        "--auto-abort": "{off,dry-run,on}",
        "--events-format": "{json,avro,confluent-avro}",
    }.items(),
)
def test_the_placeholder_of_a_setting_is_what_it_takes(
    flag: str, placeholder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    assert f"{flag} {placeholder}" in capsys.readouterr().out


SHORT = {"--bootstrap-server": "-b", "--format": "-o"}


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_the_short_form_of_a_flag_that_it_has(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    shown = capsys.readouterr().out
    has = {long: short for long, short in SHORT.items() if f" {long} " in shown}
    assert {short for short in SHORT.values() if re.search(rf"^  {short}[ ,]", shown, re.MULTILINE)} == {*has.values()}
    assert has or command in {"completion", "prepare"}


@pytest.mark.parametrize("flag", [("-o", "json"), ("--format", "json")])
def test_both_forms_give_the_same_answer(flag: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", "--file", "/dev/null", *flag]) == 0
    assert capsys.readouterr().out.startswith('{"command": "decode"')


def takes_several(command: str) -> bool:
    """Whether the usage of a command has names that may be repeated."""
    with redirect_stdout(io.StringIO()) as shown, suppress(SystemExit):
        main([command, "--help"])
    usage, _, _ = shown.getvalue().partition("\n\n")
    return re.search(r"\[[A-Z]+ \.\.\.\]", usage) is not None


NAMES_OF = {"describe": "ids", "explain": "target", "owners": "names"}


def names_in(taken: argparse.Namespace, command: str) -> list[str]:
    """The names of a command; `explain` takes several words as one."""
    found = getattr(taken, NAMES_OF[command])
    return found.split(" ") if isinstance(found, str) else list(found)


ORDERS = {
    "flags first": ("-b", "S", "-o", "json", "A", "B"),
    "flags last": ("A", "B", "-b", "S", "-o", "json"),
    "a flag between": ("A", "-b", "S", "B", "-o", "json"),
    "flags between": ("A", "-b", "S", "-o", "json", "B"),
    "a flag with its value": ("-o", "json", "A", "--bootstrap-server=S", "B"),
    "behind --": ("-b", "S", "-o", "json", "--", "A", "B"),
}


@pytest.mark.parametrize("command", NAMES_OF)
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
def test_flags_may_be_between_names(command: str, order: tuple[str, ...]) -> None:
    taken = parser([command]).parse_args([command, *order])
    found = (names_in(taken, command), taken.bootstrap_server, taken.format)
    assert found == (["A", "B"], "S", "json")


@pytest.mark.parametrize("command", NAMES_OF)
def test_an_unknown_flag_between_names_is_a_usage_error(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "A", "--no-such-flag", "B", "-b", "S"])
    assert ended.value.code == 2
    assert "unrecognized arguments: --no-such-flag" in capsys.readouterr().err


@pytest.mark.parametrize("command", NAMES_OF)
def test_what_follows_two_dashes_is_a_name(command: str) -> None:
    taken = parser([command]).parse_args([command, "-b", "S", "--", "-A", "--B"])
    assert names_in(taken, command) == ["-A", "--B"]


def test_these_are_the_commands_with_several_names() -> None:
    assert [command for command in COMMANDS if takes_several(command)] == [*NAMES_OF]
