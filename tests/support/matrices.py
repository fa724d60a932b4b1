"""A matrix is a test with the mark `matrix`: its rows differ in one value, for example in the right that is missing.

`make test` runs its first and its last row, `make long` the rows between them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import pytest


def rows_between(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The rows of all matrices, without the first and the last one of each."""
    rows: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("matrix") is not None:
            rows[item.nodeid.partition("[")[0]].append(item)
    return [row for matrix in rows.values() for row in matrix[1:-1]]
