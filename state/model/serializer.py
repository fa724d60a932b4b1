"""The one serializer of the model: bytes of any of its types, by the type's annotations.

State, facts on their way to the operator and findings on their way to the driver use it. The bytes are MessagePack, and
begin with a version. Nobody maintains the version: it is a hash of the type's shape (`version_of`), so each change of a
stored type changes it. Data of another version is refused with both versions named, never guessed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import inspect

from txnwatch.state.model.errors import CheckpointError

T = TypeVar("T")

VERSION_BYTES = 8
# Raise it if a value keeps its type and gets another meaning: the shape of the type does not show that.
MEANING = 1
_VERSION = re.compile(f"[0-9a-f]{{{VERSION_BYTES}}}")
_ANOTHER = "restore the whole checkpoint from a copy, or start with a new --checkpoint directory"


def version_of(*types: Any) -> str:  # noqa: ANN401 - a type, also a union or a generic type
    """The version of data of these types: a hash of their shapes, the same in every process."""
    shapes = [MEANING, *(_shape(inspect.type_info(of)) for of in types)]
    return hashlib.sha256(repr(shapes).encode()).hexdigest()[:VERSION_BYTES]


class PartSerializer(Generic[T]):
    """Encodes and decodes one type without a version, for parts of data that has one.

    Args:
        of: the type.
    """

    def __init__(self, of: Any) -> None:  # noqa: ANN401 - a type, also a union or a generic type
        self.of = of
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(of)

    def encode(self, value: T) -> bytes:
        """The value as MessagePack."""
        return encode(value)

    def decode(self, packed: bytes) -> T:
        """The value that `encode` was given.

        Raises:
            CheckpointError: the bytes are damaged.
        """
        return _decoded(self._decoder, packed)


class Serializer(Generic[T]):
    """Encodes and decodes one type, with its version.

    Args:
        of: the type.
        parts: other types that are stored inside it as bytes; a change of their shape changes the version too.
    """

    def __init__(
        self,
        of: Any,  # noqa: ANN401 - as above
        parts: Iterable[Any] = (),
    ) -> None:
        self.version = version_of(of, *parts)
        self._head = self.version.encode()
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(of)

    def encode(self, value: T) -> bytes:
        """The version, then the value as MessagePack."""
        return self._head + encode(value)

    def decode(self, packed: bytes) -> T:
        """The value that `encode` was given.

        Raises:
            CheckpointError: the bytes have another version, or none, or are damaged.
        """
        self._check(bytes(packed[:VERSION_BYTES]).decode("ascii", "backslashreplace"))
        return _decoded(self._decoder, memoryview(packed)[VERSION_BYTES:])

    def _check(self, version: str) -> None:
        if version == self.version:
            return
        if _VERSION.fullmatch(version) is None:
            raise CheckpointError(f"the stored state is damaged: expected a version, found {version!r}: {_ANOTHER}")
        raise CheckpointError(
            f"the state in the checkpoint has version {version}, this txnwatch reads version {self.version}: {_ANOTHER}"
        )


encode = msgspec.msgpack.Encoder().encode


def _decoded(decoder: msgspec.msgpack.Decoder[T], packed: bytes | memoryview) -> T:
    try:
        return decoder.decode(packed)
    except (msgspec.MsgspecError, ValueError, RecursionError) as exc:
        raise CheckpointError(f"the stored state is damaged: {exc}: {_ANOTHER}") from exc


def _shape(info: inspect.Type) -> Any:  # noqa: ANN401 - nested lists of names
    """What decides how a type is encoded: kinds of values, names and order of fields, tags, values of enums."""
    kind = type(info).__name__
    if isinstance(info, inspect.EnumType):
        return [kind, sorted(str(member.value) for member in info.cls)]
    tag = info.tag if isinstance(info, inspect.StructType) else None
    if isinstance(info, inspect.StructType | inspect.NamedTupleType | inspect.DataclassType):
        return [kind, tag, [(field.encode_name, _shape(field.type)) for field in info.fields]]
    inner = [getattr(info, name) for name in ("key_type", "value_type", "item_type") if hasattr(info, name)]
    several = [part for name in ("item_types", "types") for part in getattr(info, name, ())]
    return [kind, *map(_shape, [*inner, *several])]
