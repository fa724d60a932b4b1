"""Rows of the source back into facts: that rows have all there is in a fact is tested, nobody else reads them so."""

from __future__ import annotations

from typing import Any, get_args

from msgspec import inspect

from txnwatch.state.model.facts import Fact
from txnwatch.streaming.source.rows import kind_of

_KINDS = {kind_of(of): of for of in get_args(Fact)}


def fact_of(row: dict[str, Any]) -> Fact:
    """The fact of a row of the whole schema."""
    kind = row["kind"]
    fact: Fact = _value(inspect.type_info(_KINDS[kind]), row[kind])
    return fact


def _value(info: inspect.Type, plain: Any) -> Any:
    if plain is None:
        return None
    if isinstance(info, inspect.UnionType):
        return _value(info.types[0], plain)
    if isinstance(info, inspect.StructType | inspect.NamedTupleType):
        return info.cls(**{part.name: _value(part.type, plain[part.name]) for part in info.fields})
    if isinstance(info, inspect.DictType):
        return {_value(info.key_type, key): _value(info.value_type, value) for key, value in plain}
    if isinstance(info, inspect.FrozenSetType | inspect.VarTupleType):
        of = frozenset if isinstance(info, inspect.FrozenSetType) else tuple
        return of(_value(info.item_type, part) for part in plain)
    return info.cls(plain) if isinstance(info, inspect.EnumType) else plain
