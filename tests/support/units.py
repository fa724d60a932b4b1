"""What pytest-xdist hands to a worker.

Apart from the order of the tests (`servers.py`), because it is used by the process that does not collect them.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

from xdist.scheduler import LoadFileScheduling

_ROOT = Path(__file__).parents[2]

# Fixtures of the session that take longer to start than most files. One worker takes all files that name one.
SHARED = ("kafka3", "shared_watch")


@functools.cache
def unit_of(path: str) -> str:
    """What goes to one worker: a file, or all files with a fixture of `SHARED`.

    The process that hands out the units does not collect the tests, so it looks for the name of the fixture.
    """
    text = (_ROOT / path).read_text()
    return next((name for name in SHARED if re.search(rf"\b{name}: ", text)), path)


class UnitScheduling(LoadFileScheduling):  # type: ignore[misc]
    """Hands out units, not files."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(super()._split_scope(nodeid))
