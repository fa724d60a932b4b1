"""How much memory a process and all it has started hold, by /proc."""

from __future__ import annotations

from pathlib import Path

_KIB = 1024


def descendants(pid: int) -> dict[int, str]:
    """A process and its descendants, with their names."""
    parents, _, names = _table()
    return {one: names[one] for one in parents if _descends(one, pid, parents)}


def resident_bytes(pid: int) -> dict[str, int]:
    """Resident memory of a process and its descendants, by their names and added up."""
    parents, held, names = _table()
    found: dict[str, int] = {}
    for one in parents:
        if _descends(one, pid, parents):
            found[names[one]] = found.get(names[one], 0) + held[one]
    return found


def _descends(one: int, pid: int, parents: dict[int, int]) -> bool:
    while one not in {0, pid}:
        one = parents.get(one, 0)
    return one == pid


def _table() -> tuple[dict[int, int], dict[int, int], dict[int, str]]:
    parents: dict[int, int] = {}
    held: dict[int, int] = {}
    names: dict[int, str] = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in status.read_text(errors="replace").splitlines() if ":" in line)
        except OSError:
            continue  # it has ended meanwhile
        pid = int(status.parent.name)
        parents[pid] = int(fields["PPid"])
        held[pid] = int(fields.get("VmRSS", "0 kB").split()[0]) * _KIB
        names[pid] = fields["Name"].strip()
    return parents, held, names
