r"""Bytes that are written as text, as people copy them from a terminal, a notebook or a log.

Apart: it is pure, and cli/decode.py reads files.

Forms: hexadecimal, with or without 0x, \x, blanks, colons or commas; a dump of `xxd` or `hexdump -C`; a string with
escapes, with or without the `b'...'` of Python; an array of bytes of Java (`[0, 1, -1]`); base64.
"""

from __future__ import annotations

import base64
import re

from txnwatch.state.text import printable

FORMS = r"also read: a dump of xxd or hexdump -C, b'...', \x00\x01, [0, 1, -1]"
_SHOWN = 40

_HEX = re.compile(r"(?:[0-9a-fA-F]{2})*")
_DIGITS = re.compile(r"[0-9a-fA-F]+")
_QUOTED = re.compile(r"""(?:bytearray\()?([bxX]?)(["'])(.*)\2\)?""", re.DOTALL)
_BYTEA = re.compile(r"\\x(?:[0-9a-fA-F]{2})*")
_SPACED = re.compile(r"(?:\\x[0-9a-fA-F]{2}\s+)+\\x[0-9a-fA-F]{2}")
_ESCAPE = re.compile(r"\\x([0-9a-fA-F]{2})|\\([0-7]{1,3})|\\([\\'\"abtnvfr])|([ -\[\]-~])")
_NAMED = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "\\": 92, "'": 39, '"': 34}
_SEPARATOR = re.compile(r"(?<![0-9a-fA-F])0x|[\s:,\[\]]")
_JAVA_ARRAY = re.compile(r"\[?\s*-?\d{1,3}(?:\s*,\s*-?\d{1,3})+\s*\]?")
_JAVA_BYTE = re.compile(r"-?\d{1,3}")
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
    array = _java_array(inner)
    if array is not None:
        return array
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
        found = form.fullmatch(line.strip())
        if found is None:
            if line.strip() == "*":
                raise ValueError(f"line {number + 1} stands for repeated lines: print them all (hexdump -v)")
            raise ValueError(f"line {number + 1} is no line of this dump: {_shown(line)}")
        address = int(found[1], 16)
        begin = address if number == 0 else begin
        if address != begin + len(dumped):
            raise ValueError(f"line {number + 1}: expected the address {begin + len(dumped):#x}, found {address:#x}")
        dumped += bytes.fromhex(found[2])
    return bytes(dumped)


def _is_first(form: re.Pattern[str], line: str) -> bool:
    found = form.fullmatch(line.strip())
    return found is not None and bool(found[2].strip())


def _escaped(text: str, *, is_quoted: bool) -> bytes:
    if _BYTEA.fullmatch(text):
        return bytes.fromhex(text[2:])
    if not is_quoted and _SPACED.fullmatch(text):
        text = re.sub(r"\s", "", text)
    read = bytearray()
    at = 0
    while at < len(text):
        found = _ESCAPE.match(text, at)
        if found is None:
            raise ValueError(f"character {at + 1} is neither printable ASCII nor an escape: {_shown(text[at:])}")
        code = int(found[1], 16) if found[1] else int(found[2], 8) if found[2] else _NAMED.get(found[3] or "", 0)
        if code > 0xFF:
            raise ValueError(f"character {at + 1} is an escape above a byte: {_shown(text[at:])}")
        read.append(ord(found[4]) if found[4] else code)
        at = found.end()
    return bytes(read)


def _java_array(text: str) -> bytes | None:
    """The bytes of an array that Java prints; None if it can also be hexadecimal with commas."""
    if not _JAVA_ARRAY.fullmatch(text):
        return None
    parts = _JAVA_BYTE.findall(text)
    if all(len(part) == 2 and part.isdigit() for part in parts):
        return None
    numbers = [int(part) for part in parts]
    for number in numbers:
        if not -128 <= number <= 255:
            raise ValueError(f"{number} is no byte")
    return bytes(number & 0xFF for number in numbers)


def _base64(text: str) -> bytes:
    if "\ufffd" in text:
        raise ValueError("a program has replaced bytes that are no UTF-8, so they are lost: print them as hexadecimal")
    joined = re.sub(r"\s", "", text).translate(str.maketrans("-_", "+/"))
    return base64.b64decode(joined, validate=True)


def _shown(text: str) -> str:
    return repr(printable(text[:_SHOWN]))
