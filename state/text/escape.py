"""Text that others wrote, made fit for the place it goes to: a terminal, a log line, JSON, a shell. Pure.

Transactional ids, client ids, group ids and the words of an error can hold any character. A control character moves a
terminal's cursor, a newline makes a second log line, and a bidi override shows a text in another order than it has.
So whatever Unicode does not call printable is shown as the escape that Python and most languages have for it.
Labels of metrics need no rule of their own: they come from closed sets, or the Prometheus client escapes them.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from typing import Any


def printable(text: str) -> str:
    """The text with every character that is not printable as its escape, such as x1b behind a backslash."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _escape(one) for one in text)


def json_text(value: Any, **how: Any) -> str:  # noqa: ANN401 - whatever json takes
    """The value as one line of JSON that a terminal can show; a reader of JSON gets the same value."""
    written = json.dumps(value, ensure_ascii=False, **how)
    if written.isprintable():
        return written
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in written).replace("\x7f", "\\u007f")


def shell_line(words: Iterable[str]) -> str:
    """The words as one line that a shell takes apart again, and that can be shown and pasted."""
    return " ".join(_shell_word(word) for word in words)


def _shell_word(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    # bash, zsh and ksh know this form, and it can be shown: each byte that is not a plain character is an escape.
    encoded = word.encode(errors="surrogatepass")
    return "$'" + "".join(_shell_byte(byte) for byte in encoded) + "'"


def _shell_byte(byte: int) -> str:
    if chr(byte) in "'\\":
        return f"\\{chr(byte)}"
    return chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}"


def _escape(one: str) -> str:
    known = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(one)
    if known is not None:
        return known
    code = ord(one)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
