"""The base classes of the model's values: immutable, and encoded by their annotations.

`serializer.py` encodes a record as the list of its values, in the order of its fields. So a field is declared once, in
its class, and no other code names it. Named tuples and enums need no base class: their encoding is the same.
"""

from __future__ import annotations

import msgspec


class ModelValue(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An immutable value of the model."""


class Variant(ModelValue, frozen=True, tag=True):
    """A record that is one of several in a union; its encoding begins with the name of its class."""
