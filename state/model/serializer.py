"""Plain values as bytes and back: the one serializer of packed facts and of stored state. MessagePack with a version.

Plain are None, bool, int (64 bits), str, bytes, and tuples and dicts of these; a named tuple becomes a tuple, an enum
of text its text. The bytes begin with the version of whoever wrote them; nothing of another version is guessed.
"""

from __future__ import annotations

from typing import Any

import msgpack

from txnwatch.state.model.errors import CheckpointError

pack = msgpack.packb


def unpack(packed: bytes) -> Any:  # noqa: ANN401 - plain values of any shape
    """What `pack` was given, lists as tuples."""
    return msgpack.unpackb(packed, use_list=False, strict_map_key=False)


def pack_versioned(version: int, *values: object) -> bytes:
    """Values behind their version."""
    packed: bytes = pack((version, *values))
    return packed


def unpack_versioned(version: int, packed: bytes) -> tuple[Any, ...]:
    """The values behind this version.

    Raises:
        CheckpointError: they are of another version.
    """
    found, *values = unpack(packed)
    check_version(version, found)
    return tuple(values)


def check_version(version: int, found: object) -> None:
    """Refuses what another version has written.

    Raises:
        CheckpointError: it is not this version.
    """
    if found != version:
        raise CheckpointError(
            f"the state in the checkpoint has version {found}, this txnwatch reads version {version}: "
            "run the version that wrote it, or start with a new --checkpoint directory"
        )
