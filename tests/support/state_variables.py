"""Dicts in place of Spark's state variables. They count the calls."""

from __future__ import annotations

from typing import Any


class Value:
    """A ValueState."""

    def __init__(self) -> None:
        self.value: tuple[Any, ...] | None = None
        self.calls = 0

    def get(self) -> tuple[Any, ...] | None:
        self.calls += 1
        return self.value

    def update(self, value: tuple[Any, ...]) -> None:
        self.calls += 1
        self.value = value


class Map:
    """A MapState."""

    def __init__(self) -> None:
        self.values: dict[tuple[int], tuple[Any, ...]] = {}
        self.calls = 0

    def getValue(self, key: tuple[int]) -> tuple[Any, ...] | None:
        self.calls += 1
        return self.values.get(key)

    def updateValue(self, key: tuple[int], value: tuple[Any, ...]) -> None:
        self.calls += 1
        self.values[key] = value

    def clear(self) -> None:
        self.calls += 1
        self.values.clear()


class Handle:
    """The state variables of one bucket."""

    def __init__(self) -> None:
        self.variables: list[Value | Map] = []

    def getValueState(self, *_: object) -> Value:
        self.variables.append(found := Value())
        return found

    def getMapState(self, *_: object) -> Map:
        self.variables.append(found := Map())
        return found

    def take_calls(self) -> int:
        calls = sum(variable.calls for variable in self.variables)
        for variable in self.variables:
            variable.calls = 0
        return calls
