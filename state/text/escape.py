"""Escapes foreign text for its destination: a terminal, a log line, JSON, a shell. Pure: no I/O, no clock.

Transactional ids, client ids, group ids and error messages can hold any character. A control character moves a
terminal's cursor, a newline starts a second log line, and a bidi override changes the order in which a text is shown.
So every character that Unicode does not class as printable is shown as the escape that Python and most languages have
for it. Metric labels need no rule here: they are from closed sets, or the Prometheus client escapes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

_BARE: Final = re.compile(r"[A-Za-z0-9@%+=:,./_-]+")
# zsh replaces =name by the path of a command, at the beginning and with MAGIC_EQUAL_SUBST behind = and :; fish replaces
# %self by its process id.
_EXPANDED: Final = re.compile(r"^%|(^|[=:])=")
_OUTSIDE: Final = re.compile(r"(['\\])")


def printable(text: str) -> str:
    """The text with an escape, such as x1b after a backslash, for every character that is not printable."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _escape(one) for one in text)


def json_text(value: Any, **how: Any) -> str:  # noqa: ANN401 - whatever json takes
    """The value as one line of JSON that is safe on a terminal; a JSON reader gets the same value."""
    written = json.dumps(value, ensure_ascii=False, **how)
    if written.isprintable():
        return written
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in written).replace("\x7f", "\\u007f")


def shell_line(arguments: Iterable[str]) -> str:
    """The arguments as one line that a shell splits into the same arguments, and that can be shown and pasted."""
    return " ".join(_quoted(argument) for argument in arguments)


def _quoted(argument: str) -> str:
    """The argument for bash, zsh, ksh and, if it can be shown as it is, for every sh and fish."""
    if not argument.isprintable():
        # This form can be shown: each byte that is not printable ASCII is an escape.
        encoded = argument.encode(errors="surrogatepass")
        return "$'" + "".join(_shell_byte(byte) for byte in encoded) + "'"
    if _BARE.fullmatch(argument) and not _EXPANDED.search(argument):
        return argument
    # A quotation mark is none in quotation marks, and fish also reads a backslash there: both are escaped outside.
    parts = (part for part in _OUTSIDE.split(argument) if part)
    return "".join(f"\\{part}" if _OUTSIDE.fullmatch(part) else f"'{part}'" for part in parts) or "''"


def _shell_byte(byte: int) -> str:
    if chr(byte) in "'\\":
        return f"\\{chr(byte)}"
    is_plain = 0x20 <= byte < 0x7F and chr(byte) != "!"  # the history of an interactive shell
    return chr(byte) if is_plain else f"\\x{byte:02x}"


def _escape(one: str) -> str:
    known = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(one)
    if known is not None:
        return known
    code = ord(one)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
