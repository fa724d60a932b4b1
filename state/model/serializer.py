"""The one serializer of the model: bytes, or a line of JSON, of any of its types, by the type's annotations.

State, facts on their way to the operator, findings on their way to the driver and stored evidence use it. The bytes are
MessagePack, and begin with a version. Nobody maintains the version: it is a hash of the type's shape (`version_of`), so
each change of a stored type changes it. Data of another version is refused with both versions named, never guessed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import inspect

from txnwatch.state.model.errors import CheckpointError

T = TypeVar("T")

VERSION_BYTES = 8
# Raise it if a value keeps its type and gets another meaning: the shape of the type does not show that.
MEANING = 1


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
        """The value that `encode` was given."""
        return self._decoder.decode(packed)


class Serializer(Generic[T]):
    """Encodes and decodes one type, with its version.

    Args:
        of: the type.
        parts: other types that are stored inside it as bytes; a change of their shape changes the version too.
    """

    def __init__(self, of: Any, parts: Iterable[Any] = ()) -> None:  # noqa: ANN401 - as above
        self.version = version_of(of, *parts)
        self._head = self.version.encode()
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(of)
        self._lines: msgspec.json.Decoder[T] = msgspec.json.Decoder(of)

    def encode(self, value: T) -> bytes:
        """The version, then the value as MessagePack."""
        return self._head + encode(value)

    def decode(self, packed: bytes) -> T:
        """The value that `encode` was given.

        Raises:
            CheckpointError: the bytes have another version.
        """
        self._check(bytes(packed[:VERSION_BYTES]).decode("ascii", "backslashreplace"))
        return self._decoder.decode(memoryview(packed)[VERSION_BYTES:])

    def encode_line(self, value: T) -> str:
        """One line of JSON, for data that a person may have to read."""
        return msgspec.json.encode((self.version, value)).decode()

    def decode_line(self, line: str) -> T:
        """The value that `encode_line` was given.

        Raises:
            CheckpointError: the line has another version.
            ValueError: the line is not from `encode_line`.
        """
        found, value = _LINES.decode(line)
        self._check(found)
        return self._lines.decode(value)

    def _check(self, found: str) -> None:
        if found != self.version:
            raise CheckpointError(
                f"the state in the checkpoint has version {found}, this txnwatch reads version {self.version}: "
                "run the version that wrote it, or start with a new --checkpoint directory"
            )


encode = msgspec.msgpack.Encoder().encode
_LINES: msgspec.json.Decoder[tuple[str, msgspec.Raw]] = msgspec.json.Decoder(tuple[str, msgspec.Raw])


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
