"""The meanings of the fields of facts, from the section Attributes of the docstrings of their classes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping

from msgspec import inspect as types

from txnwatch.state.model.values import TopicPartition

# Fields whose name says what they are, so that their classes do not describe them.
SELF_EXPLANATORY = {
    "partition": "the partition",
    "topic_id": "the topic's id in Kafka's notation; a re-created topic has another one",
    "producer_id": "the producer id",
    "producer_epoch": "the producer epoch",
    "transactional_id": "the transactional id",
    "log_partition": "number of the partition of `__transaction_state` that has the record",
    "log_offset": "offset of the record",
    "offset": "the last stable offset",
    "throttled_ms": "the time by request type",
}
_ENTRY = re.compile(r"    (?P<names>\w+(?:, \w+)*): (?P<text>.*)")


def meaning_of(of: type, field: str) -> str:
    """The meaning of a field of a class.

    Raises:
        ValueError: neither the docstring of the class nor SELF_EXPLANATORY has the field.
    """
    meaning = _attributes(of).get(field) or SELF_EXPLANATORY.get(field)
    if meaning is None:
        raise ValueError(f"{of.__name__}.{field}: expected a meaning in the docstring of the class")
    meaning = re.sub(r"(?<=\. )None\b", "Null", meaning.removesuffix("."))
    return re.sub(r"\bNone\b", "null", meaning)


def _attributes(of: type) -> dict[str, str]:
    """The entries of the section Attributes; an entry may describe several fields."""
    _, _, section = (inspect.getdoc(of) or "").partition("Attributes:\n")
    found: dict[str, str] = {}
    names: list[str] = []
    for line in section.splitlines():
        entry = _ENTRY.fullmatch(line)
        if entry is not None:
            names = entry["names"].split(", ")
            found.update(dict.fromkeys(names, entry["text"]))
        elif not line.startswith("        "):
            break
        else:
            found.update({name: f"{found[name]} {line.strip()}" for name in names})
    return found


def structs_of(kinds: Mapping[str, type]) -> dict[type, list[str]]:
    """The classes of structs inside fields, each with the fields in which it is; not those of partitions."""
    found: dict[type, list[str]] = {}
    for kind, of in kinds.items():
        for path, inner in _inner(types.type_info(of), kind):
            found.setdefault(inner, []).append(f"`{path}`")
    return found


def _inner(info: types.Type, path: str) -> Iterator[tuple[str, type]]:
    if isinstance(info, types.StructType | types.NamedTupleType):
        for field in info.fields:
            for part in _parts(field.type):
                if part.cls is not TopicPartition:
                    yield f"{path}.{field.name}", part.cls
                    yield from _inner(part, f"{path}.{field.name}")


def _parts(info: types.Type) -> Iterator[types.StructType | types.NamedTupleType]:
    """The structs of a type: itself, or those of its variants, values and items."""
    if isinstance(info, types.StructType | types.NamedTupleType):
        yield info
    elif isinstance(info, types.UnionType):
        for variant in info.types:
            yield from _parts(variant)
    elif isinstance(info, types.DictType):
        yield from _parts(info.key_type)
        yield from _parts(info.value_type)
    elif isinstance(info, types.VarTupleType | types.FrozenSetType | types.ListType):
        yield from _parts(info.item_type)
