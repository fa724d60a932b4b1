"""Bytes as people copy them from a terminal, a notebook or a log."""

from __future__ import annotations

import base64
import re

import pytest

from txnwatch.streaming.wire.printed import bytes_of

VALUE = bytes.fromhex(
    "00010000000000000009 0001 0000ea60 04 01 000001a1f86c3ef0 000001a1f86c3ee6 02 00080000000000000009 02020002"
)
XXD = """\
00000000: 0001 0000 0000 0000 0009 0001 0000 ea60  ...............`
00000010: 0401 0000 01a1 f86c 3ef0 0000 01a1 f86c  .......l>......l
00000020: 3ee6 0200 0800 0000 0000 0000 0902 0200  >...............
00000030: 02                                       .
"""
HEXDUMP = """\
00000000  00 01 00 00 00 00 00 00  00 09 00 01 00 00 ea 60  |...............`|
00000010  04 01 00 00 01 a1 f8 6c  3e f0 00 00 01 a1 f8 6c  |.......l>......l|
00000020  3e e6 02 00 08 00 00 00  00 00 00 00 09 02 02 00  |>...............|
00000030  02                                                |.|
00000031
"""
FORMS = {
    "hexadecimal": VALUE.hex(),
    "with 0x": "0x" + VALUE.hex().upper(),
    "with colons": VALUE.hex(":"),
    "with blanks": VALUE.hex(" ", 2),
    "numbers with 0x": ", ".join(f"0x{byte:02x}" for byte in VALUE),
    "binary of Spark": f"[{VALUE.hex(' ').upper()}]",
    "SQL": f"X'{VALUE.hex()}'",
    "bytea": rf"\x{VALUE.hex()}",
    "Python": repr(VALUE),
    "Python's bytearray": repr(bytearray(VALUE)),
    "Python without quotes": repr(VALUE)[2:-1],
    "escapes": "".join(f"\\x{byte:02x}" for byte in VALUE),
    "escapes with blanks": " ".join(f"\\x{byte:02x}" for byte in VALUE),
    "octal escapes": "".join(f"\\{byte:03o}" for byte in VALUE),
    "xxd": XXD,
    "xxd without its columns": "\n".join(line.partition("  ")[0] for line in XXD.splitlines()),
    "hexdump -C": HEXDUMP,
    "base64": base64.b64encode(VALUE).decode(),
    "base64 of lines": base64.encodebytes(VALUE).decode(),
    "base64 for URLs": base64.urlsafe_b64encode(VALUE).decode(),
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS.keys())
def test_each_form_has_the_same_bytes(text: str) -> None:
    assert bytes_of(text) == VALUE
    assert bytes_of(f"\n {text}\n") == VALUE


def test_a_dump_of_a_part_begins_at_another_address() -> None:
    assert bytes_of("\n".join(XXD.splitlines()[1:])) == VALUE[16:]


def test_numbers_of_two_digits_are_hexadecimal() -> None:
    assert bytes_of("00, 01, 10") == b"\0\1\x10"


def test_a_blank_in_the_quotes_is_a_byte() -> None:
    assert bytes_of(r"b'\x00 \x01'") == b"\0 \1"
    assert bytes_of(r"b'\t\n\\\'\"\0a'") == b"\t\n\\'\"\0a"


UNREADABLE = {
    "a line is missing": (XXD.replace(XXD.splitlines()[1] + "\n", ""), "line 2: expected the address 0x10, found 0x20"),
    "a line of another program": (XXD + "junk\n", "line 5 is no line of this dump: 'junk'"),
    "repeated lines": (HEXDUMP.replace("00000010", "*\n00000010"), "line 2 stands for repeated lines"),
    "lost bytes": ("\ufffd\ufffdab", "a program has replaced bytes that are no UTF-8"),
    "not ASCII": ("\\x00\u00e9", "character 5 is neither printable ASCII nor an escape: 'é'"),
    "an unknown escape": (r"\x00\u0001", r"character 5 is neither printable ASCII nor an escape"),
    "an escape that is cut": (r"\x00\x", r"character 5 is neither printable ASCII nor an escape"),
    "an octal number that is too large": (r"\777", "character 1 is an escape above a byte"),
    "0x within a number": ("00,00x1", "Only base64"),
    "half a byte": ("00:01:0", "an odd number of hexadecimal digits (5): one is missing"),
}


@pytest.mark.parametrize(("text", "message"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_text_that_is_not_bytes_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        bytes_of(text)
