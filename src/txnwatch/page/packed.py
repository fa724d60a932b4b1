"""Compressed answers and streams of pieces that are compressed once, whoever gets them. Pure: no I/O, no clock.

A piece is a part of a DEFLATE stream that refers to nothing before it and ends at a byte. So any pieces behind a gzip
header are a gzip stream, and only its last eight bytes are made for each reader.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from functools import cached_property
from typing import Final

_BEGIN: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_LAST: Final = b"\x03\x00"  # an empty last block
_RAW: Final = -15


class Piece:
    """Some bytes, and the same compressed; it is compressed when it is first asked for."""

    def __init__(self, plain: bytes) -> None:
        self.plain = plain

    @cached_property
    def packed(self) -> bytes:
        """The compressed bytes."""
        packing = zlib.compressobj(6, zlib.DEFLATED, _RAW)
        return packing.compress(self.plain) + packing.flush(zlib.Z_FULL_FLUSH)


Pieces = tuple[Piece, ...]


class PackedStream:
    """A gzip stream for one reader."""

    def __init__(self) -> None:
        self._begin = _BEGIN
        self._sum = self._size = 0

    def add(self, pieces: Iterable[Piece]) -> bytes:
        """The next bytes."""
        begin, self._begin = self._begin, b""
        parts = [begin]
        for piece in pieces:
            self._sum, self._size = zlib.crc32(piece.plain, self._sum), self._size + len(piece.plain)
            parts.append(piece.packed)
        return b"".join(parts)

    def end(self) -> bytes:
        """The last bytes."""
        return self.add(()) + _LAST + struct.pack("<II", self._sum, self._size & 0xFFFFFFFF)


def packed(pieces: Iterable[Piece]) -> bytes:
    """The pieces as one compressed answer."""
    stream = PackedStream()
    return stream.add(pieces) + stream.end()
