"""Kafka's primitive types, read from a memoryview.

`Reader` reads one value from left to right. Every read checks the bounds first, so a truncated or hostile value raises
a `WireError` with the field and the byte position, and never an IndexError or a wrong result. Types as in the Kafka
protocol guide: fixed-width integers are big-endian; varints have 7 bits per byte, low group first; a compact string,
array or bytes has its length plus one in front.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeVar

from txnwatch.state.model.errors import LaterVersionError, WireError

_T = TypeVar("_T")
_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_MAX_VARINT_BYTES = 5
_MAX_VARLONG_BYTES = 10
END = "the end of the value"


class Reader:
    """A cursor over one encoded value."""

    __slots__ = ("_buffer", "position")

    def __init__(self, buffer: memoryview | bytes, position: int = 0) -> None:
        self._buffer = memoryview(buffer)
        self.position = position

    @property
    def remaining(self) -> int:
        """Bytes not read yet."""
        return len(self._buffer) - self.position

    def _fixed(self, layout: struct.Struct, field: str) -> int:
        if self.remaining < layout.size:
            raise WireError(field, self.position, f"{self.remaining} bytes left", f"{layout.size} bytes")
        value: int = layout.unpack_from(self._buffer, self.position)[0]
        self.position += layout.size
        return value

    def int8(self, field: str) -> int:
        """A signed byte."""
        return self._fixed(_INT8, field)

    def int16(self, field: str) -> int:
        """A signed 16-bit integer."""
        return self._fixed(_INT16, field)

    def int32(self, field: str) -> int:
        """A signed 32-bit integer."""
        return self._fixed(_INT32, field)

    def int64(self, field: str) -> int:
        """A signed 64-bit integer."""
        return self._fixed(_INT64, field)

    def _unsigned(self, field: str, max_bytes: int) -> int:
        value = shift = 0
        start = self.position
        for _ in range(max_bytes):
            if self.position >= len(self._buffer):
                raise WireError(field, start, "the end of the value", "the rest of a varint")
            byte = self._buffer[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise WireError(field, start, "no last byte", f"a varint of at most {max_bytes} bytes")

    def unsigned_varint(self, field: str) -> int:
        """An unsigned 32-bit varint (lengths and tags of flexible versions)."""
        return self._unsigned(field, _MAX_VARINT_BYTES)

    def varint(self, field: str) -> int:
        """A zigzag varint (lengths and deltas inside a record); accepts 64 bits."""
        raw = self._unsigned(field, _MAX_VARLONG_BYTES)
        return (raw >> 1) ^ -(raw & 1)

    def take(self, size: int, field: str) -> memoryview:
        """`size` bytes, not copied."""
        if size < 0 or size > self.remaining:
            raise WireError(field, self.position, f"a length of {size}", f"0 to {self.remaining} bytes")
        part = self._buffer[self.position : self.position + size]
        self.position += size
        return part

    def _text(self, size: int, field: str) -> str:
        start = self.position
        raw = bytes(self.take(size, field))
        try:
            return raw.decode()
        except UnicodeDecodeError as exc:
            raise WireError(field, start, repr(raw), "UTF-8 text") from exc

    def string(self, field: str) -> str:
        """A string with an int16 length."""
        return self._text(self.int16(field), field)

    def compact_string(self, field: str) -> str:
        """A string whose length plus one is an unsigned varint."""
        return self._text(self.unsigned_varint(field) - 1, field)

    def array(self, size: int, item: Callable[[], _T], field: str) -> tuple[_T, ...]:
        """`size` items; every item takes at least one byte, so a hostile size fails before it allocates."""
        if size < 0 or size > self.remaining:
            raise WireError(field, self.position, f"a count of {size}", f"0 to {self.remaining} items")
        return tuple(item() for _ in range(size))

    def tagged_fields(self, field: str) -> dict[int, memoryview]:
        """The undecoded tagged fields of a flexible version, {tag: bytes}; the caller skips unknown tags."""
        fields: dict[int, memoryview] = {}
        for _ in range(self.unsigned_varint(field)):
            tag = self.unsigned_varint(field)
            fields[tag] = self.take(self.unsigned_varint(field), field)
        return fields

    def expect_end(self, field: str) -> None:
        """Raises WireError if bytes are left over."""
        if self.remaining:
            raise WireError(field, self.position, f"{self.remaining} more bytes", END)


_MOST_LATER_VERSIONS = 20  # a version above that is none: the bytes are something else


def check_version(version: int, highest: int, field: str) -> None:
    """Checks that a version is known.

    Raises:
        LaterVersionError: a newer broker can have written it.
        WireError: no broker writes it.
    """
    if highest < version <= highest + _MOST_LATER_VERSIONS:
        expected = f"0 to {highest} (if the broker is newer, upgrade txnwatch)"
        raise LaterVersionError(field, 0, version, expected)
    if not 0 <= version <= highest:
        raise WireError(field, 0, version, f"0 to {highest}")


# Kafka's value of an absent id, epoch, offset or time. The code above this package has None instead.

NONE = -1

_Present = TypeVar("_Present", bound=int)


def present(value: _Present) -> _Present | None:
    """A value of an answer; None if the broker has none."""
    return None if value < 0 else value


def encoded(value: int | None) -> int:
    """A value of a request."""
    return NONE if value is None else value
