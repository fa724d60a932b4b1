"""Plain values to bytes and back: the one serializer of packed facts and stored state. MessagePack with a version.

Plain values are None, bool, int (64 bits), str, bytes, and tuples and dicts of these. A named tuple becomes a tuple, a
string enum becomes its text. The bytes begin with the version of their writer. Bytes of another version are refused,
never guessed.
"""

from __future__ import annotations

from typing import Any

import msgpack

from txnwatch.state.model.errors import CheckpointError

pack = msgpack.packb


def unpack(packed: bytes) -> Any:  # noqa: ANN401 - plain values of any shape
    """The values that `pack` was given; a list comes back as a tuple."""
    return msgpack.unpackb(packed, use_list=False, strict_map_key=False)


def pack_versioned(version: int, *values: object) -> bytes:
    """Packs the version, then the values."""
    packed: bytes = pack((version, *values))
    return packed


def unpack_versioned(version: int, packed: bytes) -> tuple[Any, ...]:
    """The values after the version.

    Raises:
        CheckpointError: the bytes have another version.
    """
    found, *values = unpack(packed)
    check_version(version, found)
    return tuple(values)


def check_version(version: int, found: object) -> None:
    """Refuses data of another version.

    Raises:
        CheckpointError: the versions differ.
    """
    if found != version:
        raise CheckpointError(
            f"the state in the checkpoint has version {found}, this txnwatch reads version {version}: "
            "run the version that wrote it, or start with a new --checkpoint directory"
        )
