"""What may not happen to a published Avro schema: the rules of the event contract, stricter than Avro's own."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def violations(published: Any, current: Any, where: str = "") -> list[str]:
    """Everything in which a schema breaks its published form; none if fields were only added, each with a default."""
    if isinstance(published, dict) and published.get("type") == "record":
        return _record(published, current, where)
    if isinstance(published, dict) and published.get("type") == "array":
        if not isinstance(current, dict) or current.get("type") != "array":
            return [f"{where}: its type changed"]
        return violations(published["items"], current["items"], where)
    if isinstance(published, list):
        if not isinstance(current, list) or len(current) != len(published):
            return [f"{where}: its type changed"]
        pairs = zip(published, current, strict=True)
        return [found for before, after in pairs for found in violations(before, after, where)]
    return [] if published == current else [f"{where}: its type changed"]


def _record(published: Schema, current: Any, where: str) -> list[str]:
    if not isinstance(current, dict) or current.get("type") != "record":
        return [f"{where}: its type changed"]
    names = (published.get("namespace"), published["name"]), (current.get("namespace"), current["name"])
    found = [] if names[0] == names[1] else [f"{where}: the record {names[0]} is called {names[1]} now"]
    before = {field["name"]: field for field in published["fields"]}
    after = {field["name"]: field for field in current["fields"]}
    found += [f"{where}.{name}: removed or renamed" for name in before.keys() - after.keys()]
    found += [
        f"{where}.{name}: added without a default"
        for name in after.keys() - before.keys()
        if "default" not in after[name]
    ]
    for name in before.keys() & after.keys():
        found += violations(before[name]["type"], after[name]["type"], f"{where}.{name}")
        if before[name].get("default", "none") != after[name].get("default", "none"):
            found.append(f"{where}.{name}: its default changed")
    return sorted(found)
