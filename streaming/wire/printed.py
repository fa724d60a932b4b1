r"""What is printed: bytes that people copy as text, and records of `__transaction_state` by Kafka's own tools.

`bytes_of` reads bytes that are copied from a terminal, a notebook or a log: hexadecimal, with or without 0x, \x,
blanks, colons or commas; a dump of `xxd` or `hexdump -C`; a string with escapes, with or without the `b'...'` of
Python; base64.

`printed_records` reads what `kafka-dump-log.sh --transaction-log-decoder` and the console consumer with its
`TransactionLogMessageFormatter` print: JSON in newer releases, and `name=value` pairs in older ones. Other lines of
these tools are skipped.

Law: the text may be from anybody. A number is taken only if it fits its field. What is no record is a `PrintedProblem`
with its line, and the lines after it are still read.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.text import printable
from txnwatch.streaming.wire.primitives import present

# Bytes as text.

FORMS = r"also read: a dump of xxd or hexdump -C, b'...', \x00\x01"
_START = 40

_HEX = re.compile(r"(?:[0-9a-fA-F]{2})*")
_DIGITS = re.compile(r"[0-9a-fA-F]+")
_QUOTED = re.compile(r"""(?:bytearray\()?([bxX]?)(["'])(.*)\2\)?""", re.DOTALL)
_BYTEA = re.compile(r"\\x(?:[0-9a-fA-F]{2})*")
_SPACED = re.compile(r"(?:\\x[0-9a-fA-F]{2}\s+)+\\x[0-9a-fA-F]{2}")
_ESCAPE = re.compile(r"\\x([0-9a-fA-F]{2})|\\([0-7]{1,3})|\\([\\'\"abtnvfr])|([ -\[\]-~])")
_NAMED = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "\\": 92, "'": 39, '"': 34}
_SEPARATOR = re.compile(r"(?<![0-9a-fA-F])0x|[\s:,\[\]]")
# A line of a dump: address, bytes, and the same bytes as characters.
_XXD_LINE = re.compile(r"([0-9a-fA-F]{4,16}): ?((?:[0-9a-fA-F]{2})+(?: (?:[0-9a-fA-F]{2})+)*)(?:  .*|\s*)")
_HEXDUMP_LINE = re.compile(r"([0-9a-fA-F]{6,16})((?:\s+[0-9a-fA-F]{2})*)\s*(?:\|.*\|?|>.*<?)?")


def bytes_of(text: str) -> bytes:
    """The bytes that a text shows.

    Raises:
        ValueError: the text has none of the forms.
    """
    text = text.strip()
    dumped = _dumped(text)
    if dumped is not None:
        return dumped
    quoted = _QUOTED.fullmatch(text)
    mark, inner = (quoted[1].lower(), quoted[3]) if quoted else ("", text)
    if "\\" in inner or mark == "b":
        return _escaped(inner, is_quoted=quoted is not None)
    bare = _SEPARATOR.sub("", inner)
    if _HEX.fullmatch(bare):
        return bytes.fromhex(bare)
    if _DIGITS.fullmatch(bare):
        raise ValueError(f"an odd number of hexadecimal digits ({len(bare)}): one is missing")
    return _base64(inner)


def _dumped(text: str) -> bytes | None:
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    form = next((form for form in (_XXD_LINE, _HEXDUMP_LINE) if lines and _is_first(form, lines[0])), None)
    if form is None:
        return None
    dumped = bytearray()
    begin = 0
    for number, line in enumerate(lines):
        columns = form.fullmatch(line.strip())
        if columns is None:
            if line.strip() == "*":
                raise ValueError(f"line {number + 1} stands for repeated lines: print them all (hexdump -v)")
            raise ValueError(f"line {number + 1} is no line of this dump: {_start_of(line)}")
        address = int(columns[1], 16)
        begin = address if number == 0 else begin
        if address != begin + len(dumped):
            raise ValueError(f"line {number + 1}: expected the address {begin + len(dumped):#x}, found {address:#x}")
        dumped += bytes.fromhex(columns[2])
    return bytes(dumped)


def _is_first(form: re.Pattern[str], line: str) -> bool:
    columns = form.fullmatch(line.strip())
    return columns is not None and bool(columns[2].strip())


def _escaped(text: str, *, is_quoted: bool) -> bytes:
    if _BYTEA.fullmatch(text):
        return bytes.fromhex(text[2:])
    if not is_quoted and _SPACED.fullmatch(text):
        text = re.sub(r"\s", "", text)
    read = bytearray()
    at = 0
    while at < len(text):
        character = _ESCAPE.match(text, at)
        if character is None:
            raise ValueError(f"character {at + 1} is neither printable ASCII nor an escape: {_start_of(text[at:])}")
        hexadecimal, octal, letter, plain = character.groups()
        code = int(hexadecimal, 16) if hexadecimal else int(octal, 8) if octal else _NAMED.get(letter or "", 0)
        if code > 0xFF:
            raise ValueError(f"character {at + 1} is an escape above a byte: {_start_of(text[at:])}")
        read.append(ord(plain) if plain else code)
        at = character.end()
    return bytes(read)


def _base64(text: str) -> bytes:
    if "\ufffd" in text:
        raise ValueError("a program has replaced bytes that are no UTF-8, so they are lost: print them as hexadecimal")
    joined = re.sub(r"\s", "", text).translate(str.maketrans("-_", "+/"))
    return base64.b64decode(joined, validate=True)


def _start_of(text: str) -> str:
    return repr(printable(text[:_START]))


# Records as text.


@dataclass(frozen=True, slots=True)
class PrintedRecord:
    """One record; what the text does not have is None. A tombstone has a transactional id only."""

    transactional_id: str
    partition: int | None = None
    offset: int | None = None
    timestamp_ms: int | None = None
    transaction_state: str | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    transaction_timeout_ms: int | None = None
    start_time_ms: int | None = None
    last_update_time_ms: int | None = None
    topic_partitions: tuple[str, ...] | None = None
    previous_producer_id: int | None = None
    next_producer_id: int | None = None
    client_transaction_version: int | None = None
    version: int | None = None


class PrintedProblem(NamedTuple):
    """A line that is no record."""

    line: int
    why: str


class _NoRecordError(ValueError):
    """A text that is no record; the message has what was expected."""


class _Place(NamedTuple):
    """What a dump prints beside the key and the value."""

    partition: int | None = None
    offset: int | None = None
    timestamp_ms: int | None = None


MOST_PROBLEMS = 200
_SHOWN = 60
_LOG_FOLDER = re.compile(r"__transaction_state-(\d{1,9})\b")
_LONGEST_NAME = (1 << 15) - 1  # bytes of a transactional id
_OTHER_LINES = re.compile(
    r"\s*|Dumping .*|(?:Log )?[Ss]tarting offset: .*|(?:baseOffset|offset): \d+ .*position: .*|Processed a total of .*"
    r"|Found \d+ invalid bytes.*|\| offset: .* key: unknown::version=.*|Snapshot end offset: .*"
)
_DUMP_LINE = re.compile(r"^(?:Dumping \S|baseOffset: \d|\| offset: \d)", re.MULTILINE)
_OFFSET = re.compile(r"(?:\| ?)?offset: (\d{1,19}) ")
_TIMESTAMP = re.compile(r" (?:CreateTime|LogAppendTime): (-?\d{1,19}) ")
_KEY, _PAYLOAD, _DELETED = "key: ", " payload: ", "<DELETE>"
_OLD_KEY = "transaction_metadata::transactionalId="
_OLD_PAYLOADS = (f"{_PAYLOAD}producerId:", f"{_PAYLOAD}{_DELETED}")
# Between the id and the fields of the older console consumer.
_CONSOLE = ("::TransactionMetadata(transactionalId=", "::Some(TransactionMetadata(transactionalId=")
_CONSOLE_GONE = ("::NULL", "::None")
_PAIR = re.compile(r"\b(\w{1,40})[=:]([\w-]*(?:[(\[][^()\[\]]*[)\]])?)")
# The names of a field in JSON and in the older texts, its own name, its bits, and whether -1 is none.
_NUMBERS = (
    (("producerId",), "producer_id", 64, False),
    (("producerEpoch",), "producer_epoch", 16, False),
    (("transactionTimeoutMs", "txnTimeoutMs"), "transaction_timeout_ms", 32, False),
    (("transactionStartTimestampMs", "txnStartTimestamp"), "start_time_ms", 64, True),
    (("transactionLastUpdateTimestampMs", "txnLastUpdateTimestamp"), "last_update_time_ms", 64, False),
    (("previousProducerId",), "previous_producer_id", 64, True),
    (("nextProducerId",), "next_producer_id", 64, True),
    (("clientTransactionVersion",), "client_transaction_version", 16, False),
)
_STATES = {state.value.lower(): state for state in TransactionState}


def is_dump(text: str) -> bool:
    """Whether the text has lines of kafka-dump-log.sh, with records or without."""
    return _DUMP_LINE.search(text) is not None


def printed_records(text: str) -> Iterator[PrintedRecord | PrintedProblem]:
    """The records in the output of Kafka's tools, in its order."""
    at, end, line, partition, problems = 0, -1, 1, None, 0
    scan = json.JSONDecoder().raw_decode
    while at < len(text):
        if end < at:
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
        after = end + 1
        printed: PrintedRecord | PrintedProblem | None
        try:
            if text[at] == "{":
                value, after = scan(text, at)
                printed = _of_console(value)
            else:
                content = text[at:end].rstrip("\r")
                partition = _dumped_partition(content) if content.startswith("Dumping ") else partition
                printed = _of_line(content, partition)
        except (ValueError, RecursionError) as exc:
            printed = PrintedProblem(line, f"{_why(exc)}: {_shown(text[at : at + _SHOWN])}")
            problems += 1
        if problems > MOST_PROBLEMS:
            yield PrintedProblem(line, f"more than {MOST_PROBLEMS} lines are no records, so the rest is not read")
            return
        if printed is not None:
            yield printed
        line += text.count("\n", at, after)
        at = after


def _dumped_partition(line: str) -> int | None:
    """The partition in the path of the file that is dumped."""
    folder = line.replace("\\", "/").rpartition("/")[0].rpartition("/")[2]
    match = _LOG_FOLDER.match(folder)
    return int(match[1]) if match is not None else None


def _why(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "JSON that is nested too deeply"
    return f"JSON that is cut or damaged ({error.msg})" if isinstance(error, json.JSONDecodeError) else str(error)


def _of_line(line: str, partition: int | None) -> PrintedRecord | None:
    key_at = line.find(_KEY)
    place = _Place(partition, _first(_OFFSET.match(line)), _first(_TIMESTAMP.search(line[: max(0, key_at)])))
    key = line[key_at + len(_KEY) :] if key_at >= 0 else ""
    if key.startswith("{"):
        key_fields, end = json.JSONDecoder().raw_decode(key)
        payload = key[end:].removeprefix(_PAYLOAD)
        return _of_json(key_fields, None if payload == _DELETED else json.loads(payload), place)
    if key.startswith(_OLD_KEY):
        at = max(key.rfind(payload) for payload in _OLD_PAYLOADS)
        if at < 0:
            raise _NoRecordError("expected a payload")
        payload = key[at + len(_PAYLOAD) :]
        name = key[len(_OLD_KEY) : at]
        return _record(name, None if payload == _DELETED else dict(_PAIR.findall(payload)), place)
    return None if _OTHER_LINES.fullmatch(line) else _of_old_console(line)


def _first(match: re.Match[str] | None) -> int | None:
    return None if match is None else _whole(match[1], 64)


def _of_old_console(line: str) -> PrintedRecord:
    if line.endswith(_CONSOLE_GONE):
        return _record(line.rpartition("::")[0], None, _Place())
    for between in _CONSOLE:
        name, sign, rest = line.partition(between)
        if sign:
            return _record(name, dict(_PAIR.findall(rest.removeprefix(f"{name}, "))), _Place())
    raise _NoRecordError("expected a record as kafka-dump-log.sh or the console consumer prints it")


def _of_console(record: Any) -> PrintedRecord | None:  # noqa: ANN401 - any JSON
    if not isinstance(record, dict) or not {"key", "value"} <= record.keys():
        raise _NoRecordError("expected a JSON object with key and value")
    return _of_json(record["key"], record["value"], _Place())


def _of_json(key: Any, value: Any, place: _Place) -> PrintedRecord | None:  # noqa: ANN401 - any JSON
    data = key.get("data") if isinstance(key, dict) else None
    if data == "unknown":
        return None
    name = data.get("transactionalId") if isinstance(data, dict) else None
    if not isinstance(name, str):
        raise _NoRecordError("expected a key with a transactionalId")
    if value is None:
        return _record(name, None, place)
    fields = value.get("data") if isinstance(value, dict) else None
    if not isinstance(fields, dict):
        raise _NoRecordError("expected a value with data that the tool could decode")
    return _record(name, {"clientTransactionVersion": 0, **fields}, place, _whole(value.get("version"), 16))


def _record(name: str, fields: Mapping[str, Any] | None, place: _Place, version: int | None = None) -> PrintedRecord:
    if len(name) > _LONGEST_NAME:
        raise _NoRecordError(f"expected a transactional id of at most {_LONGEST_NAME} bytes, found a longer one")
    if fields is None:
        return PrintedRecord(name, *place)
    numbers = {
        own: present(number) if is_none and number is not None else number
        for names, own, bits, is_none in _NUMBERS
        for number in [next((_whole(fields[field], bits) for field in names if field in fields), None)]
    }
    state = _state(fields["state"] if "state" in fields else fields.get("transactionStatus"))
    return PrintedRecord(
        name, *place, transaction_state=state, topic_partitions=_partitions(fields), version=version, **numbers
    )


def _state(state: object) -> str:
    if isinstance(state, str) and state.replace("_", "").lower() in _STATES:
        return str(_STATES[state.replace("_", "").lower()])
    number = _whole(state, 8)
    if number is None:
        raise _NoRecordError("expected a transaction state")
    return str(TransactionState.from_id(number))


def _partitions(fields: Mapping[str, Any]) -> tuple[str, ...] | None:
    if "transactionPartitions" not in fields:
        listed = fields.get("topicPartitions", fields.get("partitions"))
        return None if listed is None else _listed(listed)
    topics = fields["transactionPartitions"]
    if topics is None:
        return None
    try:
        return tuple(
            f"{_name(topic['topic'])}-{_whole(number, 32)}" for topic in topics for number in topic["partitionIds"]
        )
    except (TypeError, KeyError) as exc:
        raise _NoRecordError("expected transactionPartitions with topic and partitionIds") from exc


def _listed(text: object) -> tuple[str, ...]:
    """The partitions of `[a-0,b-1]` or `Set(a-0, b-1)`."""
    inner = str(text).rstrip("])").replace("[", "(").rpartition("(")[2]
    names = tuple(name.strip() for name in inner.split(",") if name.strip())
    for name in names:
        if not re.fullmatch(r"\d{1,10}", name.rpartition("-")[2], re.ASCII):
            raise _NoRecordError(f"expected a partition, found {_shown(name)}")
    return names


def _name(topic: object) -> str:
    if not isinstance(topic, str):
        raise _NoRecordError(f"expected the name of a topic, found {_shown(str(topic))}")
    return topic


def _whole(value: object, bits: int) -> int | None:
    """A number that fits into `bits`, from JSON or from text; None if there is none."""
    if value is None:
        return None
    number = int(value) if isinstance(value, str) and re.fullmatch(r"-?\d{1,20}", value, re.ASCII) else value
    if not isinstance(number, int) or isinstance(number, bool) or not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise _NoRecordError(f"expected a whole number of {bits} bits, found {_shown(str(value))}")
    return number


def _shown(text: str) -> str:
    return repr(text.strip().partition("\n")[0][:_SHOWN])
