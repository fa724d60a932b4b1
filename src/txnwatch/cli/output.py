"""What a command writes: its answer (a table for people, or one JSON envelope for programs), its log and its errors.

`run` writes its log to standard output: lines for people, or one JSON object per line for programs (`--log-format`).
The other commands write their warnings for people to standard error, because standard output has the answer. Spark's
output goes to a file of its own (streaming/job), and the HTTP server writes no log of requests.

Law: table and envelope come from the same rows, so that they cannot disagree. A row is a frozen dataclass; its field
names are the JSON keys and, in Kafka's spelling, the headings. Times are epoch milliseconds in JSON and UTC in the
table; only this module converts them. What could not be checked is part of the answer and makes it incomplete. What a
filter left out is counted: otherwise a narrow query would look like an all-clear. Text that others wrote is escaped
here, once, for the terminal or for JSON. A column that only `--wide` shows is in JSON too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple, Protocol, TextIO, TypeVar, get_args, get_type_hints, runtime_checkable

from txnwatch import __version__
from txnwatch.cli.table_layout import NONE, Column, table_lines
from txnwatch.state.model.errors import OutputError
from txnwatch.state.model.incident import Action, GroupState, IncidentEvent, IncidentStatus
from txnwatch.state.model.values import LAST_TIME_MS, DurationMs, TimestampMs
from txnwatch.state.model.verdicts import Verdict
from txnwatch.state.telling.hurt import CONNECT_STOPS
from txnwatch.state.text import cut, grouped, printable, redacted, some, some_names, two_units

_LONGEST_ON_TERMINAL = 60  # of a name in a table


def _width_of(stream: TextIO) -> int | None:
    """The width of the terminal in columns; None if the stream is no terminal."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


# An incident event as one line of text.

_GROUPS_NAMED, _PARTITIONS_NAMED = 2, 20  # that are named; the event has all
_ALL_GROUPS = "`txnwatch status` names all"


def event_line(event: IncidentEvent) -> str:
    """Time, verdict, place, owner and effect of an event; names are cut, and control characters are escaped."""
    parts = (utc(event.time_ms), _headline(event), where(event), *_details(event))
    return printable("  ".join(part for part in parts if part))


def utc(time_ms: TimestampMs) -> str:
    """A time in UTC; a value outside the range of dates stays a number, because a client's clock can have any value."""
    if not 0 <= time_ms <= LAST_TIME_MS:
        return f"{time_ms} ms"
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}.{time_ms % 1000:03d}Z"


def duration(milliseconds: DurationMs) -> str:
    """A duration in its two largest units."""
    seconds, millis = divmod(max(0, milliseconds), 1000)
    return f"{seconds}.{millis // 100}s" if seconds < 60 else two_units(seconds)


def where(event: IncidentEvent) -> str:
    """The partition and the start offset, or the state of a transaction as a whole."""
    if event.topic is None:
        return str(event.transaction_state)
    return f"{event.topic}-{event.partition}@{event.txn_start_offset}"


def owner(event: IncidentEvent) -> str:
    """The owner: transactional id, producer id, epoch."""
    name = cut(event.transactional_id) if event.transactional_id is not None else "(no transactional id)"
    return f"{name} (producer id {event.producer_id}, epoch {event.producer_epoch})"


def _headline(event: IncidentEvent) -> str:
    reason = f"/{event.reason}" if event.reason is not None else ""
    return f"{event.status.upper():8}  {event.verdict}{reason}"


def _details(event: IncidentEvent) -> tuple[str, ...]:
    if event.resolution is not None:
        marker = event.resolution.marker_offset
        at = f" by the marker at {marker}" if marker is not None else ""
        return (owner(event), f"{event.resolution.how}{at}, open for at least {duration(event.age_ms)}")
    if event.topic is None:
        named = some(event.pending_partitions, _PARTITIONS_NAMED)
        pending = f"markers outstanding: {named}" if named else ""
        return (owner(event), _to_call(event), f"open for at least {duration(event.age_ms)}", pending)
    connect = f"{CONNECT_STOPS} ({event.connect.setting})" if event.connect is not None else ""
    effect = (_stopped(event), _waiting(event), connect, _hidden(event))
    return (owner(event), _to_call(event), _held(event), *effect, _since(event))


def _to_call(event: IncidentEvent) -> str:
    return f"call {event.owner.whom_to_call}" if event.owner is not None else ""


def _since(event: IncidentEvent) -> str:
    if event.action is not None:
        return _decision(event.action)
    if event.status is IncidentStatus.OPENED:
        return f"detected in {duration(event.detection_latency_ms)}"
    return f"open for at least {duration(event.age_ms)}"


def _held(event: IncidentEvent) -> str:
    """Why there is no suggested command: the producer's next transaction holds the span."""
    held = event.verdict == Verdict.HANGING and event.suggested_command is None
    return f"held by its producer's next transaction ({event.transaction_state})" if held else ""


def _stopped(event: IncidentEvent) -> str:
    return _groups("stopped", [group.group_id for group in event.consumer_groups if group.state is GroupState.STOPPED])


def _waiting(event: IncidentEvent) -> str:
    return _groups("waiting for their offsets", [group.group_id for group in event.waiting_groups])


def _groups(label: str, names: Sequence[str]) -> str:
    if not names:
        return ""
    where = f" ({_ALL_GROUPS})" if len(names) > _GROUPS_NAMED else ""
    return f"{label}: {some_names(names, _GROUPS_NAMED)}{where}"


def _hidden(event: IncidentEvent) -> str:
    return f"{event.hidden_records} records hidden" if event.hidden_records is not None else ""


def _decision(action: Action) -> str:
    """The abort decision about an open incident, and its result."""
    came_to = action.refusal or action.result or ("announced" if action.is_marker else None)
    return f"{action.decision}: {came_to}" if came_to is not None else str(action.decision)


# The answer of a command, and its exit code.

CLEAN, FAILURE, USAGE, FOUND, UNWATCHED, REFUSED = 0, 1, 2, 3, 4, 5
_NAMED = 5  # names of each reason in the text output; JSON has all of them


class FieldStyle(NamedTuple):
    """How the text output shows a field: rendered or, if `render` is None, on a separate line below the table.

    With `is_shown` False the table does not show it, because what is below it has it in another order. `is_name` is
    whether a client has chosen the value.
    """

    render: Callable[[Any], str] | None
    is_shown: bool = True
    is_name: bool = False


def _duration(value: DurationMs) -> str:
    return duration(value) if value >= 0 else NONE  # the two clocks of the difference disagree


Time = Annotated[TimestampMs, FieldStyle(utc)]
Duration = Annotated[DurationMs, FieldStyle(_duration)]
AtLeast = Annotated[DurationMs, FieldStyle(lambda value: f"at least {duration(value)}")]
Line = Annotated[str, FieldStyle(None)]
IN_NOTES = FieldStyle(None, is_shown=False)
R = TypeVar("R")
TOLD = "told"  # the field of a row with what is said about it, which is shown below the table; see `blocks`
DETAIL = "detail"  # Annotated[..., DETAIL]: a column that leaves the row if the table is too wide
WIDE = "wide"  # Annotated[..., WIDE]: a column that only `--wide` shows
_NAMES_IN_CELL = 3


def _names(value: tuple[str, ...]) -> str:
    return some_names(value, _NAMES_IN_CELL) or NONE


Name = Annotated[str, FieldStyle(cut, is_name=True)]  # that a client has chosen
Names = Annotated[tuple[str, ...], FieldStyle(_names, is_name=True)]


class _Column(NamedTuple):
    render: Callable[[Any], str] | None
    has_unit: bool
    is_detail: bool
    is_wide: bool
    is_name: bool


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
        return not self.not_checked and not self.unwatched

    def exit_code(self, *, fail_on_found: bool) -> int:
        """3 for a finding with `--fail-on-found`, 4 if unwatched, 1 for a failure or an incomplete answer, else 0."""
        if fail_on_found and self.found and not self.failed:
            return FOUND
        if self.unwatched:
            return UNWATCHED
        return CLEAN if self.is_complete and not self.failed else FAILURE


def write(answer: CommandAnswer, how: str, out: TextIO | None = None, *, is_wide: bool = False) -> None:
    """Writes the answer as `text` or `json`, by default to standard output.

    `is_wide`: the text has every column, and one line for each row.
    """
    stream = sys.stdout if out is None else out
    with delivering():
        if how == "json":
            print(json_text(envelope(answer)), file=stream, flush=True)
        else:
            _write_text(answer, stream, is_wide=is_wide)


def json_text(value: Any, **how: Any) -> str:  # noqa: ANN401 - whatever json takes
    """The value as one line of JSON that is safe on a terminal; a JSON reader gets the same value."""
    written = json.dumps(value, ensure_ascii=False, **how)
    if written.isprintable():
        return written
    return "".join(sign if sign.isprintable() else json.dumps(sign)[1:-1] for sign in written).replace(
        "\x7f", "\\u007f"
    )


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
        "rows": [_row_json(row) for row in answer.rows],
        **answer.also,
    }


def row_of(row_type: type[R], event: IncidentEvent, **more: Any) -> R:  # noqa: ANN401 - the fields of a row
    """A row about an incident: its fields of the same names, its owner, and `more`."""
    names = {spec.name for spec in dataclasses.fields(row_type)}  # type: ignore[arg-type]
    owner, application = event.owner, event.application
    fields = {
        **{name: getattr(event, name, None) for name in names},
        "owner": owner.team if owner is not None else None,
        "contact": owner.contact if owner is not None else None,
        "application": application.text if application is not None else None,
        **more,
    }
    return row_type(**{name: value for name, value in fields.items() if name in names})


def _row_json(row: Any) -> dict[str, Any]:  # noqa: ANN401 - any dataclass
    """The fields of a row; what is told about it is a member for each kind of statement."""
    fields = dataclasses.asdict(row)
    if fields.pop(TOLD, None) is None:
        return fields
    from txnwatch.state.telling.renderings import as_json  # noqa: PLC0415 - the simplest queries tell nothing

    return {**fields, **as_json(row.told)}


def _write_text(answer: CommandAnswer, stream: TextIO, *, is_wide: bool) -> None:
    if issubclass(answer.row_type, Prose):
        for row in answer.rows:
            print(*(printable(line) for line in row.lines()), sep="\n", file=stream)
    else:
        _write_table(answer, stream, is_wide=is_wide)
    for why, names in grouped(answer.not_checked).items():
        print(printable(f"not checked: {some_names(names, _NAMED)}: {why}"), file=stream)
    for kept in answer.left_out:
        print(printable(f"left out: {kept.count} {kept.what}: {kept.why}"), file=stream)
    for line in answer.notes:
        print(printable(line), file=stream)
    if answer.summary:
        print(printable(answer.summary), file=stream)
    stream.flush()


def _write_table(answer: CommandAnswer, stream: TextIO, *, is_wide: bool) -> None:
    shown = {name: how for name, how in _shown(answer.row_type).items() if is_wide or not how.is_wide}
    in_row = {name: how for name, how in shown.items() if how.render is not None}
    columns = [
        Column(heading(name.removesuffix("_ms") if how.has_unit else name), how.is_detail)
        for name, how in in_row.items()
    ]
    width = None if is_wide else _width_of(stream)
    rows = [[_cell(getattr(row, name), how, width) for name, how in in_row.items()] for row in answer.rows]
    print(*table_lines(columns, rows, width), sep="\n", file=stream)
    below = [name for name in shown if name not in in_row]
    lines = (f"{name}: {getattr(row, name)}" for row in answer.rows for name in below if getattr(row, name))
    for line in (*dict.fromkeys(lines), *_told_below(answer)):
        print(printable(line), file=stream)


def _told_below(answer: CommandAnswer) -> Iterable[str]:
    """What is said about each row of a table whose rows say something."""
    if TOLD not in answer.row_type.__annotations__:
        return ()
    from txnwatch.state.telling.renderings import blocks  # noqa: PLC0415 - as above

    return blocks((row.subject, row.told) for row in answer.rows)


def heading(name: str) -> str:
    """A field's name as Kafka's tools write it: `transactional_id` is TransactionalId."""
    return "".join(part.capitalize() for part in name.split("_"))


def _shown(row_type: type) -> dict[str, _Column]:
    hints = get_type_hints(row_type, include_extras=True)
    columns = {spec.name: _column(hints[spec.name]) for spec in dataclasses.fields(row_type)}
    return {name: column for name, column in columns.items() if column is not None}


def _column(hint: Any) -> _Column | None:  # noqa: ANN401 - any type of a field, with None or without
    marks = list(_marks(hint))
    how = next((mark for mark in marks if isinstance(mark, FieldStyle)), None)
    if how is not None and not how.is_shown:
        return None
    render = how.render if how is not None else _plain
    is_name = how is not None and how.is_name
    return _Column(render, how is not None, is_detail=DETAIL in marks, is_wide=WIDE in marks, is_name=is_name)


def _marks(hint: Any) -> Iterator[object]:  # noqa: ANN401 - as above
    yield from getattr(hint, "__metadata__", ())
    for part in get_args(hint):
        yield from _marks(part)


def _cell(value: Any, how: _Column, width: int | None) -> str:  # noqa: ANN401 - any field of a row
    if value is None or how.render is None:
        return NONE
    if how.is_name and width is not None:
        is_one = isinstance(value, str)
        value = cut(value, _LONGEST_ON_TERMINAL) if is_one else tuple(cut(item, _LONGEST_ON_TERMINAL) for item in value)
    return printable(how.render(value))


def _plain(value: Any) -> str:  # noqa: ANN401 - any field of a row
    if isinstance(value, tuple | list):
        return ",".join(str(part) for part in value) or NONE
    return str(value).lower() if isinstance(value, bool) else str(value)


# The log: of `run` on standard output, and of the other commands on standard error.

LOG = logging.getLogger("txnwatch")
TEXT, JSON = "text", "json"
_INCIDENT, _STEP = "incident", "step"
_ERASED = "\r\x1b[K"  # the cursor at the beginning of a line that is empty again


def log_to_stdout(log_format: str) -> None:
    """Writes everything from INFO up to standard output, as `text` or `json`; replaces an earlier call."""
    _write_to(_Lines(), _JsonFormatter() if log_format == JSON else _TextFormatter(), logging.INFO)


def log_to_stderr() -> None:
    """Writes warnings to standard error, as lines for people; replaces an earlier call."""
    _write_to(_ErrorLines(), _CommandFormatter(), logging.WARNING)


def _write_to(handler: logging.Handler, formatter: logging.Formatter, level: int) -> None:
    handler.setFormatter(formatter)
    LOG.handlers[:] = [handler]
    LOG.setLevel(level)
    LOG.propagate = False


def print_error(error: Exception) -> None:
    """Writes the error that ends a command to standard error: one line, or a JSON object if the log has JSON."""
    line = f"txnwatch: {printable(redacted(str(error)))}"
    for handler in LOG.handlers:
        if isinstance(handler.formatter, _JsonFormatter):
            line = handler.format(LOG.makeRecord(LOG.name, logging.ERROR, "", 0, str(error), (), None))
    print(line, file=sys.stderr)


def log_incident(event: IncidentEvent) -> None:
    """Writes an incident event to the log."""
    LOG.getChild("events").info(event_line(event), extra={_INCIDENT: event})


def log_step(message: str) -> None:
    """Writes what a start does now: a line of the log, or on a terminal a line that the next one replaces."""
    LOG.info(message, extra={_STEP: True})


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self._shows_step = False

    def emit(self, record: logging.LogRecord) -> None:
        """Prints a line; a failure (a full disk) does not end the watch, because events are on their topic."""
        before, self._shows_step = self._shows_step, hasattr(record, _STEP) and self._is_on_terminal()
        with contextlib.suppress(OutputError), delivering():
            text, end = self.format(record), "" if self._shows_step else "\n"
            print(f"{_ERASED if before else ''}{text}", end=end, flush=True)

    def _is_on_terminal(self) -> bool:
        return isinstance(self.formatter, _TextFormatter) and sys.stdout.isatty()


class _ErrorLines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """Prints a line; a failure does not end the command, because its answer is on standard output."""
        with contextlib.suppress(OSError):
            print(self.format(record), file=sys.stderr, flush=True)


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Time and message; a warning is marked. The line of an incident has its own time."""
        if hasattr(record, _INCIDENT):
            return record.getMessage()
        mark = "warning: " if record.levelno >= logging.WARNING else ""
        return printable(redacted(f"{_time(record)}  {mark}{record.getMessage()}"))


class _CommandFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Program, level and message."""
        return printable(redacted(f"txnwatch: {record.levelname.lower()}: {record.getMessage()}"))


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Time, level, logger and message; the fields of an incident event as `incident`, whole and as they are."""
        event, message = getattr(record, _INCIDENT, None), record.getMessage()
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redacted(message) if event is None else message,
        }
        if event is not None:
            line["incident"] = asdict(event)
        return json_text(line)


def _time(record: logging.LogRecord) -> str:
    return utc(TimestampMs(int(record.created * 1000)))
