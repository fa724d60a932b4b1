"""The answer of a command, as a table for people or as one JSON envelope for programs.

Law: both come from the same rows, so that they cannot disagree. A row is a frozen dataclass; its field names are the
JSON keys and, in Kafka's spelling, the headings. Times are epoch milliseconds in JSON and UTC in the table; only this
module converts them. What could not be checked is part of the answer and makes it incomplete. What a filter left out is
counted: otherwise a narrow query would look like an all-clear. Text that others wrote is escaped here, once, for the
terminal or for JSON.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, Protocol, TextIO, get_args, get_type_hints, runtime_checkable

from txnwatch import __version__
from txnwatch.cli.event_lines import duration, utc
from txnwatch.cli.tables import NONE, Column, table_lines, width_of
from txnwatch.state.model.errors import OutputError
from txnwatch.state.model.quantities import DurationMs, TimestampMs
from txnwatch.state.text.escape import json_text, printable
from txnwatch.state.text.lists import by_reason

CLEAN, FAILURE, USAGE, FOUND, UNWATCHED = 0, 1, 2, 3, 4
_NAMED = 5  # names of each reason in the text output; JSON has all of them


class FieldStyle(NamedTuple):
    """How the text output shows a field: rendered or, if `render` is None, on a separate line below the table."""

    render: Callable[[Any], str] | None


def _duration(value: DurationMs) -> str:
    return duration(value) if value >= 0 else NONE  # the two clocks of the difference disagree


Time = Annotated[TimestampMs, FieldStyle(utc)]
Duration = Annotated[DurationMs, FieldStyle(_duration)]
Line = Annotated[str, FieldStyle(None)]
DETAIL = "detail"  # Annotated[..., DETAIL]: a column that leaves the row if the table is too wide


class _Column(NamedTuple):
    render: Callable[[Any], str] | None
    has_unit: bool
    is_detail: bool


class NotChecked(NamedTuple):
    """Something that the answer does not cover although it should, and why."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something that was found but that a flag excludes from the answer."""

    count: int
    what: str
    why: str


@runtime_checkable
class Prose(Protocol):
    """A row whose text output is lines of text, not a line of a table."""

    def lines(self) -> Iterable[str]:
        """The row as lines of text."""


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """The result of one command.

    Attributes:
        row_type: the dataclass of every row; it gives the headings of a table without rows.
        summary: one line of the text output, below the table.
        found: whether there is a finding for `--fail-on-found`.
        failed: whether the result is a failure with or without `--fail-on-found`.
        left_out: what the flags excluded from the rows. The answer is still complete: the user requested it so.
        notes: more lines of the text output, above the summary.
        also: more objects of the JSON output, by their key in the envelope.
        unwatched: whether no watcher evaluates barriers, so that an empty answer proves nothing.
    """

    command: str
    cluster_id: str
    row_type: type
    rows: Sequence[Any]
    not_checked: tuple[NotChecked, ...] = ()
    summary: str = ""
    found: bool = False
    failed: bool = False
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()
    also: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    unwatched: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether everything could be checked."""
        return not self.not_checked

    def exit_code(self, *, fail_on_found: bool) -> int:
        """3 for a finding with `--fail-on-found`, 4 if unwatched, 1 for a failure or an incomplete answer, else 0."""
        if fail_on_found and self.found and not self.failed:
            return FOUND
        if self.unwatched:
            return UNWATCHED
        return CLEAN if self.is_complete and not self.failed else FAILURE


def write(answer: CommandAnswer, how: str, out: TextIO | None = None, *, is_wide: bool = False) -> None:
    """Writes the answer as `text` or `json`, by default to standard output; `is_wide`: one line for each row."""
    stream = sys.stdout if out is None else out
    with delivering():
        if how == "json":
            print(json_text(envelope(answer)), file=stream, flush=True)
        else:
            _write_text(answer, stream, None if is_wide else width_of(stream))


@contextmanager
def delivering() -> Iterator[None]:
    """Raises OutputError for a failed write; use it only around writes to standard output.

    Raises:
        BrokenPipeError: the reader has closed the pipe.
        OutputError: the write failed, for example because a disk is full.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as exc:
        raise OutputError(f"expected to write the answer to standard output, found: {exc.strerror}") from exc


def envelope(answer: CommandAnswer) -> dict[str, Any]:
    """The JSON envelope of the answer."""
    return {
        "command": answer.command,
        "version": __version__,
        "cluster_id": answer.cluster_id,
        "complete": answer.is_complete,
        "not_checked": [missing._asdict() for missing in answer.not_checked],
        "left_out": [dataclasses.asdict(kept) for kept in answer.left_out],
        "rows": [dataclasses.asdict(row) for row in answer.rows],
        **answer.also,
    }


def _write_text(answer: CommandAnswer, stream: TextIO, width: int | None) -> None:
    if issubclass(answer.row_type, Prose):
        for row in answer.rows:
            print(*(printable(line) for line in row.lines()), sep="\n", file=stream)
    else:
        _write_table(answer, stream, width)
    for line in by_reason(answer.not_checked, _NAMED):
        print(f"not checked: {printable(line)}", file=stream)
    for kept in answer.left_out:
        print(printable(f"left out: {kept.count} {kept.what}: {kept.why}"), file=stream)
    for line in answer.notes:
        print(printable(line), file=stream)
    if answer.summary:
        print(printable(answer.summary), file=stream)
    stream.flush()


def _write_table(answer: CommandAnswer, stream: TextIO, width: int | None) -> None:
    shown = _shown(answer.row_type)
    in_row = {name: how for name, how in shown.items() if how.render is not None}
    columns = [
        Column(heading(name.removesuffix("_ms") if how.has_unit else name), how.is_detail)
        for name, how in in_row.items()
    ]
    rows = [[_text(getattr(row, name), how.render) for name, how in in_row.items()] for row in answer.rows]
    print(*table_lines(columns, rows, width), sep="\n", file=stream)
    below = [name for name in shown if name not in in_row]
    lines = (f"{name}: {getattr(row, name)}" for row in answer.rows for name in below if getattr(row, name))
    for line in dict.fromkeys(lines):
        print(printable(line), file=stream)


def heading(name: str) -> str:
    """A field's name as Kafka's tools write it: `transactional_id` is TransactionalId."""
    return "".join(part.capitalize() for part in name.split("_"))


def _shown(row_type: type) -> dict[str, _Column]:
    hints = get_type_hints(row_type, include_extras=True)
    return {spec.name: _column(hints[spec.name]) for spec in dataclasses.fields(row_type)}


def _column(hint: Any) -> _Column:  # noqa: ANN401 - any type of a field, with None or without
    marks = list(_marks(hint))
    how = next((mark for mark in marks if isinstance(mark, FieldStyle)), None)
    return _Column(how.render if how is not None else _plain, has_unit=how is not None, is_detail=DETAIL in marks)


def _marks(hint: Any) -> Iterator[object]:  # noqa: ANN401 - as above
    yield from getattr(hint, "__metadata__", ())
    for part in get_args(hint):
        yield from _marks(part)


def _text(value: Any, render: Callable[[Any], str] | None) -> str:  # noqa: ANN401 - any field of a row
    return NONE if value is None or render is None else printable(render(value))


def _plain(value: Any) -> str:  # noqa: ANN401 - any field of a row
    if isinstance(value, tuple | list):
        return ",".join(str(part) for part in value) or NONE
    return str(value).lower() if isinstance(value, bool) else str(value)
