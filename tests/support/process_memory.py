"""Which processes a process has started, by /proc."""

from __future__ import annotations

from pathlib import Path


def descendants(pid: int) -> dict[int, str]:
    """A process and its descendants, with their names."""
    parents, names = _table()
    return {one: names[one] for one in parents if _descends(one, pid, parents)}


def _descends(one: int, pid: int, parents: dict[int, int]) -> bool:
    while one not in {0, pid}:
        one = parents.get(one, 0)
    return one == pid


def _table() -> tuple[dict[int, int], dict[int, str]]:
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in status.read_text(errors="replace").splitlines() if ":" in line)
        except OSError:
            continue  # it has ended meanwhile
        pid = int(status.parent.name)
        parents[pid] = int(fields["PPid"])
        names[pid] = fields["Name"].strip()
    return parents, names
