"""Rows for Spark users, with columns that are derived from types of the model.

Each type has one struct column with the fields of the type. The column `kind` names the column that is filled, so
`producer_seen.*` selects the columns of a ProducerSeen. Times are epoch milliseconds. A missing value is null.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, get_args

import pyarrow as pa
from msgspec import Struct, inspect

Row = dict[str, Any]


class RowFormat:
    """The rows of a union of types.

    Args:
        union: the types.
        first: columns before those of the types.

    Attributes:
        schema: the schema of a batch. Spark compares it with `ddl` for equality.
        ddl: the same for Spark.
    """

    def __init__(self, union: object, *first: pa.Field) -> None:
        kinds = [pa.field(kind_of(of), _arrow(inspect.type_info(of))) for of in get_args(union)]
        self.schema = pa.schema([*first, pa.field("kind", pa.string()), *kinds])
        self.ddl = ", ".join(f"{column.name} {ddl_of(column.type)}" for column in self.schema)

    def record_batch(self, rows: Iterable[Row]) -> pa.RecordBatch:
        """Rows as one Arrow batch."""
        known = list(rows)
        columns = [pa.array([row.get(column.name) for row in known], column.type) for column in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def row_of(value: Struct) -> Row:
    """The row of a value."""
    kind = kind_of(type(value))
    return {"kind": kind, kind: _plain(value)}


def kind_of(of: type) -> str:
    """The name of a type in the column `kind`, and of its own column."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", of.__name__).lower()


def _plain(value: Any) -> Any:  # noqa: ANN401 - any value of the model
    if isinstance(value, Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(part) for name, part in value._asdict().items()}
    if isinstance(value, Mapping):
        return [(_plain(key), _plain(part)) for key, part in value.items()]
    if isinstance(value, list | tuple | frozenset):
        return [_plain(part) for part in (sorted(value) if isinstance(value, frozenset) else value)]
    return str(value) if isinstance(value, StrEnum) else value


_ARROW: Final[dict[type[inspect.Type], pa.DataType]] = {
    inspect.BoolType: pa.bool_(),
    inspect.IntType: pa.int64(),
    inspect.StrType: pa.string(),
    inspect.EnumType: pa.string(),
}
_COLLECTIONS = inspect.ListType | inspect.VarTupleType | inspect.FrozenSetType
_DDL: Final = {pa.bool_(): "BOOLEAN", pa.int32(): "INT", pa.int64(): "BIGINT", pa.string(): "STRING"}


def _arrow(info: inspect.Type) -> pa.DataType:
    if isinstance(info, inspect.UnionType):  # a value or None
        (info,) = (part for part in info.types if not isinstance(part, inspect.NoneType))
    if isinstance(info, inspect.StructType | inspect.NamedTupleType):
        return pa.struct([pa.field(part.name, _arrow(part.type)) for part in info.fields])
    if isinstance(info, inspect.DictType):
        return pa.map_(_arrow(info.key_type), _arrow(info.value_type))
    if isinstance(info, _COLLECTIONS):
        return pa.list_(_arrow(info.item_type))
    return _ARROW[type(info)]


def ddl_of(of: pa.DataType) -> str:
    """An Arrow type in the notation of Spark."""
    if pa.types.is_struct(of):
        return f"STRUCT<{', '.join(f'{part.name}: {ddl_of(part.type)}' for part in of)}>"
    if pa.types.is_map(of):
        return f"MAP<{ddl_of(of.key_type)}, {ddl_of(of.item_type)}>"
    return f"ARRAY<{ddl_of(of.value_type)}>" if pa.types.is_list(of) else _DDL[of]
