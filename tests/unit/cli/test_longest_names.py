"""The longest names that Kafka takes, through every formatter: what is shown is short, and the work has a bound.

Work is counted, not timed: calls of functions, also of C functions. What is for programs has the whole names.
"""

from __future__ import annotations

import dataclasses
import importlib
import io
import json
import logging
import pkgutil
import sys
from collections.abc import Callable, Iterator
from typing import Any, get_args, get_type_hints

import pytest

from support.incidents import an_event
from support.log_lines import log_restored
from txnwatch import cli
from txnwatch.cli import (
    list as list_command,
)
from txnwatch.cli import (
    output,
    status,
)
from txnwatch.cli.doctor_rows import CheckRow, owner_rows
from txnwatch.cli.output import CommandAnswer, Name, NotChecked, Prose, event_line, write
from txnwatch.owners.owner_table import OwnerTable
from txnwatch.page import words
from txnwatch.push.alertmanager import alert_of
from txnwatch.push.push_file import AlertmanagerTarget
from txnwatch.push.webhook import LONGEST_ATTRIBUTE, binary, structured
from txnwatch.sinks.delivery.encoding import to_json
from txnwatch.state.model.incident import AffectedGroup, GroupState, IncidentEvent, WaitingGroup
from txnwatch.state.model.values import Offset
from txnwatch.state.telling.renderings import without_commands
from txnwatch.state.telling.statements import tell
from txnwatch.state.text import LONGEST_MESSAGE, LONGEST_NAME, printable, redacted, shell_line

LONGEST, LONGEST_TOPIC = 32_767, 249
TARGET = AlertmanagerTarget(name="main", urls=["https://alertmanager.example"])
# Usual text, what the patterns look for, what is escaped, and what is markup.
FORMS = ("a", "token", "secret-", "a://b@", 'password="', "\x01", "\u202e", "*_[", "\U0001f600")
WORDS = 8  # characters that a name of usual length has
# An escape of a character takes a few calls, and a table shows some names in each row.
MOST_CALLS = 10 * LONGEST_MESSAGE


def of_length(form: str, length: int) -> str:
    return (form * length)[:length]


def test_a_long_id_widens_no_table_of_doctor() -> None:
    stream = io.StringIO()
    rows = list(owner_rows(["x" * 4_000], OwnerTable()))
    write(CommandAnswer("doctor", "cluster", CheckRow, rows), "text", stream)
    assert max(map(len, stream.getvalue().splitlines())) < 3 * LONGEST_NAME


def event_of(form: str, length: int) -> IncidentEvent:
    """An event whose names have this length, or the longest that Kafka takes of its kind."""
    name = of_length(form, length)
    groups = tuple(
        AffectedGroup(
            group_id=f"{number}{name[1:]}", state=GroupState.STOPPED, committed_offset=Offset(1), hidden_lag=1
        )
        for number in range(5)
    )
    return dataclasses.replace(
        an_event(transactional_id=name, topic="t" * min(length, LONGEST_TOPIC)),
        consumer_groups=groups,
        waiting_groups=(WaitingGroup(group_id=name),),
        suggested_command=shell_line(["txnwatch", "explain", "--transactional-id", name]),
    )


def logged(form: str, message: str, **extra: Any) -> str:
    """The line of the log of `run`, as TEXT or JSON."""
    with log_restored():
        output.log_to_stdout(form)
        (handler,) = output.LOG.handlers
        return handler.format(output.LOG.makeRecord("txnwatch", logging.WARNING, "", 0, message, (), None, extra=extra))


def table(event: IncidentEvent) -> str:
    groups = tuple(group.group_id for group in event.consumer_groups)
    fields = {spec.name: None for spec in dataclasses.fields(status.OpenIncident)}
    fields |= {name: getattr(event, name) for name in ("verdict", "topic", "partition", "transactional_id")}
    row = status.OpenIncident(
        **{**fields, "stopped_groups": groups, "waiting_groups": groups, "told": without_commands(tell(event))}
    )  # type: ignore[arg-type]
    out = io.StringIO()
    name = event.transactional_id or ""
    missing = (NotChecked(f"transactional id {name}", "its coordinator is away"),)
    write(CommandAnswer("status", "cluster", status.OpenIncident, [row] * 2, missing), "text", out)
    return out.getvalue()


def pushed(event: IncidentEvent) -> str:
    found = alert_of(event, TARGET, event.time_ms)
    return json.dumps([found.labels, {**found.annotations, "command": ""}], ensure_ascii=False)


def headers(event: IncidentEvent) -> str:
    return max((value for _, value in binary(event).headers), key=len)


def shown_on_page(event: IncidentEvent) -> str:
    parts = [words.holder(event), *words.groups(event, GroupState.STOPPED), *words.waiting(event), *words.places(event)]
    return " ".join(parts)


SHOWN: dict[str, Callable[[IncidentEvent], str]] = {
    "line of an incident": event_line,
    "log as text": lambda event: logged(output.TEXT, event_line(event), incident=event),
    "warning as text": lambda event: logged(output.TEXT, f"refused: {event.transactional_id}"),
    "warning as JSON": lambda event: logged(output.JSON, f"refused: {event.transactional_id}"),
    "error of a library": lambda event: printable(redacted(f"refused: {event.transactional_id}")),
    "table of a command": table,
    "alert": pushed,
    "header of a web hook": headers,
    "page": shown_on_page,
}
WHOLE: dict[str, Callable[[IncidentEvent], str]] = {
    "log as JSON": lambda event: logged(output.JSON, event_line(event), incident=event),
    "event as JSON": lambda event: to_json(event).decode(),
    "web hook": lambda event: structured(event).body.decode(),
}


def calls(work: Callable[[], object]) -> int:
    """The calls of functions that some work takes."""
    counted = 0

    def count(_: object, what: str, __: object) -> None:
        nonlocal counted
        counted += what in {"call", "c_call"}

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counted


@pytest.mark.parametrize("form", FORMS, ids=ascii)
@pytest.mark.parametrize("name", SHOWN)
def test_what_is_shown_of_the_longest_names_is_short_and_cheap(name: str, form: str) -> None:
    show, event = SHOWN[name], event_of(form, LONGEST)
    assert len(show(event)) <= 14 * LONGEST_MESSAGE
    assert calls(lambda: show(event)) < calls(lambda: show(event_of(form, WORDS))) + MOST_CALLS
    if "warning" not in name and "error" not in name and "table" not in name:
        assert len(show(event)) <= 60 * LONGEST_NAME
    if name == "header of a web hook":
        assert len(show(event)) <= 12 * LONGEST_ATTRIBUTE


@pytest.mark.parametrize("form", FORMS, ids=ascii)
@pytest.mark.parametrize("name", WHOLE)
def test_a_program_gets_the_whole_names_for_work_in_proportion(name: str, form: str) -> None:
    write_out, event = WHOLE[name], event_of(form, LONGEST)
    found = json.loads(write_out(event))
    found = found.get("incident", found.get("data", found))
    assert found["transactional_id"] == event.transactional_id
    assert found["waiting_groups"][0]["group_id"] == event.transactional_id
    half = calls(lambda: write_out(event_of(form, LONGEST // 2)))
    assert calls(lambda: write_out(event)) < 2.2 * half + 1_000


def test_the_fields_of_an_event_are_never_redacted() -> None:
    name = "token=7 https://u:p@host"
    event = an_event(transactional_id=name)
    found = json.loads(logged(output.JSON, event_line(event), incident=event))
    assert found["incident"]["transactional_id"] == name
    assert name in found["message"]
    assert "***" in json.loads(logged(output.JSON, name))["message"]


OF_CLIENTS = {"transactional_id", "name", "group_id"}


def rows_of_tables() -> Iterator[Any]:
    """Each field of a dataclass of a command that a client has named, if the dataclass is no prose."""
    for module in pkgutil.iter_modules(cli.__path__, f"{cli.__name__}."):
        for found in vars(importlib.import_module(module.name)).values():
            is_row = isinstance(found, type) and dataclasses.is_dataclass(found) and not issubclass(found, Prose)
            if is_row and found.__module__ == module.name:
                names = OF_CLIENTS & {spec.name for spec in dataclasses.fields(found)}
                yield from (pytest.param(found, name, id=f"{found.__name__} {name}") for name in names)


@pytest.mark.parametrize(("row", "field"), list(rows_of_tables()))
def test_a_column_with_a_name_of_a_client_is_cut(row: type, field: str) -> None:
    hint = get_type_hints(row, include_extras=True)[field]
    assert Name in (hint, *get_args(hint))


def test_one_long_name_does_not_make_every_row_of_a_table_long() -> None:
    rows = [
        list_command.ListedRow(name, 1, number, "Ongoing", None, None)
        for number, name in enumerate(("x" * LONGEST, *map(str, range(500))))
    ]
    out = io.StringIO()
    write(CommandAnswer("list", "cluster", list_command.ListedRow, rows), "text", out, is_wide=True)
    assert len(out.getvalue()) < 502 * 2 * LONGEST_NAME


@pytest.mark.parametrize("length", [LONGEST_NAME + 1, LONGEST])
def test_a_formatter_that_does_not_cut_is_found(length: int) -> None:
    """The planted bug: the whole name in the line."""
    event = event_of("\x01", length)
    assert len(printable(f"refused: {event.transactional_id}")) > 4 * LONGEST_NAME
    whole = calls(lambda: printable(event.transactional_id or ""))
    assert (whole > calls(lambda: printable("\x01" * WORDS)) + MOST_CALLS) is (length == LONGEST)
